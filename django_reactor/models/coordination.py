"""The rows of coordination: who holds a key, how many have started, which period is closed, and whose turn is when."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_reactor.core.naming import MAX_LENGTH
from django_reactor.engine.coordination_ports import HoldKind, TicketState
from django_reactor.journal.fields import ExactCharField, PartialIndex
from django_reactor.models.choices import choices

__all__ = ["Holder", "PeriodMark", "RateCount", "Ticket", "TicketSequence"]


class Holder(models.Model):
    """A slot of a lock or a semaphore: who has it, from which claim on, and until when. Free without an owner."""

    kind = models.CharField(max_length=16, choices=choices(HoldKind))
    key_digest = models.CharField(max_length=64)
    key = models.TextField()
    """For people. MySQL would take keys that differ in case, or by blanks at the end, for the same."""
    slot = models.IntegerField(default=0)
    owner = models.UUIDField(null=True)
    epoch = models.IntegerField(default=0)
    expires_at = models.DateTimeField()
    """Of a free one: since when nobody has had it."""

    class Meta:
        verbose_name = _("holder")
        verbose_name_plural = _("holders")
        default_permissions = ()
        # The only index: PostgreSQL changes in place what no index has to follow, so that a lock costs little more than
        # its commits.
        constraints = [models.UniqueConstraint(fields=["key_digest", "kind", "slot"], name="reactor_one_holder")]

    def __str__(self) -> str:
        return f"{self.kind} {self.key} #{self.slot}"


class RateCount(models.Model):
    """How many have started with a key in one window of so many seconds."""

    key_digest = models.CharField(max_length=64)
    key = models.TextField()
    window = models.IntegerField()
    bucket = models.BigIntegerField()
    count = models.IntegerField()
    ends_at = models.DateTimeField()

    class Meta:
        verbose_name = _("rate count")
        verbose_name_plural = _("rate counts")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["key_digest", "window", "bucket"], name="reactor_one_rate_count")
        ]
        indexes = [models.Index(fields=["ends_at"], name="reactor_rate_over")]

    def __str__(self) -> str:
        return f"{self.key} ({self.window} s)"


class PeriodMark(models.Model):
    """This execution has succeeded in a calendar bucket of a key. Unique with the execution, so that nobody waits for
    another's commit to mark the same bucket."""

    key_digest = models.CharField(max_length=64)
    key = models.TextField()
    bucket = models.CharField(max_length=32)
    execution_id = models.UUIDField()
    until = models.DateTimeField()

    class Meta:
        verbose_name = _("period mark")
        verbose_name_plural = _("period marks")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["key_digest", "bucket", "execution_id"], name="reactor_one_period_mark")
        ]
        indexes = [models.Index(fields=["until"], name="reactor_period_over")]

    def __str__(self) -> str:
        return f"{self.key} {self.bucket}"


class TicketSequence(models.Model):
    """The numbers of an ordered lock's key. A batch is what was drawn from an empty line until it is empty again."""

    key_digest = models.CharField(max_length=64)
    key = models.TextField()
    batch = models.IntegerField(default=0)
    last = models.BigIntegerField(default=0)
    drawn_at = models.DateTimeField()

    class Meta:
        verbose_name = _("sequence")
        verbose_name_plural = _("sequences")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["key_digest"], name="reactor_one_sequence")]
        indexes = [models.Index(fields=["drawn_at"], name="reactor_sequence_idle")]

    def __str__(self) -> str:
        return self.key


class Ticket(models.Model):
    """The place of an execution, or of one of its steps, in the line of a key."""

    sequence = models.ForeignKey(
        TicketSequence, models.CASCADE, related_name="tickets", db_constraint=False, db_index=False
    )
    number = models.BigIntegerField()
    batch = models.IntegerField()
    execution_id = models.UUIDField()
    step = ExactCharField(max_length=MAX_LENGTH, default="")
    state = models.CharField(max_length=16, choices=choices(TicketState))
    head_since = models.DateTimeField(null=True)
    """When somebody first saw that it is the lowest in the line."""
    turn_at = models.DateTimeField(null=True)
    """When its turn had come and it ran: not asked about the chain again."""
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("ticket")
        verbose_name_plural = _("tickets")
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["sequence", "number"], name="reactor_one_ticket")]
        indexes = [
            models.Index(fields=["sequence", "state", "number"], name="reactor_ticket_line"),
            models.Index(fields=["execution_id"], name="reactor_ticket_execution"),
            PartialIndex(fields=["ended_at"], name="reactor_ticket_ended", where=Q(ended_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"#{self.number} ({self.state})"
