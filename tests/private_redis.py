"""A Redis server of a test's own, which it may kill and start again."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.contract.committed import eventually
from tests.private_postgres import free_port
from tests.services import in_ci

__all__ = ["Server", "private_redis"]


class Server:
    """Forgets everything when it is killed, unless it is `persistent`: then nothing that it has answered."""

    def __init__(self, binary: str, folder: Path, *, persistent: bool) -> None:
        self._binary, self._folder, self._persistent = binary, folder, persistent
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        keeps = ["--appendonly", "yes", "--appendfsync", "always"] if self._persistent else ["--appendonly", "no"]
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "", *keeps]
        self._process = subprocess.Popen(
            [self._binary, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        eventually(self.answers, "the answer of a Redis server that was started")

    def answers(self) -> bool:
        with Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def private_redis(*, persistent: bool = False) -> Iterator[Server]:
    """A running one. Skips the test, or fails it in CI, where Redis's server is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        problem = "redis-server is not installed here, so that no server of the test's own can be killed"
        if in_ci():
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        server = Server(binary, Path(folder), persistent=persistent)
        try:
            server.start()
            yield server
        finally:
            server.kill()
