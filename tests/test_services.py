"""A missing database server is said once: a skip for a developer, a failure in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOBODY_LISTENS = "1"

SERVERS = pytest.mark.parametrize("service", ["postgres", "mariadb"])


def run_without(service: str, ci: str) -> subprocess.CompletedProcess[str]:
    """pytest on this very file, with the service looked for where there is none."""
    environment = os.environ | {"CI": ci, "DATABASE": service, f"{service.upper()}_PORT": NOBODY_LISTENS}
    return subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@SERVERS
def test_a_missing_server_skips_a_developers_run_in_one_clear_line(service: str) -> None:
    run = run_without(service, ci="")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count(f"{service} does not answer, its tests are skipped") == 1


@SERVERS
def test_a_missing_server_fails_the_run_in_ci(service: str) -> None:
    run = run_without(service, ci="true")
    assert run.returncode == 1
    assert f"{service} does not answer" in run.stdout
