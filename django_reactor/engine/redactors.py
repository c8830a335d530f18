"""Which texts about an execution must not be shown."""

from __future__ import annotations

from uuid import UUID

from django_reactor.core.redaction import Redactor
from django_reactor.engine.ports import Codec
from django_reactor.engine.services import Services

__all__ = ["redactor_of"]


def redactor_of(services: Services, codec: Codec, execution_id: UUID) -> Redactor:
    """Knows what the rows of this execution mark as secret."""
    record, entries = services.journal.load(execution_id)
    texts = [record.inputs, *(text for entry in entries for text in (entry.arguments, entry.value) if text is not None)]
    return Redactor.of(secret for text in texts for secret in codec.secrets(text))
