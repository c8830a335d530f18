"""Without a broker: a Dramatiq worker in threads of the process, from its first message to its end.

Each test is a process of its own, since what is tested is its beginning and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

BEGINNING = """
import os, sys, threading, time
from uuid import uuid4
import django
django.setup()
from django.test import override_settings
from django_reactor import queues
from django_reactor.queues import entry, in_process, processes
override_settings(DJANGO_REACTOR={"SWEEPER": False}).enable()

def send(delay=0):
    queues.backend().enqueue(str(uuid4()), queue_name="default", delay=delay, priority=None)

def say(text):
    os.write(1, f"{text}\\n".encode())
"""
MANY = 8


def run(script: str, *, tmp_path: Path, timeout: float = 60) -> tuple[str, float]:
    """What the script printed, and the seconds it took. It must end by itself and complain of nothing."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "BROKER": "",
        "DATABASE": "sqlite",
        "DATABASE_NAME": str(tmp_path / "empty.sqlite3"),
    }
    command = [sys.executable, "-W", "error", "-c", BEGINNING + script]
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout, time.monotonic() - start


def test_a_process_that_sends_nothing_has_no_worker(tmp_path: Path) -> None:
    script = """
from django.core.management import call_command
call_command("check", verbosity=0)
queues.install(entry.deliver)
assert not in_process.is_running()
assert threading.active_count() == 1, threading.enumerate()
"""
    run(script, tmp_path=tmp_path)


def test_many_first_messages_at_once_start_one_worker_which_says_that_it_has_booted(tmp_path: Path) -> None:
    script = f"""
processes.on_boot(lambda: say("booted"))
entry.deliver_by(lambda execution_id: say("delivered"))
barrier = threading.Barrier({MANY})
def first():
    barrier.wait()
    send()
threads = [threading.Thread(target=first) for _ in range({MANY})]
for thread in threads: thread.start()
for thread in threads: thread.join()
in_process.broker().join("default")
assert sum(thread.name == "django-reactor-end" for thread in threading.enumerate()) == 1
"""
    printed, _ = run(script, tmp_path=tmp_path)
    assert sorted(printed.split()) == ["booted"] + ["delivered"] * MANY


def test_a_fork_delivers_with_a_worker_of_its_own(tmp_path: Path) -> None:
    script = """
entry.deliver_by(lambda execution_id: say(f"delivered by {os.getpid()}"))
send()
in_process.broker().join("default")
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # threads are running: that is the point
child = os.fork()
if child == 0:
    send()
    in_process.broker().join("default")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say(f"expected of {os.getpid()} and {child}")
"""
    printed, _ = run(script, tmp_path=tmp_path)
    *delivered, expected = printed.splitlines()
    _, _, parent, _, child = expected.split()
    assert delivered == [f"delivered by {parent}", f"delivered by {child}"]


def test_the_end_of_the_process_waits_for_the_delivery_that_runs_and_lets_it_start_threads(tmp_path: Path) -> None:
    script = """
begun = threading.Event()
def deliver(execution_id):
    if begun.is_set():
        return
    begun.set()
    while not processes.is_stopping():
        time.sleep(0.01)
    thread = threading.Thread(target=lambda: say("a thread of the step"))
    thread.start()
    thread.join()
    send()  # what a delivery sends on at the end starts no other worker
    say("delivered")
processes.on_stop(lambda: say("stopped"))
entry.deliver_by(deliver)
send()
begun.wait()
"""
    printed, _ = run(script, tmp_path=tmp_path)
    assert printed.splitlines() == ["a thread of the step", "delivered", "stopped"]


def test_the_end_of_the_process_does_not_wait_for_ever(tmp_path: Path) -> None:
    script = """
in_process.GRACE = 0.5
begun = threading.Event()
def deliver(execution_id):
    begun.set()
    time.sleep(3600)
entry.deliver_by(deliver)
send()
begun.wait()
"""
    _, seconds = run(script, tmp_path=tmp_path)
    assert seconds < 30


def test_a_stopped_worker_is_started_again_by_the_next_message(tmp_path: Path) -> None:
    script = """
delivered = threading.Semaphore(0)
entry.deliver_by(lambda execution_id: delivered.release())
for _ in range(2):
    send(delay=0.05)
    assert delivered.acquire(timeout=20)
    assert not processes.is_stopping()
    in_process.stop()
    assert not in_process.is_running()
"""
    run(script, tmp_path=tmp_path)


def test_an_idle_worker_holds_no_database_connection(tmp_path: Path) -> None:
    script = """
from django.db import connection
opened = []
def deliver(execution_id):
    connection.ensure_connection()
    opened.append(connection.connection)
entry.deliver_by(deliver)
send()
in_process.broker().join("default")
import sqlite3
try:
    opened[0].execute("SELECT 1")
except sqlite3.ProgrammingError as error:
    say(error)
"""
    printed, _ = run(script, tmp_path=tmp_path)
    assert "closed" in printed
