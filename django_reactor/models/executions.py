"""The rows of executions, with what can be done with one, and the entries of their journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_reactor.core.naming import MAX_LENGTH
from django_reactor.core.statuses import Action, EntryOutcome, Relation, Status, Stop
from django_reactor.journal.fields import ExactCharField, JSONTextField, PartialIndex
from django_reactor.models.choices import choices
from django_reactor.threads import in_thread

if TYPE_CHECKING:
    from django_reactor.results import Result

__all__ = ["NO_ELEMENT", "Execution", "JournalEntry"]

NO_ELEMENT = -1
"""`element_index` of what is no element of a map: a NULL would never collide in the unique constraint."""


class Execution(models.Model):
    """One run of anything: a root, a composed child, an element of a map, a unit.

    The methods run in the calling process and in its transaction, if one is open. Each looks at the row as it is now,
    and leaves this instance as it was read: call `refresh_from_db()` to see what has become of it. They raise
    `ExecutionNotFound` if there is no such row any more. Those that act raise `ConfigurationError` if its reactor is
    not known here; `undo`, `cancel` and `retry` raise `InvalidTransition` for a composed child or an element, whose
    root is to be asked. `acancel` and its like do the same in Django's thread for synchronous code.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    reactor = ExactCharField(max_length=MAX_LENGTH)
    fingerprint = models.CharField(max_length=16)
    relation = models.CharField(max_length=16, choices=choices(Relation), default=Relation.ROOT)
    parent = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="children", db_constraint=False, db_index=False
    )
    root = models.ForeignKey("self", models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    owner = models.ForeignKey("self", models.CASCADE, related_name="+", db_constraint=False, db_index=False)
    parent_step = ExactCharField(max_length=MAX_LENGTH, default="")
    element_index = models.IntegerField(default=NO_ELEMENT)
    parent_generation = models.IntegerField(default=0)
    status = models.CharField(max_length=16, choices=choices(Status))
    inputs = models.TextField()
    output = models.TextField(null=True)
    failure = JSONTextField(null=True)
    rollback_failures = models.IntegerField(default=0)
    idempotency_key = ExactCharField(max_length=255, null=True)
    tags = JSONTextField(default=list)
    carried = JSONTextField(default=dict)
    queue_name = models.CharField(max_length=100)
    priority = models.IntegerField(null=True)
    generation = models.IntegerField(default=0)
    wake_at = models.DateTimeField(null=True)
    waiting_for = models.CharField(max_length=255, default="")
    snoozes = models.IntegerField(default=0)
    snooze_reason = models.TextField(default="")
    contentions = models.IntegerField(default=0)
    """How often in a row it was put off since others had what it needs."""
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    epoch = models.IntegerField(default=0)
    stop = models.CharField(max_length=8, default=Stop.NONE)
    stop_reason = models.TextField(default="")
    recoveries = models.IntegerField(default=0)
    progress = models.IntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    sends = models.IntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("execution")
        verbose_name_plural = _("executions")
        permissions = [
            ("undo_execution", "Can undo an execution"),
            ("cancel_execution", "Can cancel an execution"),
            ("retry_execution", "Can retry an execution"),
            ("resume_execution", "Can answer an interrupt of an execution"),
        ]
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["reactor", "idempotency_key"], name="reactor_idempotency_key"),
            models.UniqueConstraint(
                fields=["parent", "parent_step", "element_index", "parent_generation"], name="reactor_one_child"
            ),
        ]
        # An execution that runs through is never in `due` and `list`.
        indexes = [
            PartialIndex(fields=["status", "wake_at"], name="reactor_execution_due", where=Q(wake_at__isnull=False)),
            PartialIndex(
                fields=["lease_expires_at"],
                name="reactor_execution_expired",
                where=Q(lease_expires_at__isnull=False),
            ),
            PartialIndex(
                fields=["owner"], name="reactor_execution_owner", where=Q(relation__in=["composed", "element"])
            ),
            PartialIndex(fields=["waiting_for"], name="reactor_execution_waiting", where=~Q(waiting_for="")),
            PartialIndex(
                fields=["parent", "parent_step", "parent_generation", "status", "element_index"],
                name="reactor_execution_parent",
                where=Q(parent__isnull=False),
            ),
            PartialIndex(
                fields=["status", "-id"],
                name="reactor_execution_list",
                where=Q(status__in=["failed", "halted", "cancelled", "undone", "aborted", "paused"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reactor} {self.pk}"

    def result(self) -> Result[Any]:
        """What `run` returned, or would return now: `Dispatched` while it runs. A failure has no `cause` here. Raises
        `Gone` if the value refers to a model instance that does not exist any more."""
        from django_reactor import actions

        return actions.result_of(self.pk)

    async def aresult(self) -> Result[Any]:
        from django_reactor import actions

        return await in_thread(actions.result_of, self.pk)

    @property
    def results(self) -> Mapping[str, Any]:
        """The results that stand, by stored name, read-only; a value is decoded when it is asked for."""
        from django_reactor import actions

        return actions.results_of(self.pk)

    def trace(self) -> Sequence[JournalEntry]:
        """Everything that happened, in order."""
        return list(self.entries.order_by("seq"))

    def cancel(self, reason: str = "") -> None:
        """Stop it, at its next step boundary if it runs; what was done is kept, and can be undone later.

        Does not wait for that: where another process runs it, this is a request. Children and elements are stopped with
        it, units that have not started never do. Raises `InvalidTransition` if it rolls back, or has ended otherwise;
        does nothing if it is cancelled already.
        """
        from django_reactor import actions

        actions.cancel(self.pk, reason)

    async def acancel(self, reason: str = "") -> None:
        from django_reactor import actions

        await in_thread(actions.cancel, self.pk, reason)

    def undo(self, reason: str = "") -> Result[Any]:
        """Undo what was done, newest first, here. Returns a `Failure`, which says that it was undone, or lists what
        could not be. Raises `InvalidTransition` unless it is completed, halted, cancelled, aborted, paused, or failed
        with rollback failures (which are tried again). `Dispatched` if its locks cannot be had now: a worker goes
        on."""
        from django_reactor import actions

        return actions.undo(self.pk, reason)

    async def aundo(self, reason: str = "") -> Result[Any]:
        from django_reactor import actions

        return await in_thread(actions.undo, self.pk, reason)

    def retry(self) -> Result[Any]:
        """Run a failed or aborted execution again in place, here, keeping the results that still hold: undos that
        failed are tried again first, and units that came to nothing are started anew. An aborted one goes on where it
        was interrupted. Raises `InvalidTransition` for any other. `Dispatched` if its locks cannot be had now."""
        from django_reactor import actions

        return actions.retry(self.pk)

    async def aretry(self) -> Result[Any]:
        from django_reactor import actions

        return await in_thread(actions.retry, self.pk)

    def resume(self, payload: Any, step: str | None = None) -> Result[Any]:
        """Answer the open interrupt; with several open ones, or before it asks, the one of this step. The payload is
        validated here: `InputError`. Runs on here and returns the result, or, with `resume="background"`, or while
        another process has the execution, `Dispatched`.

        Exactly one answer is accepted: `AlreadyResumed` or `InterruptTimedOut` for any other, and `InvalidTransition`
        where the status forbids it.
        """
        from django_reactor import actions

        return actions.resume(self.pk, payload, step)

    async def aresume(self, payload: Any, step: str | None = None) -> Result[Any]:
        from django_reactor import actions

        return await in_thread(actions.resume, self.pk, payload, step)

    def join(self, timeout: float | None = None) -> Result[Any]:
        """Wait in this thread until it has ended or paused, at most `timeout` seconds (None: for ever), and return
        its result; raises `WaitTimeout`. It asks the database every second at least: not inside a transaction, of
        which a worker sees nothing before it is committed."""
        from django_reactor import actions

        return actions.join(self.pk, timeout)

    async def ajoin(self, timeout: float | None = None) -> Result[Any]:
        from django_reactor import actions

        return await actions.ajoin(self.pk, timeout)


class JournalEntry(models.Model):
    """One thing that happened. Never changed; deleted with its execution only."""

    execution = models.ForeignKey(
        Execution, models.CASCADE, related_name="entries", db_constraint=False, db_index=False
    )
    seq = models.IntegerField()
    step = ExactCharField(max_length=MAX_LENGTH)
    action = models.CharField(max_length=16, choices=choices(Action))
    outcome = models.CharField(max_length=16, choices=choices(EntryOutcome), blank=True)
    attempt = models.IntegerField(default=0)
    arguments = models.TextField(null=True)
    value = models.TextField(null=True)
    error = JSONTextField(null=True)
    reason = models.TextField(default="")
    undoable = models.BooleanField(default=False)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()

    class Meta:
        verbose_name = _("journal entry")
        verbose_name_plural = _("journal entries")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["execution", "seq"], name="reactor_one_entry")]

    def __str__(self) -> str:
        return " ".join(word for word in (f"#{self.seq}", self.step, self.action, self.outcome) if word)
