"""Sweeps on a real database: by the command, by a worker process's thread, through an outage, and what they cost."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.checks import CheckMessage
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_reactor import Reactor, step, sweeper
from django_reactor.core.statuses import Status
from django_reactor.engine.identifiers import uuid7
from django_reactor.engine.records import Message, NewExecution
from django_reactor.engine.recovery import OutOfReach, Overdue, Pace, Recovery, Sweeps, Swept
from django_reactor.journal.deliveries import OrmDeliveries
from django_reactor.journal.elements import OrmElements
from django_reactor.journal.executions import OrmExecutions
from django_reactor.journal.fields import DbNow
from django_reactor.journal.memory_sweeps import MemorySweeps
from django_reactor.journal.sweeps import OrmSweeps
from django_reactor.journal.waits import OrmAnswers
from django_reactor.models import Execution, Leader
from django_reactor.sweeper import Sweeper
from tests.contract.committed import PATIENCE, eventually, together
from tests.contract.sessions import kill_session, session_id
from tests.contract.stores import Memory, new_execution

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
PACE = Pace(interval=15, limit=1000)
OFTEN = 0.005
"""Seconds between two turns of a thread in a test."""


class Outbox:
    """A queue whose messages nobody ever takes; it keeps what was sent."""

    is_immediate = False
    supports_delay = True
    max_delay = float("inf")
    supports_priority = True
    sent: list[tuple[str, str, float, int | None]] = []

    def prepare(self) -> None:
        """Nothing is needed."""

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None:
        self.sent.append((execution_id, queue_name, delay, priority))

    def check(self) -> Sequence[CheckMessage]:
        return []


@pytest.fixture(autouse=True)
def outbox() -> Iterator[list[tuple[str, str, float, int | None]]]:
    with override_settings(DJANGO_REACTOR={"BACKEND": f"{__name__}.Outbox"}):
        Outbox.sent.clear()
        yield Outbox.sent


class Parcel(Reactor[str]):
    weight: int

    class Meta:
        returns = "label"

    @step
    def label(self, weight: int) -> str:
        return f"{weight} kg"


def enqueued(**inputs: Any) -> Execution:
    """Its message was sent so long ago that it must be lost."""
    execution_id = Parcel.enqueue(**inputs).execution_id
    assert execution_id is not None
    Execution.objects.filter(pk=execution_id).update(sent_at=DbNow() - HOUR)
    Outbox.sent.clear()
    return Execution.objects.get(pk=execution_id)


def died(**inputs: Any) -> Execution:
    """A run in a caller whose process died before its first step: there never was a message."""
    pattern = Execution.objects.get(pk=enqueued(**inputs).pk)
    new = NewExecution(
        id=uuid7(), reactor=pattern.reactor, fingerprint=pattern.fingerprint, inputs=pattern.inputs, token=uuid4()
    )
    pattern.delete()
    assert OrmExecutions().start(new)
    Execution.objects.filter(pk=new.id).update(lease_expires_at=DbNow() - HOUR)
    return Execution.objects.get(pk=new.id)


def waiting(count: int, **columns: Any) -> list[UUID]:
    """So many executions that are due and free, in the order of their due times."""
    found = []
    for number in range(count):
        new = new_execution()
        assert OrmExecutions().start(new)
        due = DbNow() - HOUR + timedelta(seconds=number)
        values = {"status": Status.PENDING, "lease_token": None, "lease_expires_at": None, "wake_at": due}
        Execution.objects.filter(pk=new.id).update(**values | columns)
        found.append(new.id)
    return found


def recovery(deliver: Callable[[Message], None], sweeps: Sweeps | None = None) -> Recovery:
    return Recovery(
        sweeps=sweeps or OrmSweeps(),
        deliveries=OrmDeliveries(),
        elements=OrmElements(),
        answers=OrmAnswers(),
        deliver=deliver,
        pace=lambda: PACE,
    )


def swept_by_command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("reactor_sweep", *arguments, stdout=out)
    return out.getvalue().strip()


# -- one sweep ---------------------------------------------------------------------------------------------------------


def test_what_is_due_is_sent_to_its_queue_even_if_its_reactor_is_unknown_here(outbox: list[Any]) -> None:
    known = enqueued(weight=2)
    (unknown,) = waiting(1, reactor="elsewhere.Order", queue_name="mail", priority=3)
    assert sweeper.recovery().sweep() == Swept(delivered=2)
    assert sorted(outbox) == sorted([(str(known.pk), "default", 0.0, None), (str(unknown), "mail", 0.0, 3)])


def test_what_was_sent_is_not_sent_again_by_the_next_sweep(outbox: list[Any]) -> None:
    waiting(2)
    sweeps = [sweeper.recovery().sweep() for _ in range(3)]
    assert sweeps == [Swept(delivered=2), Swept(), Swept()]
    assert len(outbox) == 2


def test_sweeps_at_the_same_instant_send_each_message_once(outbox: list[Any]) -> None:
    ids = waiting(20)
    swept = together(3, lambda _: sweeper.recovery().sweep())
    assert sum(one.delivered for one in swept) == 20
    assert sorted(message[0] for message in outbox) == sorted(map(str, ids))


def test_a_row_that_raises_is_logged_and_left_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    first, broken, last = waiting(3)
    delivered = []

    def deliver(message: Message) -> None:
        if message.execution_id == broken:
            raise RuntimeError("a bad row")
        delivered.append(message.execution_id)

    assert recovery(deliver).sweep() == Swept(delivered=2, failed=1)
    assert delivered == [first, last]
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert str(broken) in record.getMessage()


def test_a_store_that_is_out_of_reach_breaks_the_sweep_off() -> None:
    class Away(MemorySweeps):
        asked = 0

        def mark_sent(self, overdue: Overdue, interval: float) -> bool:
            self.asked += 1
            raise OutOfReach

    memory = Memory()
    for _ in range(3):
        new = new_execution()
        assert memory.executions.start(new)
        memory.change(new.id, lease_expires_at=memory.now() - HOUR)
    away = Away(memory.store)
    with pytest.raises(OutOfReach):
        recovery(lambda message: None, away).sweep()
    assert away.asked == 1


@override_settings(DJANGO_REACTOR={"BACKEND": f"{__name__}.Outbox", "SWEEP_LIMIT": 2})
def test_a_sweep_takes_no_more_than_the_limit_and_the_next_goes_on(outbox: list[Any]) -> None:
    ids = waiting(3)
    assert [sweeper.recovery().sweep().delivered for _ in range(3)] == [2, 1, 0]
    assert [message[0] for message in outbox] == [str(one) for one in ids]


def test_only_the_leader_sweeps(outbox: list[Any]) -> None:
    one, other = uuid4(), uuid4()
    waiting(1)
    assert sweeper.recovery().sweep_if_leader(one) == Swept(delivered=1)
    outbox.clear()
    waiting(1)
    assert sweeper.recovery().sweep_if_leader(other) is None
    assert outbox == []
    Leader.objects.update(until=DbNow() - HOUR)  # the leader has died
    assert sweeper.recovery().sweep_if_leader(other) == Swept(delivered=1)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_sends_what_is_due_whoever_leads_and_says_how_much(outbox: list[Any]) -> None:
    assert OrmSweeps().lead(uuid4(), 3600)
    enqueued(weight=2)
    nothing_else = "woken: 0, elements let go: 0, timed out: 0, failed: 0, rows forgotten: 0"
    assert swept_by_command() == f"delivered again to the workers: 1, {nothing_else}"
    assert swept_by_command() == f"delivered again to the workers: 0, {nothing_else}"
    assert len(outbox) == 1


@pytest.mark.parametrize("left_behind", [enqueued, died], ids=["a lost message", "a caller that died"])
def test_the_command_can_carry_deliveries_out_itself(left_behind: Callable[..., Execution], outbox: list[Any]) -> None:
    executions = [left_behind(weight=weight) for weight in (2, 3)]
    nothing_else = "woken: 0, elements let go: 0, timed out: 0, failed: 0, rows forgotten: 0"
    assert swept_by_command("--deliver") == f"delivered again here: 2, {nothing_else}"
    for execution, label in zip(executions, ("2 kg", "3 kg"), strict=True):
        execution.refresh_from_db()
        assert (execution.status, execution.result().unwrap()) == (Status.COMPLETED, label)
    assert outbox == []


def test_the_command_fails_if_the_sweep_itself_fails() -> None:
    def away(*_: Any) -> None:
        raise OperationalError("the database is away")

    with connection.execute_wrapper(away), pytest.raises(CommandError, match="the database is away"):
        swept_by_command()


# -- the thread --------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads() -> Iterator[ExitStack]:
    """Stops what is started in it."""
    with ExitStack() as stack:
        yield stack


def started(threads: ExitStack, sweep: Callable[[UUID], Swept | None], interval: Callable[[], float]) -> Sweeper:
    one = Sweeper(sweep, interval, done=connections.close_all)
    threads.callback(lambda: stopped(one))
    one.start()
    return one


def stopped(one: Sweeper) -> None:
    one.stop(PATIENCE)
    assert not one.is_running


def sweeping() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "django-reactor-sweeper"]


def test_a_worker_process_sweeps_at_once_in_one_thread_until_it_is_stopped(outbox: list[Any]) -> None:
    (execution_id,) = waiting(1)
    try:
        sweeper.start()
        sweeper.start()
        assert len(sweeping()) == 1
        eventually(lambda: [message[0] for message in outbox] == [str(execution_id)], "the first sweep")
    finally:
        sweeper.stop(PATIENCE)
    assert sweeping() == []
    Leader.objects.update(until=DbNow() - HOUR)
    (another,) = waiting(1)
    try:
        sweeper.start()
        eventually(lambda: str(another) in [message[0] for message in outbox], "a sweep after a new start")
    finally:
        sweeper.stop(PATIENCE)


@override_settings(DJANGO_REACTOR={"SWEEPER": False})
def test_a_sweeper_that_is_switched_off_does_not_start() -> None:
    sweeper.start()
    assert sweeping() == []


def test_a_sweeper_that_never_started_can_be_stopped() -> None:
    sweeper.stop()
    assert sweeping() == []


def test_a_turn_is_taken_each_interval_by_the_same_holder(threads: ExitStack) -> None:
    holders: list[UUID] = []
    started(threads, holders.append, lambda: OFTEN)
    eventually(lambda: len(holders) >= 3, "the third turn")
    assert len(set(holders)) == 1


def test_an_error_of_a_turn_is_logged_and_the_thread_lives_on(
    threads: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    turns: list[UUID] = []

    def sweep(holder: UUID) -> None:
        turns.append(holder)
        raise OperationalError("password=secret")

    started(threads, sweep, lambda: OFTEN)
    eventually(lambda: len(turns) >= 3, "the third turn")
    assert "event=django_reactor.sweep_broken_off error=OperationalError" in caplog.text
    assert "secret" not in caplog.text


def test_the_pauses_grow_while_turns_fail_to_a_limit_and_are_never_shorter_than_the_interval() -> None:
    for failures, least in ((0, 15), (1, 30), (2, 60), (3, 60), (5000, 60)):
        pauses = {sweeper._pause(15, failures) for _ in range(50)}
        assert least <= min(pauses) < max(pauses) <= least * 1.25


def test_the_thread_keeps_no_connection_between_its_turns(threads: ExitStack) -> None:
    session_id()  # or skip
    sessions: list[int] = []
    started(threads, lambda _: sessions.append(session_id()), lambda: OFTEN)
    eventually(lambda: len(sessions) >= 3, "the third turn")
    assert len(set(sessions)) == len(sessions)


def test_a_session_that_is_killed_in_the_middle_of_a_sweep_costs_a_pause_at_most(threads: ExitStack) -> None:
    session_id()  # or skip
    ids = waiting(4)
    delivered: list[tuple[UUID, int]] = []

    def deliver(message: Message) -> None:
        session = session_id()
        delivered.append((message.execution_id, session))
        if len(delivered) == 1:
            kill_session(session)

    started(threads, lambda _: recovery(deliver).sweep(), lambda: OFTEN)
    eventually(lambda: {one for one, _ in delivered} == set(ids), "all deliveries")
    assert len(delivered) == 4  # nothing twice
    assert delivered[0][0] == ids[0]
    assert delivered[0][1] not in {session for _, session in delivered[1:]}


def test_a_database_that_is_away_for_several_turns_needs_nobody_when_it_is_back(threads: ExitStack) -> None:
    session_id()  # or skip
    ids = waiting(3)
    delivered: list[UUID] = []
    outcomes: list[str] = []
    there = connection.settings_dict

    def deliver(message: Message) -> None:
        delivered.append(message.execution_id)
        if len(delivered) == 1:  # it goes away, for this thread
            killed = session_id()
            connection.settings_dict = there | {"HOST": "127.0.0.1", "PORT": "1"}
            kill_session(killed)

    def sweep(_: UUID) -> Swept:
        try:
            swept = recovery(deliver).sweep()
        except (OutOfReach, OperationalError) as error:
            outcomes.append(type(error).__name__)
            raise
        outcomes.append("swept")
        return swept

    def interval() -> float:
        if len(outcomes) == 3:
            connection.settings_dict = there
        return OFTEN

    started(threads, sweep, interval)
    eventually(lambda: "swept" in outcomes, "a sweep after the outage")
    assert outcomes[:4] == ["OutOfReach", "OperationalError", "OperationalError", "swept"]
    assert delivered == ids


FORK = """
import os, sys, threading
from django_reactor.sweeper import Sweeper

swept = threading.Event()
one = Sweeper(lambda holder: swept.set(), lambda: 3600)
one.start()
assert swept.wait(30)
swept.clear()

def starting():
    with one._lock:
        in_the_middle.set()
        go_on.wait(60)

in_the_middle, go_on = threading.Event(), threading.Event()
threading.Thread(target=starting).start()
assert in_the_middle.wait(30)
pid = os.fork()
if pid == 0:
    alive_before = one.is_running
    started_by_itself = swept.wait(0.2)
    one.start()
    swept_here = swept.wait(30)
    one.stop(30)
    os._exit(0 if (alive_before, started_by_itself, swept_here, one.is_running) == (False, False, True, False) else 1)
_, status = os.waitpid(pid, 0)
go_on.set()
assert one.is_running
one.stop(30)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_has_no_sweeper_until_it_starts_its_own_whatever_its_parents_threads_were_at() -> None:
    run = subprocess.run([sys.executable, "-c", FORK], cwd=os.getcwd(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


# -- what it costs -----------------------------------------------------------------------------------------------------


def statements_of(action: Callable[[], Any]) -> list[str]:
    connection.ensure_connection()
    with CaptureQueriesContext(connection) as captured:
        action()
    return [query["sql"] for query in captured.captured_queries]


def test_a_process_without_work_asks_the_database_once_per_interval_whoever_leads() -> None:
    leader, other = uuid4(), uuid4()
    waiting(1)
    assert sweeper.recovery().sweep_if_leader(leader) is not None  # and then all is sent
    for one in (leader, other, other, leader):
        statements = statements_of(lambda one=one: sweeper.recovery().sweep_if_leader(one))  # type: ignore[misc]
        assert [sql.split()[0] for sql in statements] == ["SELECT"]


def test_while_one_leads_another_asks_once_even_if_there_is_work() -> None:
    leader, other = uuid4(), uuid4()
    assert OrmSweeps().lead(leader, 3600)
    waiting(1)
    assert len(statements_of(lambda: sweeper.recovery().sweep_if_leader(other))) == 1


def test_whatever_a_sweep_looks_at_calls_for_one() -> None:
    """Or it would be found by those only who sweep for another reason."""
    sweeps, holder = OrmSweeps(), uuid4()
    assert sweeps.lead(holder, -1)
    assert not sweeps.is_called_for(holder, PACE)
    with transaction.atomic():
        waiting(1)
        assert sweeps.is_called_for(holder, PACE)
        transaction.set_rollback(True)
    with transaction.atomic():
        died(weight=2)
        assert sweeps.is_called_for(holder, PACE)
        transaction.set_rollback(True)
    with transaction.atomic():
        waiting(1, status=Status.SCHEDULED, waiting_for=f"unit:{uuid4()}", wake_at=DbNow() + HOUR)
        assert sweeps.is_called_for(holder, PACE)
        transaction.set_rollback(True)
    assert not sweeps.is_called_for(holder, PACE)


def test_among_many_executions_a_sweep_goes_through_its_indexes() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("the plans of PostgreSQL")
    ids = waiting(3)
    fill(20_000)
    with CaptureQueriesContext(connection) as captured:
        assert [one.message.execution_id for one in OrmSweeps().unheld(PACE)] == ids
    due, expired = (explained(query["sql"]) for query in captured)
    assert "reactor_execution_due" in due
    assert "reactor_execution_expired" in expired
    assert "Seq Scan" not in due + expired
    assert OrmSweeps().lead(uuid4(), -1)
    (look,) = statements_of(lambda: OrmSweeps().is_called_for(uuid4(), PACE))
    assert "Seq Scan on django_reactor_execution" not in explained(look)


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        return "\n".join(line for (line,) in cursor.fetchall())


def fill(count: int) -> None:
    """Executions as a busy site has them: most have ended, some are held, some will be due."""
    pattern = waiting(1)[0]
    copied = [f.attname for f in Execution._meta.concrete_fields if f.attname not in MADE]
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {Execution._meta.db_table}
                (id, root_id, owner_id, status, wake_at, lease_token, lease_expires_at, {", ".join(copied)})
            SELECT made.id, made.id, made.id,
                CASE made.n %% 20 WHEN 0 THEN 'running' WHEN 1 THEN 'scheduled' ELSE 'completed' END,
                CASE made.n %% 20 WHEN 1 THEN now() + interval '1 hour' END,
                CASE made.n %% 20 WHEN 0 THEN gen_random_uuid() END,
                CASE made.n %% 20 WHEN 0 THEN now() + interval '1 hour' END,
                {", ".join(f"pattern.{column}" for column in copied)}
            FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, %s) AS n) AS made,
                {Execution._meta.db_table} AS pattern
            WHERE pattern.id = %s
            """,
            [count, pattern],
        )
        cursor.execute(f"DELETE FROM {Execution._meta.db_table} WHERE id = %s", [pattern])
        cursor.execute(f"ANALYZE {Execution._meta.db_table}")


MADE = {"id", "root_id", "owner_id", "status", "wake_at", "lease_token", "lease_expires_at"}
