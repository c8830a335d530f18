"""Lazy translations, kept lazy: stored by what is to be translated, so that each reader gets his own language.

Any other lazy text (`format_lazy`, `reverse_lazy`) is stored as the text that it is now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.utils import translation as django_translation
from django.utils.functional import Promise

from django_reactor.journal.tags import Refused, Unreadable

__all__ = ["Translation", "make_translation", "translation"]

FUNCTIONS: Final = ("gettext", "ngettext", "pgettext", "npgettext")


class Translation(NamedTuple):
    function: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def translation(lazy: Promise) -> Translation | None:
    """What the lazy text translates; None if it is not known. Refuses what is lazy but no text."""
    # Pickle's own protocol: Django gives the function and the arguments, or, for a plural whose number comes later,
    # the function, the type, the name of the number and the keyword arguments.
    function, first, second, *rest = lazy.__reduce__()[1]  # type: ignore[misc]
    if isinstance(first, tuple):
        args, kwargs, kinds = first, second, rest
    else:
        args, kwargs, kinds = (), {**rest[0], "number": second}, [first]
    if not all(issubclass(kind, str) for kind in kinds):
        raise Refused("this lazy value is no text: evaluate it, and return what it gives")
    if any(type(value) not in (str, int, type(None)) for value in (*args, *kwargs.values())):
        return None
    for name in FUNCTIONS:
        if function is getattr(django_translation, name):
            return Translation(name, args, kwargs)
    return None


def make_translation(stored: Translation) -> Any:
    if stored.function not in FUNCTIONS:
        raise Unreadable(f"{stored.function!r} is no function that translates")
    return getattr(django_translation, f"{stored.function}_lazy")(*stored.args, **stored.kwargs)
