"""Two workers that deliver one execution at the same instant run it once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from math import ceil

from django.test import override_settings

from django_reactor.core.statuses import Status
from django_reactor.models import Execution, JournalEntry
from tests.crash.processes import ROOT, environment
from tests.crash.reactors import Contested, effects

CLAIMS = 3
"""Of each execution: it is given up twice on its way."""
CONTESTED = {"postgresql": 1000, "mysql": 240, "sqlite": 120}
"""So many claims at least."""
JOURNAL = [
    ("reserve", "run", "success"),
    ("charge", "run", "retrying"),
    ("charge", "run", "success"),
    ("book", "run", "success"),
    ("ship", "run", "success"),
]
BODIES = ("reserve", "charge 1", "charge 2", "book", "ship 0", "ship 1")


def test_two_workers_that_deliver_the_same_at_the_same_time_run_each_body_once(database: str) -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": "tests.queues.LostMessages"}):
        ids = [str(Contested.enqueue().execution_id) for _ in range(ceil(CONTESTED[database] / CLAIMS))]
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.rivals"],
        input=json.dumps(ids) + "\n",
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    won = json.loads(process.stdout)

    rows = Execution.objects.values_list("status", "epoch", "lease_token", "wake_at")
    assert Counter(rows) == {(Status.COMPLETED, CLAIMS, None, None): len(ids)}
    assert effects() == Counter(f"{body} {execution_id}" for body in BODIES for execution_id in ids)
    journals = defaultdict(list)
    entries = JournalEntry.objects.order_by("execution", "seq")
    for execution_id, step, action, outcome in entries.values_list("execution", "step", "action", "outcome"):
        journals[execution_id].append((step, action, outcome))
    assert all(journal == JOURNAL for journal in journals.values())
    assert len(journals) == len(ids)
    assert sum(won) == CLAIMS * len(ids)
    assert min(won) > 0, "they did not compete"
