"""Let a level of an execution in: ask for admission, take locks and semaphores (PROTOCOL 8).

1. The order: periods, rate limits, locks, semaphores, periods again. (An ordered lock comes before all of them.)
2. Admission (periods and rate limits) is asked once, and the `admit` entry says that it was given: however often the
   execution is delivered, it is charged once. A closed period halts.
3. All holds of a level, or none. What the runner holds already, for another level, is entered again in memory. A hold
   that was left by an earlier claim of the same execution is taken over.
4. Inside a caller's transaction the store may take part in it: then nobody else sees the hold before the commit, and it
   needs no keeping alive. Otherwise the hold is pledged to that transaction, and freed when it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django_reactor.engine.coordination_ports import Hold, Holder, Key
from django_reactor.engine.crash_points import CrashPoint, reached
from django_reactor.engine.demands import Demand
from django_reactor.engine.hold_keeper import Pledge
from django_reactor.engine.holdings import FOREVER, Holding, Holdings, Level
from django_reactor.engine.services import Services
from django_reactor.exceptions import ContentionError, StoreUnavailable

__all__ = ["POLL", "Gate", "Unavailable", "waiting"]

logger = logging.getLogger("django_reactor")

POLL = 0.005, 0.1
"""Seconds between two tries of whoever waits: at first, and at most. Each pause is twice the one before, and ends when
what is waited for is freed in this process."""
Tell = Callable[..., None]


class Unavailable(Exception):
    """Not now. Without a demand, whose declaration says how long to try, trying at once again is of no use."""

    def __init__(self, error: ContentionError, demand: Demand | None = None) -> None:
        self.error, self.demand = error, demand
        super().__init__(error)


def waiting(services: Services, demands: Sequence[Demand], attempt: Callable[[], None]) -> None:
    """Try until it works, as long as the declaration that stands in the way allows. Raises the last `Unavailable`.

    Whoever would overtake those who wait in this process already stands back for a moment first: it would often win,
    and have one of them ask in vain."""
    clock, room, (pause, longest) = services.clock, services.coordination.keeper.room, POLL
    since = clock.monotonic()
    for asked in demands:
        if asked.wait and room.number_waiting(asked.wanted.kind_and_key):
            room.wait(clock, asked.wanted.kind_and_key, min(pause, asked.wait))
            break
    while True:
        try:
            return attempt()
        except Unavailable as unavailable:
            demand = unavailable.demand
            if demand is None or (left := demand.wait - (clock.monotonic() - since)) <= 0:
                raise
            room.wait(clock, demand.wanted.kind_and_key, min(pause, left))
            pause = min(2 * pause, longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Takes holds for one owner, by one of its claims, and gives them back. `tell` notices a signal."""

    services: Services
    owner: UUID
    epoch: int
    holdings: Holdings
    tell: Tell

    def enter(
        self, level: Level, demands: Sequence[Demand], *, waits: bool = True, known: frozenset[Key] = frozenset()
    ) -> list[Holding]:
        """Take all of them, outside of any transaction of ours, keep them alive, and tell. What was not held before."""
        if not demands:
            return []
        taken: list[Holding] = []

        def attempt() -> None:
            taken.extend(self.take(level, demands))

        try:
            if waits:
                waiting(self.services, [each for each in demands if self.holdings.get(each.wanted) is None], attempt)
            else:
                attempt()
        except Unavailable as refused:
            self.notice_refused(refused, level[1])
            raise
        self.keep(taken)
        self.notice_taken(taken, known)
        return taken

    # -- taking --------------------------------------------------------------------------------------------------------

    def take(self, level: Level, demands: Sequence[Demand]) -> list[Holding]:
        """All of them for this level, or none: `Unavailable`. Returns what was not held here before."""
        new: list[Holding] = []
        for demand in demands:
            try:
                holding = self.holdings.get(demand.wanted) or self._took(demand, level[1])
            except Unavailable:
                self.leave(lambda each: each == level)
                raise
            if not holding.levels:
                new.append(holding)
            holding.levels.add(level)
            holding.is_given_up = False
            self.holdings.put(holding)
        return new

    def _took(self, demand: Demand, step: str) -> Holding:
        """Raises `Unavailable`, also if its store does not answer."""
        stores = self.services.coordination
        asked_at = stores.keeper.now()
        try:
            hold = stores.holds.take(self.owner, self.epoch, demand.wanted)
        except StoreUnavailable as error:
            raise Unavailable(error, demand) from None
        if hold is None:
            raise Unavailable(demand.unavailable(), demand)
        holding = Holding(hold=hold, auto_extend=demand.auto_extend, good_until=FOREVER, step=step)
        stores.keeper.confirm(holding, asked_at)
        return holding

    def retake(self, holding: Holding) -> None:
        """One that was not confirmed in time. Raises `Unavailable`."""
        demand = Demand(wanted=holding.hold.wanted, wait=0, rollback_wait=0, auto_extend=holding.auto_extend)
        again = self._took(demand, holding.step)
        holding.hold, holding.good_until, holding.due_at = again.hold, again.good_until, again.due_at

    def keep(self, holdings: Sequence[Holding]) -> None:
        """They are taken for good now, and kept alive, until they are left."""
        stores, transactions = self.services.coordination, self.services.transactions
        for holding in holdings:
            if transactions.in_callers_block():
                if stores.holds.joins_transactions:
                    holding.good_until = FOREVER  # the uncommitted row is the lock
                    continue
                holding.waits_for_commit = True
                transactions.after_commit(Pledge(stores.keeper, holding).committed)
            stores.keeper.keep(holding)

    def notice_taken(self, holdings: Sequence[Holding], known: frozenset[Key] = frozenset()) -> None:
        """`known` are keys that an earlier claim has left to this one: nothing new was acquired."""
        for holding in holdings:
            wanted = holding.hold.wanted
            if wanted.kind_and_key not in known:
                more = {"limit": wanted.limit} if wanted.kind == "semaphore" else {}
                self.tell(f"{wanted.kind}_acquired", key=wanted.key, step=holding.step, **more)

    def left_to_us(self, demands: Sequence[Demand]) -> frozenset[Key]:
        """Those of these keys that an earlier claim of this owner has left, and still holds."""
        if self.epoch == 1:
            return frozenset()
        holders = self.holders({demand.wanted.kind_and_key for demand in demands})
        return frozenset(holder.kind_and_key for holder in holders if holder.owner == self.owner)

    def holders(self, keys: Collection[Key]) -> Sequence[Holder]:
        """Who holds these now. Nobody, if their store does not answer."""
        holds = self.services.coordination.holds
        of_kinds = {kind: [key for of, key in sorted(keys) if of == kind] for kind, _ in sorted(keys)}
        return self._answered(lambda: [each for kind, of in of_kinds.items() for each in holds.holders(kind, *of)])

    def all_held(self) -> Sequence[Holder]:
        """By this owner, by whatever claim. Nothing, if their store does not answer."""
        return self._answered(lambda: self.services.coordination.holds.held_by(self.owner))

    def _answered(self, ask: Callable[[], Sequence[Holder]]) -> Sequence[Holder]:
        try:
            return ask()
        except StoreUnavailable as error:
            self._log_silence(error)
            return ()

    def notice_refused(self, refused: Unavailable, step: str) -> None:
        if refused.demand is not None:
            wanted = refused.demand.wanted
            more = {"limit": wanted.limit} if wanted.kind == "semaphore" else {}
            self.tell(f"{wanted.kind}_failed", key=wanted.key, step=step, error=refused.error, **more)

    def rest(self) -> None:
        """Nobody runs for a while; whoever goes on takes them over, if they have not lapsed by then."""
        resting = [each for each in self.holdings.forget() if not each.waits_for_commit]
        try:
            self.services.coordination.keeper.rest(*resting)
        except StoreUnavailable as error:
            self._log_silence(error)

    def forget(self) -> None:
        """Keep nothing alive any more: what this runner held lapses, if nobody takes it over."""
        for holding in self.holdings.forget():
            if not holding.waits_for_commit:
                self.services.coordination.keeper.drop(holding)

    # -- giving back ---------------------------------------------------------------------------------------------------

    def leave(self, is_left: Callable[[Level], bool]) -> list[Holding]:
        """Leave levels, and free what no other level needs."""
        free = self.holdings.leave(is_left)
        self.free(free)
        return free

    def free(self, holdings: Sequence[Holding]) -> None:
        """Of the holds that no level needs any more."""
        if not holdings:
            return
        reached(CrashPoint.BEFORE_RELEASE)
        free = [holding for holding in holdings if not holding.waits_for_commit]
        for holding in holdings:
            if holding.waits_for_commit:
                holding.is_given_up = True
            else:
                self.services.coordination.keeper.drop(holding)
        self.release([holding.hold for holding in free])
        self.freed(holdings)

    def freed(self, holdings: Sequence[Holding]) -> None:
        """They are free, or will be with the caller's transaction."""
        keeper = self.services.coordination.keeper
        for holding in holdings:
            if not holding.waits_for_commit:
                keeper.drop(holding)
                keeper.room.freed(holding.hold.wanted.kind_and_key)
            self.tell(f"{holding.hold.wanted.kind}_released", key=holding.key, step=holding.step)

    def release(self, holds: Sequence[Hold]) -> None:
        """In the store. What somebody else has taken over meanwhile is his."""
        if not holds:
            return
        try:
            released = self.services.coordination.holds.release(holds)
        except StoreUnavailable as error:  # they lapse
            self._log_silence(error)
            return
        for hold in holds:
            if hold not in released:
                wanted = hold.wanted
                logger.warning(
                    "event=django_reactor.hold_lost kind=%s key=%s execution_id=%s", wanted.kind, wanted.key, self.owner
                )

    def _log_silence(self, error: StoreUnavailable) -> None:
        logger.warning("event=django_reactor.store_unavailable execution_id=%s error=%s", self.owner, error)
