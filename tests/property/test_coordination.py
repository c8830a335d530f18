"""Random executions that share locks, slots, limits and a period; started, delivered, killed, cancelled in any order.
Whoever runs a body holds what it declares, nobody else does, and in the end nothing is held; in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_reactor import (
    Background,
    Lock,
    Period,
    RateLimit,
    Reactor,
    Retry,
    Semaphore,
    compose,
    fail,
    interrupt,
    snooze,
    step,
)
from django_reactor.core.statuses import ENDS, Status
from django_reactor.engine import acting, crash_points, resuming
from django_reactor.engine.coordination_ports import HoldKind
from django_reactor.engine.services import Limits
from django_reactor.exceptions import ContentionError, InvalidTransition, ReactorError
from tests.coordination_support import Rivals
from tests.engine_support import LEASE_TTL

MINUTE = 60
SLOTS = 2


class Dies(BaseException):
    """The process: nothing more happens in it."""


class Scene:
    """A bench, and what its bodies have seen."""

    def __init__(self, acts: list[str]) -> None:
        self.acts = acts
        self.fleet = Rivals(self._reactor())
        self.fleet.others = (self.fleet.reactor,)
        self.fleet.limits = Limits(snooze_jitter=0, max_snoozes=5)
        self.starts: Counter[int] = Counter()
        self.bodies = 0
        self.died = False

    def _reactor(self) -> type[Reactor[Any]]:
        scene = self

        class Child(Reactor[Any]):
            class Meta:
                lock = Lock("outer", ttl=90)
                semaphore = Semaphore("child", limit=1)

            @step
            def inside(self) -> None:
                scene.body(self.context.root_id, lock=("outer",), semaphore=("slots", "child"))

            @inside.undo
            def undo_inside(self) -> None:
                scene.body(self.context.root_id, lock=("outer",), semaphore=("slots", "child"))

        class Shared(Reactor[Any]):
            class Meta:
                lock = Lock("outer", ttl=90)
                semaphore = Semaphore("slots", limit=SLOTS, ttl=90)
                rate_limit = RateLimit("starts", limits={"minute": 2})
                period = Period("once", every="minute")
                background = Background(after="first")

            @step
            def first(self) -> None:
                scene.body(self.context.root_id, lock=("outer",), semaphore=("slots",))

            @first.undo
            def undo_first(self) -> None:
                scene.body(self.context.root_id, lock=("outer",), semaphore=("slots",))

            @step(lock=Lock("inner", ttl=90), after=["first"], retry=Retry(max_attempts=2, delay=3, jitter=0))
            def second(self) -> None:
                scene.body(self.context.root_id, lock=("outer", "inner"), semaphore=("slots",))
                scene.act()

            @second.undo
            def undo_second(self) -> None:
                scene.body(self.context.root_id, lock=("outer", "inner"), semaphore=("slots",))

            @compose(Child)
            def child(self, second: None) -> Any:
                return {}

            @interrupt
            def asked(self, child: Any) -> None: ...

            @step(after=["asked"])
            def last(self) -> None:
                scene.body(self.context.root_id, lock=("outer",), semaphore=("slots",))
                scene.act()

        return Shared

    def act(self) -> None:
        match self.acts.pop() if self.acts else "succeed":
            case "fail":
                fail("no", retry=False)
            case "raise":
                raise RuntimeError
            case "snooze":
                snooze(7)
            case "linger":
                self.fleet.clock.advance(100)  # longer than any ttl; nothing keeps it alive here

    def body(self, owner: UUID, lock: tuple[str, ...], semaphore: tuple[str, ...]) -> None:
        self.bodies += 1
        holds = self.fleet.stores.holds
        for key in lock:
            assert [holder.owner for holder in holds.holders(HoldKind.LOCK, key)] == [owner]
        for key in semaphore:
            held = [holder.owner for holder in holds.holders(HoldKind.SEMAPHORE, key)]
            assert owner in held
            assert len(held) == len(set(held)) <= SLOTS

    def held(self) -> list[str]:
        locks, semaphores = ("outer", "inner"), ("slots", "child")
        found = [(HoldKind.LOCK, key) for key in locks] + [(HoldKind.SEMAPHORE, key) for key in semaphores]
        return [key for kind, key in found if self.fleet.stores.holds.holders(kind, key)]

    # -- what happens --------------------------------------------------------------------------------------------------

    def do(self, deed: str, which: int, dies_at: int | None) -> None:
        """A deed of a process, which may die at one of the crash points that it comes to."""
        passed = 0

        def trap(point: crash_points.CrashPoint) -> bool:
            nonlocal passed
            passed += 1
            if passed == dies_at:
                self.died = True
                raise Dies
            return False

        crash_points.watch(trap)
        try:
            with suppress(Dies, ContentionError, InvalidTransition):
                self._do(deed, which)
        finally:
            crash_points.watch(None)

    def _do(self, deed: str, which: int) -> None:
        fleet = self.fleet
        rows = list(fleet.store.rows.values())
        roots = [row.record for row in rows if row.record.id == row.record.root_id]
        if deed == "start":
            fleet.start()
        elif deed == "enqueue":
            fleet.enqueue()
        elif deed == "wait":
            fleet.clock.advance((1, 30, LEASE_TTL + 1, 200)[which % 4])
        elif roots:
            self._act_on(roots[which % len(roots)].id, deed)

    def _act_on(self, execution_id: UUID, deed: str) -> None:
        services, definition = self.fleet.services, self.fleet.definition
        verbs: dict[str, Callable[[], Any]] = {
            "deliver": lambda: self.fleet.deliver_to(execution_id),
            "cancel": lambda: acting.cancel(services, definition, execution_id, ""),
            "undo": lambda: acting.undo(services, definition, execution_id, ""),
            "retry": lambda: acting.retry(services, definition, execution_id),
            "answer": lambda: resuming.resume(services, self.fleet._known, execution_id, "yes", None),
        }
        with suppress(ReactorError):
            verbs[deed]()

    def settle(self) -> None:
        """Workers and time enough for all; every question is answered."""
        for _ in range(60):
            open_ones = [
                row.record
                for row in self.fleet.store.rows.values()
                if row.record.id == row.record.root_id and row.record.status not in ENDS
            ]
            if not open_ones:
                return
            for record in open_ones:
                self.do("wait", 2, None)
                row = self.fleet.store.rows[record.id].record
                self._act_on(record.id, "answer" if row.status is Status.PAUSED else "deliver")
        raise AssertionError([(record.id, record.status, record.snooze_reason) for record in open_ones])


DEEDS = st.sampled_from(
    ["start", "start", "enqueue", "deliver", "deliver", "deliver", "wait", "cancel", "undo", "retry", "answer"]
)
ACTS = st.sampled_from(["succeed", "succeed", "fail", "raise", "snooze", "linger"])


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(ACTS, max_size=8),
    deeds=st.lists(
        st.tuples(DEEDS, st.integers(0, 7), st.one_of(st.none(), st.none(), st.integers(1, 12))),
        min_size=3,
        max_size=18,
    ),
)
def test_bodies_run_with_what_they_declare_and_in_the_end_nothing_is_held(
    acts: list[str], deeds: list[tuple[str, int, int | None]]
) -> None:
    scene = Scene(acts)
    for deed, which, dies_at in deeds:
        scene.do(deed, which, dies_at)
    scene.acts.clear()
    scene.settle()
    if not scene.died:  # whoever dies may leave what it held, until the ttl is over
        assert scene.held() == []
    scene.fleet.clock.advance(90)
    assert scene.held() == []
    successes = Counter(
        entry.value
        for row in scene.fleet.store.rows.values()
        if row.record.status is Status.COMPLETED
        for entry in scene.fleet.store.entries[row.record.id]
        if entry.action == "admit" and entry.outcome == "success"
    )
    assert all(count <= 2 for count in successes.values())  # no more than were let in by the rate limit
