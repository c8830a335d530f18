"""One process carrying one execution: its history and lease, and what its bodies are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django_reactor.core.decisions import Decision
from django_reactor.core.history import History, fold
from django_reactor.core.past import Standing
from django_reactor.core.plan import Definition
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Relation, Status
from django_reactor.engine.context import Context
from django_reactor.engine.gates import Gate
from django_reactor.engine.map_ports import MapRecord
from django_reactor.engine.ports import Codec
from django_reactor.engine.records import ExecutionRecord, Lease, Message
from django_reactor.engine.services import Services
from django_reactor.engine.tenure import Tenure
from django_reactor.exceptions import ReactorError

if TYPE_CHECKING:
    from django_reactor.engine.leaving import Leaving, Mark

__all__ = ["Blocked", "Results", "Run"]

SECRET = '"secret'
"""Begins the names of the tags that mark something as secret. Most texts have none, and need not be read for them."""
IMMUTABLE = frozenset({NoneType, bool, int, float, complex, str, bytes, Decimal, UUID, datetime, date, time, timedelta})


class Results(Mapping[str, Any]):
    """The results that stand, by stored name, decoded when asked for.

    A value that a reader could change is decoded anew each time: what one step does to it, another must not see, or
    a run would differ from the same run continued after a crash.
    """

    def __init__(self, history: History, codec: Codec) -> None:
        self._history, self._codec = history, codec
        self._immutable: dict[str, tuple[int, Any]] = {}

    def __getitem__(self, name: str) -> Any:
        return self.value(self._history.standing[name])

    def __iter__(self) -> Any:
        return iter(self._history.standing)

    def __len__(self) -> int:
        return len(self._history.standing)

    def __repr__(self) -> str:
        """Without values: some may not be shown."""
        return f"<Results of {', '.join(self) or 'no step'}>"

    def last(self, name: str) -> Any:
        """The value that stands, or that was undone last."""
        return self.value(self._history.last_result(name))  # KeyError: it never ran

    def value(self, result: Standing) -> Any:
        known = self._immutable.get(result.step)
        if known is not None and known[0] == result.seq:
            return known[1]
        value = None if result.value is None else self._codec.decode(result.value)
        self.keep(result.step, result.seq, value)
        return value

    def keep(self, name: str, seq: int, value: object) -> None:
        if type(value) in IMMUTABLE:
            self._immutable[name] = (seq, value)


@dataclass(slots=True)
class Blocked:
    """A part that cannot go on before something else happens, and what it waits for."""

    part: Run
    decision: Decision


@dataclass(slots=True)
class Run:
    """The owner of a lease, or a part of it. A part is advanced by the step of its `whole` that opened it."""

    services: Services
    definition: Definition
    record: ExecutionRecord
    history: History
    lease: Lease
    codec: Codec
    tenure: Tenure
    whole: Run | None = None
    fails_owner: bool = False
    """Whether nothing between a failure of this part and the failure of its owner can prevent that."""
    status: Status = Status.RUNNING
    parts: dict[str, Run] = field(default_factory=dict)
    """Those that this process knows, by step."""
    blocked: dict[str, Blocked] = field(default_factory=dict)
    """The parts that cannot go on at the moment, by step."""
    maps: dict[str, MapRecord] = field(default_factory=dict)
    """The rows of maps that go forward here, by step: nobody else changes them meanwhile."""
    elements: dict[str, int] = field(default_factory=dict)
    """How far maps have got whose elements run here: the index of the last one that ended, by step."""
    withdrawn: bool = False
    """Whether the elements of its maps were told that no other will begin."""
    ended_units: set[str] = field(default_factory=set)
    """Steps whose units are known to have ended."""
    surroundings: str | None = None
    """The inputs that `self` shows where they are not the execution's own: those of a unit's parent."""
    begins: bool = False
    """Whether this process takes it up first, and nobody was told yet."""
    ended: bool = False
    leaving: Leaving | None = None
    """What goes with its end, until that is committed."""
    closes: Sequence[Mark] = ()
    """The calendar buckets that the success of the step at work closes."""
    in_line: bool = False
    """Whether the step at work has a place in a line, which ends with it."""
    cancels_units: bool = False
    """Whether what is about to be committed cancels the units that nobody has begun."""
    let_go: Sequence[str] = ()
    """The lines whose next may go once the entry of that step is committed."""
    refused: ReactorError | None = None
    """Why it cannot have what it would need to undo anything more."""
    errors: dict[str, BaseException] = field(default_factory=dict)
    """The exceptions themselves, by step, while this process knows them."""
    redactor: Redactor = field(init=False)
    results: Results = field(init=False)
    _inputs: Mapping[str, Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._believe(self.record)
        self.redactor = self._new_redactor()
        self.learn(self.record.inputs)
        self.learn(self.surroundings)
        self._follow(self.history)

    def _new_redactor(self) -> Redactor:
        """A composed child shares its parent's. What an element learns is forgotten with it: there may be many."""
        if self.whole is None:
            return Redactor()
        is_element = self.record.relation is Relation.ELEMENT
        return self.whole.redactor.branch() if is_element else self.whole.redactor

    @property
    def id(self) -> UUID:
        return self.record.id

    @property
    def path(self) -> tuple[str, ...]:
        """The steps that lead from its owner to it."""
        return () if self.whole is None else (*self.whole.path, self.record.parent_name)

    @property
    def gate(self) -> Gate:
        return Gate(
            services=self.services,
            owner=self.lease.owner,
            epoch=self.lease.epoch,
            holdings=self.tenure.holdings,
            tell=self.notice,
        )

    @property
    def is_entered(self) -> bool:
        """Whether it holds what it needs to run user code; or will not get it any more, and has to end without."""
        holdings = self.tenure.holdings
        if self.definition.coordination and self.id not in holdings.entered:
            return self.unavailable is not None
        if not holdings or not holdings.lapsed(self.services.coordination.keeper.now()):
            return True
        return self.unavailable is not None

    @property
    def unavailable(self) -> ReactorError | None:
        """Of it, or of what it is a part of."""
        return self.refused or (None if self.whole is None else self.whole.unavailable)

    @property
    def owner(self) -> Run:
        return self if self.whole is None else self.whole.owner

    @property
    def blocked_parts(self) -> Sequence[Blocked]:
        """Without the maps whose elements are at work elsewhere: those block a step of the run itself."""
        return [blocked for blocked in self.blocked.values() if blocked.part is not self]

    @property
    def is_withdrawn(self) -> bool:
        """It, or what it is a part of."""
        return self.withdrawn or (self.whole is not None and self.whole.is_withdrawn)

    def unblock(self) -> None:
        """Let every part look again whether it can go on."""
        for blocked in self.blocked_parts:
            blocked.part.unblock()
        self.blocked.clear()

    def reload(self) -> None:
        """Forget what is in memory and believe the store."""
        self.ended = False
        self.leaving, self.cancels_units = None, False
        self.tenure.released = self.tenure.paused = None
        record, entries = self.services.journal.load(self.id)
        self._believe(record)
        self.parts.clear()
        self.blocked.clear()
        self.elements.clear()
        self.maps.clear()
        self._follow(fold(self.definition.plan, entries))

    def _believe(self, record: ExecutionRecord) -> None:
        self.record = record
        self.status = record.status
        if self.whole is None:
            self.tenure.stop, self.tenure.stop_reason = record.stop, record.stop_reason
            self.tenure.snoozes, self.tenure.contentions = record.snoozes, record.contentions

    def _follow(self, history: History) -> None:
        self.history = history
        self.results = Results(history, self.codec)
        for result in history.standing.values():
            self.learn(result.arguments)
            self.learn(result.value)

    def learn(self, text: str | None) -> None:
        """Take up the secrets that a stored text marks as such: later texts may quote them."""
        if text is not None and SECRET in text:
            self.redactor.add(self.codec.secrets(text))

    def inputs(self) -> Mapping[str, Any]:
        """For one body. Shared between bodies only if nothing in it can be changed."""
        if self._inputs is not None:
            return self._inputs
        inputs = self.codec.decode_arguments(self.record.inputs)
        if self.record.inputs.count("{") == 1 and "[" not in self.record.inputs:  # scalars only
            self._inputs = inputs
        return inputs

    def shown(self) -> Mapping[str, Any]:
        """What `self` shows to one body."""
        return self.inputs() if self.surroundings is None else self.codec.decode_arguments(self.surroundings)

    def idempotency_key(self, step: str, run_number: int) -> str:
        """(PROTOCOL 7, 3.) The same over crashes, attempts and hand-offs; another one after an undo."""
        return f"{self.id}:{step}:{run_number}"

    def context(self, step: str, attempt: int, key: str, run_key: str | None = None) -> Context:
        return Context(
            execution_id=self.id,
            root_id=self.record.root_id,
            step=step,
            attempt=attempt,
            snoozes=self.tenure.snoozes,
            idempotency_key=key,
            run_key=run_key or key,
            in_worker=self.tenure.in_worker,
            tags=tuple(self.record.tags),
            results=self.results,
            holdings=self.tenure.holdings,
        )

    def notice(self, event: str, **details: Any) -> None:
        self.services.observer.notice(event, self.definition.cls, self.id, **details)

    def send_again(self, delay: float) -> None:
        """A message for its next delivery, due in so many seconds."""
        record = self.record
        self.services.messenger.send(
            Message(execution_id=self.id, queue_name=record.queue_name, priority=record.priority, delay=delay)
        )
