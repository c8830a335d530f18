"""What users derive from and call: `Reactor` and `Step`. What is done with an execution by its id is in `actions`.

Everything here may be called with or without a transaction open. Models are imported when they are needed, so that
this module can be imported before Django is set up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

from django_reactor.actions import resume_correlated
from django_reactor.calls import Call
from django_reactor.core.options import Duration
from django_reactor.core.plan import StepDefinition
from django_reactor.core.reactor import ReactorBase, definition_of
from django_reactor.core.statuses import Relation
from django_reactor.core.step import StepBase
from django_reactor.engine.direct import call_step
from django_reactor.results import Result
from django_reactor.runtime import services
from django_reactor.threads import in_thread

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_reactor.models import Execution

__all__ = ["Reactor", "Step"]

T = TypeVar("T", default=Any)


class _Executions:
    """`Reactor.executions`: the query set of its executions, composed children and elements of maps too. Those of its
    `async_step`s are children of them, and are not in it."""

    def __get__(self, run: object, owner: type[Reactor[Any]]) -> QuerySet[Execution, Execution]:
        from django_reactor.models import Execution

        return Execution.objects.filter(reactor=definition_of(owner).label).exclude(relation=Relation.ASYNC_STEP)


class Reactor(ReactorBase[T]):
    """A business transaction: typed inputs as annotations, and steps that depend on each other.

    `Reactor[Order]` says that its result is an `Order`. Steps run in dependency order, one at a time; each outcome is
    committed before the next step starts; when one fails for good, what was done is undone, newest first. After a crash
    at most the step in flight runs again.

    A wrong declaration raises `DefinitionError` when the class is made. There are no instances: `self` in a step is a
    fresh, read-only view of the execution for each call. Its class methods may be called from any thread.
    """

    class Meta:
        abstract = True

    executions = _Executions()

    def clean(self) -> None:
        """Check the inputs together, in the caller's process: raise Django's `ValidationError`. The inputs are
        attributes, validated already; `context` is None, as nothing runs yet."""

    @classmethod
    def run(cls, /, **inputs: Any) -> Result[T]:
        """Validate the inputs and run here until it ends, hands off or pauses. Invalid inputs, and such as cannot be
        stored, give a `Failure` and store nothing. What steps raise is in the `Failure`, and not raised.

        Inside a transaction of the caller everything takes part in it: if it is rolled back, no trace is left, but
        what steps did outside the database remains. Interruptions (KeyboardInterrupt, SystemExit, MemoryError) mark
        the execution `aborted` and go on; database errors of the journal itself are raised.

        Blocks for as long as the steps take, for the delays of retries, for units that are read (up to `READ_TIMEOUT`)
        and for what coordination waits. Raises `ContentionError` for what it cannot have, and stores nothing then;
        `ArgumentError` for a key that cannot be made; `ConfigurationError` for an abstract reactor.
        """
        return Call(cls).run(**inputs)

    @classmethod
    async def arun(cls, /, **inputs: Any) -> Result[T]:
        """`run` in Django's thread for synchronous code. A cancelled `await` doesn't stop the execution."""
        return await Call(cls).arun(**inputs)

    @classmethod
    def enqueue(cls, /, **inputs: Any) -> Result[T]:
        """Validate here (raises `InputError`), store it, and run it wholly in a worker, once the transaction that is
        open now is committed. Returns `Dispatched`; with an idempotency key that is taken, the result of the execution
        that has it. Locks and limits are asked for in the worker; an ordered lock's number is drawn here."""
        return Call(cls).enqueue(**inputs)

    @classmethod
    async def aenqueue(cls, /, **inputs: Any) -> Result[T]:
        """`enqueue` for coroutines, as `arun`."""
        return await Call(cls).aenqueue(**inputs)

    @classmethod
    def using(
        cls,
        *,
        idempotency_key: str | None = None,
        tags: Sequence[str] = (),
        queue_name: str | None = None,
        priority: int | None = None,
        run_after: Duration | datetime | None = None,
    ) -> Call[T]:
        """Options of one call: `PlaceOrder.using(idempotency_key="order-17").run(…)`.

        The same key (1 to 255 characters) runs once per reactor: later calls get the first execution's result as it
        stands then, and run nothing. `tags` are texts by which the admin finds it. `queue_name` and `priority` say
        where and how soon it is delivered, in place of those in `Meta`. `run_after` delays an `enqueue`: seconds, a
        timedelta, or an aware datetime. `InputError` for what cannot be meant.
        """
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise TypeError(f"tags is a sequence of strings, such as ['web']; got {tags!r}")
        return Call(cls, idempotency_key, tuple(tags), queue_name, priority, run_after)

    @classmethod
    def resume(cls, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
        """Answer the open interrupt of this reactor that has this correlation id; `step` names it where several have.

        As `Execution.resume`, for those who know no id of an execution: `ExecutionNotFound` if there never was one.
        The result is that of the root, which is another reactor's where this one is composed.
        """
        return resume_correlated(cls, payload, correlation_id, step)

    @classmethod
    async def aresume(cls, payload: Any, correlation_id: str, step: str | None = None) -> Result[Any]:
        """`resume` for coroutines, as `arun`."""
        return await in_thread(cls.resume, payload, correlation_id, step)


class Step(StepBase[T]):
    """A step as a class: its contract as annotations, `run`, and where needed `undo` and `compensate`.

    `Step[Receipt]` says that its result is a `Receipt`, and has it validated. The contract is checked before `run`,
    which is not called otherwise. `self` is made anew for each call and is read-only: nothing that `run` sets is seen
    by `undo`. The methods may be `async def`. A reactor runs it by `step(ChargeCard)`.
    """

    class Meta:
        abstract = True

    @classmethod
    def call(cls, /, **inputs: Any) -> Result[T]:
        """Run it here, once, outside of any execution: contract and result type apply, retries do not, and nothing
        is journaled.

        Returns a `Success`, `Skipped`, `Halt` or `Failure`; invalid arguments and a snooze are a `Failure`. Inside a
        transaction of the caller the body runs in a savepoint, and a failure rolls back to it. It coordinates as an
        execution of its own: raises `ContentionError` for what it cannot have.
        """
        definition: StepDefinition = cls.__step__
        return call_step(services(), definition, inputs)

    @classmethod
    async def acall(cls, /, **inputs: Any) -> Result[T]:
        """`call` in Django's thread for synchronous code."""
        return await in_thread(cls.call, **inputs)
