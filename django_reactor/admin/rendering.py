"""Stored values and times as text for a page. Everything passes the redactor; nothing is marked as safe HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from json import dumps
from typing import Any, Final

from django.utils.translation import gettext, ngettext

from django_reactor.core.redaction import Redactor
from django_reactor.journal.display import display

__all__ = ["Shown", "duration", "scrubbed", "shown", "shown_text", "shown_tree"]

ITEM_LIMIT: Final = 1_000
"""Characters of one text, and items of one container, inside a value."""
TEXT_LIMIT: Final = 20_000
"""Characters of one value."""
ONE_LINE: Final = 80
"""Characters of a value that need not be unfolded."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value as text. What is longer than a line is folded behind its beginning."""

    text: str

    @property
    def is_long(self) -> bool:
        return len(self.text) > ONE_LINE or "\n" in self.text

    @property
    def beginning(self) -> str:
        line = " ".join(self.text[: 2 * ONE_LINE].split())
        return line if len(line) < ONE_LINE else f"{line[: ONE_LINE - 20]}…"


def shown(stored: str, redactor: Redactor) -> Shown:
    """A stored value; what cannot be read is a note, not an error."""
    return shown_tree(display(stored, redactor, limit=ITEM_LIMIT))


def shown_tree(tree: Any) -> Shown:
    """A JSON-compatible tree that is redacted already."""
    return Shown(_cut(_written(tree)))


def shown_text(text: str, redactor: Redactor) -> Shown:
    return Shown(_cut(redactor.scrub(text)))


def scrubbed(tree: Any, redactor: Redactor) -> Any:
    """Every text inside a JSON-compatible tree, redacted. What was stored was redacted with the secrets known then."""
    match tree:
        case str():
            return redactor.scrub(tree)
        case dict():
            return {redactor.scrub(str(name)): scrubbed(value, redactor) for name, value in tree.items()}
        case list() | tuple():
            return [scrubbed(item, redactor) for item in tree]
        case None | bool():
            return tree
        case _:
            text = str(tree)
            return tree if redactor.scrub(text) == text else redactor.scrub(text)


def _written(tree: Any) -> str:
    if isinstance(tree, str):
        return tree or '""'
    if tree is None or isinstance(tree, bool):
        return str(tree)
    flat = dumps(tree, ensure_ascii=False)
    return flat if len(flat) <= ONE_LINE else dumps(tree, ensure_ascii=False, indent=2)


def _cut(text: str) -> str:
    rest = len(text) - TEXT_LIMIT
    if rest <= 0:
        return text
    more = ngettext("… %(count)s more character", "… %(count)s more characters", rest) % {"count": f"{rest:,}"}
    return f"{text[:TEXT_LIMIT]}\n{more}"


def duration(start: datetime | None, end: datetime | None) -> str:
    """In two units at most: `340 ms`, `2.41 s`, `3 min 5 s`."""
    if start is None or end is None:
        return ""
    seconds = max(timedelta(0), end - start).total_seconds()
    if seconds < 0.001:
        return gettext("< 1 ms")
    if seconds < 1:
        return gettext("%(count)d ms") % {"count": round(seconds * 1000)}
    if seconds < 60:
        return gettext("%(count).2f s") % {"count": seconds}
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return gettext("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return gettext("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes}
    return gettext("%(days)d d %(hours)d h") % {"days": hours // 24, "hours": hours % 24}
