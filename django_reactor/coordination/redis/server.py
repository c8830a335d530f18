"""The Redis server behind one of the project's caches, and scripts that it has loaded.

1. A script is called by its digest. A server that does not know it was started since, or has never been used by this
   project: then its run is noted first, and the scripts are loaded after that. So no script runs on a server whose run
   is not noted, and a run that is noted nowhere was noted before the server was emptied.
2. A connection that broke is made again by redis-py's pool. What goes wrong all the same is `StoreUnavailable`.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from django.core.cache import InvalidCacheBackendError, caches

from django_reactor.conf import settings
from django_reactor.coordination.redis import scripts
from django_reactor.engine.coordination_ports import HoldKind
from django_reactor.exceptions import ConfigurationError, StoreUnavailable

__all__ = ["Script", "Server", "problem_with"]

R = TypeVar("R")

NAME = "{django_reactor}"
PYPI = "install django-redis (the extra `redis` of django-reactor-saga)"


class Script(enum.Enum):
    BOOT = scripts.BOOT
    CHARGE = scripts.CHARGE
    COUNTED = scripts.COUNTED
    EXTEND = scripts.EXTEND
    HOLDERS = scripts.HOLDERS
    RELEASE = scripts.RELEASE
    TAKE = scripts.TAKE


def problem_with(alias: str) -> tuple[str, str] | None:
    """Why this cache is no Redis that coordination can use, and the cure."""
    try:
        import django_redis  # noqa: F401
    except ImportError:
        return "COORDINATION is 'redis', but django-redis is not installed", f"Either {PYPI}, or set it to 'database'."
    try:
        cache = caches[alias]
    except InvalidCacheBackendError:
        return f"COORDINATION is 'redis', but there is no cache {alias!r}", "Add it to CACHES, or set REDIS_ALIAS."
    from django_redis.cache import RedisCache

    if not isinstance(cache, RedisCache):
        kind = f"{type(cache).__module__}.{type(cache).__qualname__}"
        cure = "Make it a django_redis.cache.RedisCache, or name another in REDIS_ALIAS."
        return f"COORDINATION is 'redis', but the cache {alias!r} is a {kind}", cure
    return None


class Server:
    """Thread-safe."""

    @cached_property
    def alias(self) -> str:
        alias = settings.load().REDIS_ALIAS
        if (problem := problem_with(alias)) is not None:
            raise ConfigurationError(". ".join(problem))
        return alias

    @cached_property
    def _client(self) -> Any:
        """Of all threads: it takes a connection from its pool for each call."""
        from django_redis import get_redis_connection

        return get_redis_connection(self.alias)

    @cached_property
    def _prefix(self) -> str:
        """The cache's own, so that two projects may share a server. What is in braces keeps all keys in one place of a
        cluster, where a script needs them."""
        prefix = caches[self.alias].key_prefix
        return f"{prefix}:{NAME}" if prefix else NAME

    @cached_property
    def since(self) -> str:
        return f"{self._prefix}:since"

    @cached_property
    def run(self) -> str:
        return f"{self._prefix}:run"

    def hash_of(self, kind: HoldKind | str, key: str) -> str:
        return f"{self._prefix}:{kind}:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def set_of(self, owner: str) -> str:
        return f"{self._prefix}:owner:{owner}"

    def kind_of(self, name: str) -> HoldKind:
        return HoldKind(name.removeprefix(f"{self._prefix}:").partition(":")[0])

    def call(self, script: Script, keys: Sequence[str], arguments: Sequence[Any], about: str) -> Any:
        """What the script returns. `about` is the key that an error names."""
        return self._answer(lambda client: self._called(client, script, keys, arguments), about)

    def members(self, name: str, about: str) -> set[str]:
        found = self._answer(lambda client: client.smembers(name), about)
        return {text(member) for member in found}

    def _answer(self, question: Callable[[Any], R], about: str) -> R:
        from redis.exceptions import RedisError

        try:
            return question(self._client)
        except RedisError as error:
            said = " ".join(str(error).split()) or type(error).__name__
            raise StoreUnavailable(f"Redis (the cache {self.alias!r}) does not answer: {said}", about) from error

    def _called(self, client: Any, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        from redis.exceptions import NoScriptError

        try:
            return client.evalsha(self._digests[script], len(keys), *keys, *arguments)
        except NoScriptError:
            self._boot(client)
            return client.evalsha(self._digests[script], len(keys), *keys, *arguments)

    def _boot(self, client: Any) -> None:
        """The order matters: whoever finds the scripts finds the run noted."""
        server = client.info("server")
        age = max(0, int(server["uptime_in_seconds"]) - 1) * 1000
        client.eval(Script.BOOT.value, 2, self.run, self.since, server["run_id"], age)
        for script in self._digests:
            client.script_load(self._source(script))

    def _source(self, script: Script) -> str:
        """A script is the project's own, since another project's says nothing of whether ours was here."""
        return f"-- {self._prefix}\n{script.value}"

    @cached_property
    def _digests(self) -> dict[Script, str]:
        sources = {script: self._source(script) for script in Script if script is not Script.BOOT}
        return {script: hashlib.sha1(source.encode()).hexdigest() for script, source in sources.items()}


def text(value: bytes | str) -> str:
    """Whether or not the project's connection decodes."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
