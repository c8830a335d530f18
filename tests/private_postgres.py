"""A PostgreSQL server of a test's own, which it may stop."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import in_ci

__all__ = ["USER", "Server", "private_postgres"]

USER = "django_reactor"
OWNER = "postgres"
"""Who runs the server where we are root: it refuses to run as root."""
DEBIANS = "usr/lib/postgresql/*/bin/pg_ctl"
PATIENCE = 60
"""Seconds for each of its commands."""


class Server:
    """Accepts `USER` without a password. Not made to survive the machine's crash: it syncs nothing."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self.port = free_port()

    @property
    def environment(self) -> dict[str, str]:
        """What makes the test project work on its database `postgres`."""
        return {
            "DATABASE": "postgres",
            "DATABASE_NAME": "postgres",
            "POSTGRES_HOST": "127.0.0.1",
            "POSTGRES_PORT": str(self.port),
            "POSTGRES_USER": USER,
            "POSTGRES_PASSWORD": "",
        }

    def create(self) -> None:
        self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "start", "--wait", "--log", str(self._folder / "log"), "--options", options)

    def stop(self) -> None:
        """At once, as a crash does: every session breaks off, and what was not committed is lost."""
        self._run("pg_ctl", "stop", "--mode=immediate")

    def is_running(self) -> bool:
        return (self._folder / "data" / "postmaster.pid").exists()

    def _run(self, command: str, *arguments: str) -> None:
        # pg_ctl leaves the server with the outputs that it had: they go to a file, since a pipe would not end.
        output = self._folder / f"{command}.out"
        words = [str(self._binaries / command), "--pgdata", str(self._folder / "data"), *arguments]
        with output.open("wb") as file:
            done = subprocess.run(
                [*as_owner(), *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == 0, output.read_text()


@contextmanager
def private_postgres() -> Iterator[Server]:
    """A running one. Skips the test, or fails it in CI, where PostgreSQL's server is not installed."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
        server = Server(binaries(), folder)
        server.create()
        server.start()
        try:
            yield server
        finally:
            if server.is_running():
                server.stop()
    finally:
        shutil.rmtree(folder)


def binaries() -> Path:
    found = shutil.which("pg_ctl")
    paths = [Path(found).resolve()] if found else sorted(Path("/").glob(DEBIANS))
    if not paths:
        problem = "PostgreSQL's pg_ctl is not installed here, so that no server of the test's own can be stopped"
        pytest.fail(problem, pytrace=False) if in_ci() else pytest.skip(problem)
    return paths[-1].parent


def as_owner() -> list[str]:
    return ["runuser", "-u", OWNER, "--"] if os.geteuid() == 0 else []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
