"""What an execution asks of coordination: each key, who has it, what the execution waits for, and how long.

A key that cannot be made any more, and a store that does not answer, are said to be so: the page is shown all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_reactor.admin.levels import Level, levels_of
from django_reactor.admin.live import LIVE, Linked, Live
from django_reactor.admin.rendering import Shown, duration, shown_text
from django_reactor.admin.sight import Sight
from django_reactor.core.keys import digest_of
from django_reactor.core.options import Coordination
from django_reactor.core.plan import Definition
from django_reactor.core.redaction import Redactor
from django_reactor.core.statuses import Status
from django_reactor.engine.coordination_ports import (
    Holder,
    HoldKind,
    TicketState,
    Wanted,
)
from django_reactor.engine.demands import Demands, Limited, Ordered, Periodic, demands_of
from django_reactor.engine.lines import waiting_for_turn
from django_reactor.exceptions import ReactorError
from django_reactor.models import Execution
from django_reactor.runtime import services

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

__all__ = ["Panel", "panel_of"]

KINDS: Mapping[str, StrOrPromise] = {
    "ordered_lock": _("ordered lock"),
    "period": _("period"),
    "rate_limit": _("rate limit"),
    "lock": _("lock"),
    "semaphore": _("semaphore"),
}
"""In the order in which they are asked."""
PLACES: Mapping[TicketState, StrOrPromise] = {
    TicketState.QUEUED: _("its turn has come"),
    TicketState.RUNNING: _("it is its turn"),
    TicketState.DONE: _("done"),
    TicketState.FAILED: _("failed"),
    TicketState.PASSED: _("others were let pass"),
}
MOST_HOLDERS: Final = 10
"""Of one semaphore that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A line about a key. `execution` stands between the two texts."""

    before: str
    execution: Linked | None = None
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKey:
    """`step` is '' for the whole execution. `is_awaited`: that is what it waits for."""

    step: str
    kind: str
    key: Shown
    facts: Sequence[Fact]
    is_awaited: bool = False
    is_broken: bool = False
    """It cannot be made any more, or its store does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """`waits` says what for, how often it has tried and when it tries again; '' if it waits for nothing of the kind."""

    waits: str
    keys: Sequence[ShownKey]


def panel_of(execution: Execution, definition: Definition | None, redactor: Redactor, sight: Sight) -> Panel | None:
    """None where nothing is declared."""
    levels = [] if definition is None else levels_of(execution, definition)
    if definition is None or not levels:
        return None
    asked = [each for level in levels for each in _asked(definition.label, level)]
    live = Live.of(execution, [each.demands for each in asked if each.demands is not None], sight)
    page = _Writer(execution, redactor, live)
    return Panel(waits=page.waits(), keys=[page.key(each) for each in asked])


# -- what is asked -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One declaration. `demands` holds it alone; None if its key cannot be made."""

    step: str
    kind: str
    demands: Demands | None
    problem: str = ""


def _asked(label: str, level: Level) -> Iterator[_Asked]:
    named = services().coordination.named_limits
    where = f"{label}.{level.step or 'Meta'}"
    for kind in KINDS:
        for declared in getattr(level.coordination, kind):
            alone: Any = {kind: (declared,)}
            try:
                demands = demands_of(Coordination(**alone), level.values, where, named)
            except ReactorError as error:
                yield _Asked(step=level.step, kind=kind, demands=None, problem=str(error))
            else:
                yield _Asked(step=level.step, kind=kind, demands=demands)


# -- how it is said ----------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, execution: Execution, redactor: Redactor, live: Live) -> None:
        self._execution, self._redactor, self._live = execution, redactor, live
        self._now = timezone.now()
        self._waits = execution.status == Status.SCHEDULED
        self._contended = execution.snooze_reason if self._waits and execution.contentions else ""

    def waits(self) -> str:
        execution = self._execution
        if self._contended:
            tries = ngettext("It has tried once", "It has tried %(count)d times", execution.contentions)
            return gettext("Waits: %(reason)s. %(tries)s, and tries again %(when)s.") % {
                "reason": self._redactor.scrub(self._contended),
                "tries": tries % {"count": execution.contentions} if execution.contentions != 1 else tries,
                "when": self._in(execution.wake_at),
            }
        if self._waits and execution.waiting_for.startswith("turn:"):
            so_far = duration(execution.updated_at, self._now)
            return gettext("Waits for its turn, for %(time)s so far.") % {"time": so_far}
        return ""

    def key(self, asked: _Asked) -> ShownKey:
        kind = str(KINDS[asked.kind])
        if asked.demands is None:
            return self._shown(asked, kind, "", [self._scrubbed(asked.problem)], is_broken=True)
        of_holds = [(hold.wanted.key, hold.wanted, self._held) for hold in asked.demands.holds]
        of_limits = [(limit.key, limit, self._limited) for limit in asked.demands.limits]
        of_periods = [(each.key, each, self._once) for each in asked.demands.periods]
        of_orders = [(each.key, (each, asked.step), self._in_line) for each in asked.demands.orders]
        found: list[tuple[str, Any, Callable[[Any], Iterator[Fact]]]]
        found = [*of_holds, *of_limits, *of_periods, *of_orders]
        ((key, what, facts),) = found
        if self._live.silent and (of_holds or of_limits):
            return self._shown(asked, kind, key, [self._scrubbed(self._live.silent)], is_broken=True)
        return self._shown(asked, kind, key, facts(what))

    def _shown(
        self, asked: _Asked, kind: str, key: str, facts: Sequence[Fact] | Iterator[Fact], *, is_broken: bool = False
    ) -> ShownKey:
        return ShownKey(
            step=asked.step,
            kind=kind,
            key=shown_text(key, self._redactor) if key else Shown(gettext("[cannot be made any more]")),
            facts=list(facts),
            is_awaited=bool(key) and self._is_awaited(asked.kind, key),
            is_broken=is_broken,
        )

    def _is_awaited(self, kind: str, key: str) -> bool:
        if kind == "ordered_lock":
            return self._waits and self._execution.waiting_for == waiting_for_turn(key)
        text = self._redactor.scrub(f"{kind.replace('_', ' ')} {key!r}")
        return self._contended.startswith((f"{text} ", f"{text}:"))

    def _scrubbed(self, text: str) -> Fact:
        return Fact(before=self._redactor.scrub(text))

    def _in(self, moment: datetime | None) -> str:
        if moment is None or moment <= self._now:
            return gettext("now")
        return gettext("in %(time)s") % {"time": duration(self._now, moment)}

    # -- of each kind --------------------------------------------------------------------------------------------------

    def _held(self, wanted: Wanted) -> Iterator[Fact]:
        holders = [each for each in self._live.holders if (each.kind, each.key) == (wanted.kind, wanted.key)]
        if wanted.kind is HoldKind.SEMAPHORE:
            taken = gettext("%(taken)d of %(limit)d slots are taken")
            yield Fact(before=taken % {"taken": len(holders), "limit": wanted.limit})
        elif not holders:
            yield Fact(before=gettext("free"))
        for holder in holders[:MOST_HOLDERS]:
            yield self._by(holder)
        if len(holders) > MOST_HOLDERS:
            yield Fact(before="…")

    def _by(self, holder: Holder) -> Fact:
        left = gettext("for another %(time)s unless extended") % {"time": duration(self._now, holder.expires_at)}
        if holder.owner == self._execution.pk:
            return Fact(before=gettext("held by this execution,"), after=left)
        if holder.owner in self._live.hidden:
            return Fact(before=gettext("held by another execution,"), after=left)
        linked = self._live.linked.get(holder.owner)
        if linked is None:
            by = gettext("held by %(owner)s, which is no stored execution (a step that is called directly),")
            return Fact(before=by % {"owner": holder.owner}, after=left)
        mine = holder.owner == self._execution.owner_id
        before = gettext("held by the execution that this is a part of,") if mine else gettext("held by")
        return Fact(before=before, execution=linked, after=left)

    def _limited(self, limit: Limited) -> Iterator[Fact]:
        counted = {each.seconds: each for each in self._live.counted if each.key == limit.key}
        for window in limit.windows:
            found = counted.get(window.seconds)
            figures = {"count": found.count if found else 0, "limit": window.limit, "window": window.name}
            used = gettext("%(count)d of %(limit)d starts in this %(window)s") % figures
            rolls = gettext("which rolls %(when)s") % {"when": self._in(found.rolls_at)} if found else ""
            yield Fact(before=f"{used}, {rolls}" if rolls else used)

    def _once(self, period: Periodic) -> Iterator[Fact]:
        current = self._live.buckets[period]
        marks = [mark for mark in self._live.marks if mark.key_digest == digest_of(period.key)]
        over = gettext("it is over %(when)s") % {"when": self._in(current.until)}
        others = [mark for mark in marks if mark.bucket == current.bucket and mark.execution_id != self._execution.pk]
        for mark in marks:
            if mark.execution_id == self._execution.pk:
                yield Fact(before=gettext("this execution has marked %(bucket)s") % {"bucket": mark.bucket})
        for mark in others[:1]:
            marked = gettext("%(bucket)s is marked by") % {"bucket": mark.bucket}
            yield self._named(marked, mark.execution_id, over)
        if not others and not any(mark.bucket == current.bucket for mark in marks):
            yield Fact(before=gettext("%(bucket)s is not marked;") % {"bucket": current.bucket}, after=over)

    def _in_line(self, order: tuple[Ordered, str]) -> Iterator[Fact]:
        ordered, step = order
        of_key = (each for each in self._live.tickets if each.digest == digest_of(ordered.key))
        tickets = [each for each in of_key if each.step == step]
        if not tickets:
            yield Fact(before=gettext("no number is drawn"))
            return
        ticket = tickets[-1]
        number = gettext("number %(number)d") % {"number": ticket.number}
        yield Fact(before=f"{number}: {self._place(ticket)}")
        if ticket.state in LIVE and ticket.head is not None:
            since = gettext("at the head for %(time)s") % {"time": duration(ticket.at_the_head_since, self._now)}
            head = gettext("number %(number)d is the first:") % {"number": ticket.head_number}
            yield self._named(head, ticket.head, since if ticket.at_the_head_since else "")

    def _named(self, before: str, execution: UUID, after: str) -> Fact:
        """One that was deleted has its id left; one that may not be seen has nothing."""
        if execution in self._live.hidden:
            return Fact(before=f"{before} {gettext('another execution')}", after=after)
        linked = self._live.linked.get(execution)
        return Fact(before=before if linked else f"{before} {execution}", execution=linked, after=after)

    def _place(self, ticket: Any) -> str:
        if ticket.state == TicketState.QUEUED and ticket.before:
            before = ngettext("%(count)d is before it", "%(count)d are before it", ticket.before)
            return before % {"count": ticket.before}
        return str(PLACES[TicketState(ticket.state)])
