"""The demo runs on a database, with a queue and in a directory of its own, which it and its workers learn from their
environment. So the command, as it is first started, is started once more in these surroundings."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from django.conf import ENVIRONMENT_VARIABLE

__all__ = ["are_set", "environment", "files", "start_again"]

SETTINGS = "testproject.shop.demo.settings"
FILE = Path("demo.sqlite3")


def are_set() -> bool:
    return os.environ.get(ENVIRONMENT_VARIABLE) == SETTINGS


def files() -> Path:
    """The directory of what the demo writes beside its database."""
    return Path(os.environ["DEMO_FILES"])


def environment(environ: Mapping[str, str], *, file: Path | None, broker: str) -> dict[str, str]:
    """`file` is the database; without one it is the server's that the environment names, or else a file here."""
    kind = environ.get("DATABASE") or "sqlite"
    if file is not None or kind == "sqlite":
        kind, name = "sqlite", str((file or FILE).resolve())
        directory = f"{name}-files"
    else:
        name = f"django_reactor_demo_{uuid4().hex[:8]}"
        directory = tempfile.mkdtemp(prefix="django-reactor-demo-")
    return {
        **environ,
        ENVIRONMENT_VARIABLE: SETTINGS,
        "DATABASE": kind,
        "DATABASE_NAME": name,
        "DEMO_FILES": directory,
        "BROKER": broker,
        # By the database, so that going on with it finds workers that listen to the queue named in its rows.
        "QUEUE_NAME": f"demo-{hashlib.sha256(name.encode()).hexdigest()[:12]}",
    }


def start_again(surroundings: Mapping[str, str]) -> NoReturn:
    """The same command in place of this process."""
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], surroundings)
