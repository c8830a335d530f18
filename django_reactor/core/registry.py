"""All reactors and Step classes of this process, by label.

Classes register when they are created, often before Django is ready; which app a module belongs to is known only after
that. So labels are worked out when they are first asked for, and again after anything changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django_reactor.core.naming import check_stored_name, suggestion
from django_reactor.exceptions import DefinitionError

__all__ = [
    "duplicates",
    "find",
    "label_for",
    "labels",
    "near",
    "reactor",
    "reactors",
    "register",
    "set_app_label_resolver",
    "step_class",
    "step_classes",
]

_classes: dict[tuple[str, str], type] = {}
"""By module and qualified name: a class that is made again, by a reload, takes the place of the older one."""
_by_label: dict[str, list[type]] | None = None
_unambiguous: tuple[str, ...] | None = None
_app_label_of: Callable[[str], str | None] | None = None


def set_app_label_resolver(resolve: Callable[[str], str | None] | None) -> None:
    """Tell labels by this function, which gives a module's app label, or None for a module of no app."""
    global _app_label_of
    _app_label_of = resolve
    _forget_labels()


def label_for(cls: type, app_label: str | None = None) -> str:
    """`shop.PlaceOrder`: the app's label, or outside every app the top package, and the class's name."""
    app = app_label or (_app_label_of(cls.__module__) if _app_label_of else None) or cls.__module__.partition(".")[0]
    return f"{app}.{cls.__name__}"


def register(cls: type) -> None:
    """Make a concrete reactor or Step class known.

    Raises DefinitionError if another class has its label; before apps are known that cannot be told, and the look-up
    and `manage.py check` do it. A class that is made inside a function replaces an earlier one of that kind: tests
    define them again and again.
    """
    check_stored_name(_place(cls), _label(cls))
    key = (cls.__module__, cls.__qualname__)
    previous = _classes.get(key)
    _classes[key] = cls
    if _app_label_of is None:
        _forget_labels()
        return
    others = [other for other in _labels().get(_label(cls), ()) if other not in (cls, previous) and _clash(other, cls)]
    if others:
        _withdraw(key, previous)
        raise _ambiguous(_label(cls), others[0], cls)
    _enter(cls, previous)


def find(label: str) -> type | None:
    """The reactor or Step class of this label; DefinitionError if several classes have it."""
    return _single(label)


def reactor(label: str) -> type | None:
    """The reactor class of this label; DefinitionError if several classes have the label."""
    found = _single(label)
    return found if hasattr(found, "__reactor__") else None


def step_class(label: str) -> type | None:
    """The Step class of this label; DefinitionError if several classes have the label."""
    found = _single(label)
    return found if hasattr(found, "__step__") else None


def labels() -> tuple[str, ...]:
    """Those of all classes that `find` finds; the same object until another class is made."""
    global _unambiguous
    if _unambiguous is None:
        _unambiguous = tuple(label for label, classes in sorted(_labels().items()) if len(classes) == 1)
    return _unambiguous


def reactors() -> list[type]:
    """All concrete reactors, by label."""
    return [cls for _, classes in sorted(_labels().items()) for cls in classes if hasattr(cls, "__reactor__")]


def step_classes() -> list[type]:
    """All Step classes that have a `run`, by label."""
    return [cls for _, classes in sorted(_labels().items()) for cls in classes if hasattr(cls, "__step__")]


def duplicates() -> Mapping[str, list[type]]:
    """Labels that several classes have."""
    return {label: classes for label, classes in sorted(_labels().items()) if len(classes) > 1}


def near(label: str) -> str:
    """The end of a sentence about an unknown label."""
    return suggestion(label, sorted(_labels()))


def _single(label: str) -> type | None:
    found = _labels().get(label, [])
    if len(found) > 1:
        raise _ambiguous(label, *found[:2])
    return found[0] if found else None


def _ambiguous(label: str, first: type, second: type) -> DefinitionError:
    return DefinitionError(
        f"{_place(second)} and {_place(first)} both have the label {label!r}; rename one of them, or set its Meta.name"
    )


def _labels() -> dict[str, list[type]]:
    global _by_label
    if _by_label is None:
        _by_label = {}
        for cls in list(_classes.values()):
            _enter(cls, None)
    return _by_label


def _enter(cls: type, previous: type | None) -> None:
    """Put a class into the index, in the place of those it supersedes."""
    global _unambiguous
    index = _labels()
    if previous is not None:
        index[_label(previous)].remove(previous)
    known = index.setdefault(_label(cls), [])
    for other in [other for other in known if other is cls or not _clash(other, cls)]:
        known.remove(other)
        if other is not cls:
            del _classes[other.__module__, other.__qualname__]
    known.append(cls)
    _unambiguous = None


def _withdraw(key: tuple[str, str], previous: type | None) -> None:
    if previous is None:
        del _classes[key]
    else:
        _classes[key] = previous


def _forget_labels() -> None:
    global _by_label, _unambiguous
    _by_label = _unambiguous = None


def _clash(first: type, second: type) -> bool:
    return not ("<locals>" in first.__qualname__ and "<locals>" in second.__qualname__)


def _label(cls: Any) -> str:
    """Read from the definition's parts: what it caches must not be worked out before apps are known."""
    definition = getattr(cls, "__reactor__", None) or cls.__step__
    name: str | None = definition.name
    return name or label_for(cls, getattr(definition, "app_label", None))


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
