"""What users derive from and call: `Reactor` and `Step`. What is done with an execution by its id is in `actions`.

Everything here may be called with or without a transaction open. Models are imported when they are needed, so that
this module can be imported before Django is set up.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """`Reactor.executions`: the query set of its executions. Those of its `async_step`s are children of them."""

    def __get__(self, run: object, owner: type[Reactor[Any]]) -> QuerySet[Execution, Execution]:
        from django_reactor.models import Execution

        return Execution.objects.filter(reactor=definition_of(owner).label).exclude(relation=Relation.ASYNC_STEP)


class Reactor(ReactorBase[T]):
    """A business transaction: typed inputs as annotations, and steps that depend on each other.

    `Reactor[Order]` says that its result is an `Order`. Steps run in dependency order; each outcome is committed
    before the next step starts; when one fails for good, what was done is undone, newest first.
    """

    class Meta:
        abstract = True

    executions = _Executions()

    def clean(self) -> None:
        """Check the inputs together, in the caller's process: raise Django's `ValidationError`. The inputs are
        attributes, validated already; `context` is None, as nothing runs yet."""

    @classmethod
    def run(cls, **inputs: Any) -> Result[T]:
        """Validate the inputs and run here until it ends. Invalid inputs give a `Failure` and store nothing.

        Inside a transaction of the caller everything takes part in it: if it is rolled back, no trace is left, but
        what steps did outside the database remains. Interruptions (KeyboardInterrupt, SystemExit, MemoryError) mark
        the execution `aborted` and go on; database errors of the journal itself are raised.
        """
        return Call(cls).run(**inputs)

    @classmethod
    async def arun(cls, **inputs: Any) -> Result[T]:
        """`run` in a thread of its own. A cancelled `await` doesn't stop the execution."""
        return await Call(cls).arun(**inputs)

    @classmethod
    def enqueue(cls, **inputs: Any) -> Result[T]:
        """Validate here (raises `InputError`), store it, and run it wholly in a worker, once the transaction that is
        open now is committed. Returns `Dispatched`."""
        return Call(cls).enqueue(**inputs)

    @classmethod
    async def aenqueue(cls, **inputs: Any) -> Result[T]:
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

        The same key runs once per reactor: later calls get the first execution's result as it stands then.
        `run_after` delays an `enqueue`: seconds, a timedelta, or an aware datetime.
        """
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
        return await in_thread(cls.resume, payload, correlation_id, step)


class Step(StepBase[T]):
    """A step as a class: its contract as annotations, `run`, and where needed `undo` and `compensate`."""

    class Meta:
        abstract = True

    @classmethod
    def call(cls, **inputs: Any) -> Result[T]:
        """Run it here, once, outside of any execution: contract and result type apply, retries do not, and nothing
        is journaled."""
        definition: StepDefinition = cls.__step__
        return call_step(services(), definition, inputs)

    @classmethod
    async def acall(cls, **inputs: Any) -> Result[T]:
        return await in_thread(cls.call, **inputs)
