"""The benchmark of locks as its users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.test_queues import databases, keys
from tests.services import require_service


def test_a_run_compares_each_store_with_its_peer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    require_service("postgres")
    require_service("redis")
    names = ["database", "for_update", "redis_py"]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.locks", *names, "--rounds", "1", "--turn", "0.1", "--threads", "2"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        printed = process.communicate(timeout=300)[0]

    assert process.returncode == 0
    named = [line.split()[0] for line in printed.splitlines() if line]
    assert [named.count(name) for name in names] == [2, 2, 2]  # one key, and many
    assert printed.count(" of for_update ") == 2
    assert databases(process.pid) == []
    assert keys(process.pid) == []
    assert list(tmp_path.iterdir()) == []
