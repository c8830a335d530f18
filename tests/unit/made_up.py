"""Classes of modules that do not exist, and a registry for them."""

from __future__ import annotations

from collections.abc import Iterator
from types import new_class
from typing import Any

import pytest

from django_reactor import Reactor, Step, step
from django_reactor.core import registry
from tests.conftest import app_label_of

__all__ = ["own_registry", "reactor", "step_class"]


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty registry, in which `made_up.…` modules are of the app `shop`; the process's own comes back after."""
    monkeypatch.setattr(registry, "_classes", {})
    registry.set_app_label_resolver(lambda module: "shop" if module.startswith("made_up.") else None)
    yield
    monkeypatch.undo()
    registry.set_app_label_resolver(app_label_of)


def reactor(qualname: str, module: str = "made_up.reactors", **meta: Any) -> type:
    name = qualname.rpartition(".")[2]
    body = {
        "pay": step(lambda self: None),
        "Meta": type("Meta", (), meta),
        "__module__": module,
        "__qualname__": qualname,
    }
    return new_class(name, (Reactor,), {}, lambda names: names.update(body))


def step_class(qualname: str, module: str = "made_up.steps", **body: Any) -> type:
    names = {"run": lambda self: None, "__module__": module, "__qualname__": qualname} | body
    return new_class(qualname.rpartition(".")[2], (Step,), {}, lambda namespace: namespace.update(names))
