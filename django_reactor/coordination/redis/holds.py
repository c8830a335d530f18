"""The port `Holds` on Redis. What is taken is not taken back by a rollback of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django_reactor.coordination.redis.server import Script, Server, text
from django_reactor.engine.coordination_ports import Hold, Holder, HoldKind, Wanted

__all__ = ["RedisHolds"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RedisHolds:
    """Thread-safe. Every method raises `StoreUnavailable` where Redis does not answer."""

    joins_transactions = False

    def __init__(self, server: Server | None = None) -> None:
        self._server = server or Server()

    def take(self, owner: UUID, epoch: int, wanted: Wanted) -> Hold | None:
        limit = 1 if wanted.kind is HoldKind.LOCK else wanted.limit
        key = wanted.key.encode("utf-8", "surrogatepass")
        slot = self._call(Script.TAKE, wanted, owner, epoch, _milliseconds(wanted.ttl), limit, key)
        return None if slot < 0 else Hold(wanted=wanted, owner=owner, epoch=epoch, slot=slot)

    def extend(self, holds: Sequence[Hold]) -> set[Hold]:
        return {hold for hold in holds if self._of(Script.EXTEND, hold, _milliseconds(hold.wanted.ttl))}

    def release(self, holds: Sequence[Hold]) -> set[Hold]:
        return {hold for hold in holds if self._of(Script.RELEASE, hold)}

    def holders(self, kind: HoldKind, *keys: str) -> Sequence[Holder]:
        found = (holder for key in set(keys) for holder in self._holders(self._server.hash_of(kind, key), key))
        return sorted(found, key=lambda holder: (holder.key, holder.slot))

    def held_by(self, owner: UUID) -> Sequence[Holder]:
        server, about = self._server, str(owner)
        names = server.members(server.set_of(owner.hex), about)
        found = (holder for name in names for holder in self._holders(name, about) if holder.owner == owner)
        return sorted(found, key=lambda holder: (holder.kind, holder.key, holder.slot))

    def purge(self, limit: int) -> int:
        """Redis forgets them by itself."""
        return 0

    def _of(self, script: Script, hold: Hold, *arguments: int) -> bool:
        return bool(self._call(script, hold.wanted, hold.owner, hold.epoch, hold.slot, *arguments))

    def _call(self, script: Script, wanted: Wanted, owner: UUID, *arguments: int | bytes) -> int:
        server = self._server
        keys = [server.hash_of(wanted.kind, wanted.key), server.since, server.set_of(owner.hex)]
        return int(server.call(script, keys, [owner.hex, *arguments], about=wanted.key))

    def _holders(self, name: str, about: str) -> Iterator[Holder]:
        kind = self._server.kind_of(name)
        for values in self._server.call(Script.HOLDERS, [name], [], about):
            slot, owner, epoch, expiry, key = map(text, values)
            yield Holder(
                kind=kind,
                key=key,
                slot=int(slot),
                owner=UUID(owner),
                epoch=int(epoch),
                expires_at=EPOCH + timedelta(milliseconds=int(expiry)),
            )


def _milliseconds(ttl: float) -> int:
    """At least one: what lasts for no time at all would be nobody's."""
    return max(1, round(ttl * 1000))
