"""An interruption that strikes while a lock, or the lease, is taken or given back: the process keeps nothing alive that
nobody holds, or that would be held as long as the process lives."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from django_reactor import Lock, Reactor, Success, step
from django_reactor.coordination.database.holds import DatabaseHolds
from django_reactor.core.statuses import Status
from django_reactor.engine.leases import LeaseKeeper
from django_reactor.models import Execution
from django_reactor.runtime import services
from django_reactor.signals import execution_started, lock_acquired
from tests.crash.processes import only_execution
from tests.crash.reactors import leave


class Careful(Reactor[Any]):
    class Meta:
        app_label = "interrupted_holds"
        returns = "rest"
        lock = Lock("all of it", ttl=60)

    @step(lock=Lock("this", ttl=60))
    def work(self) -> None:
        leave("work")

    @step
    def rest(self, work: None) -> str:
        return "done"


class Interrupting:
    """Interrupts the call of this number, before or after it is carried out, and no other."""

    def __init__(self, number: int, *, is_carried_out: bool) -> None:
        self.number, self.is_carried_out, self.called = number, is_carried_out, 0

    def over(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*arguments: Any) -> Any:
            self.called += 1
            if self.called != self.number:
                return method(*arguments)
            if self.is_carried_out:
                method(*arguments)
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize(("verb", "number"), [("take", 1), ("take", 2), ("release", 1), ("release", 2)])
def test_an_interrupted_process_keeps_no_lock_alive_and_a_retry_goes_on(
    verb: str, number: int, is_carried_out: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupting = Interrupting(number, is_carried_out=is_carried_out)
        patch.setattr(DatabaseHolds, verb, interrupting.over(getattr(DatabaseHolds, verb)))
        with pytest.raises(KeyboardInterrupt):
            Careful.run()
    gc.collect()
    assert services().coordination.keeper.due_in() is None
    execution = Execution.objects.first()
    if execution is None:
        assert (verb, number) == ("take", 1), "it is stored together with its lock"
        return
    assert execution.status == Status.ABORTED
    assert execution.retry() == Success("done", execution_id=execution.pk)


def test_an_interrupted_process_renews_no_lease_that_nobody_has() -> None:
    """As the lease is let go, for which an end and an interruption are alike."""
    with pytest.MonkeyPatch.context() as patch:
        interrupting = Interrupting(1, is_carried_out=False)
        patch.setattr(LeaseKeeper, "let_go", interrupting.over(LeaseKeeper.let_go))
        with pytest.raises(KeyboardInterrupt):
            Careful.run()
    gc.collect()
    assert services().leases._pause() is None


def test_a_receiver_that_is_interrupted_leaves_no_execution_running() -> None:
    """Between its start and its first step there is user code, too."""

    def interrupted(**details: Any) -> None:
        raise KeyboardInterrupt

    for signal in (lock_acquired, execution_started):
        signal.connect(interrupted)
        try:
            with pytest.raises(KeyboardInterrupt):
                Careful.run()
        finally:
            signal.disconnect(interrupted)
        execution = only_execution()
        assert execution.status == Status.ABORTED
        assert execution.retry() == Success("done", execution_id=execution.pk)
        execution.delete()
