"""A crash point is armed from outside, and then the process dies there without a word."""

from __future__ import annotations

import signal
import subprocess
import sys

from django_reactor.core.statuses import Status
from django_reactor.engine.crash_points import CrashPoint, arm, reached
from tests.crash.processes import ROOT, environment, only_execution
from tests.crash.reactors import Places, effects

RUN_IT = "import django; django.setup(); from tests.crash.reactors import Places; print(Places.run())"


def test_the_environment_names_the_point_and_how_often_it_is_passed_before() -> None:
    process = subprocess.run(
        [sys.executable, "-c", RUN_IT],
        cwd=ROOT,
        env=environment() | {"DJANGO_REACTOR_CRASH_AT": "recorded:3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert process.stdout == ""
    assert only_execution().status == Status.RUNNING
    assert [entry.step for entry in only_execution().trace()] == ["reserve", "book", "charge"]


def test_a_point_that_is_not_armed_is_passed() -> None:
    arm(CrashPoint.ATOMIC_BODY_DONE, 3)
    try:
        reached(CrashPoint.BODY_DONE)
        reached(CrashPoint.ATOMIC_BODY_DONE)
        Places.run()
    finally:
        arm(None)
    reached(CrashPoint.ATOMIC_BODY_DONE)
    assert effects()["book"] == 1
