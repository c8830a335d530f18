"""Stored names fit their columns, or are refused when they are declared."""

from __future__ import annotations

import pytest

from django_reactor import Reactor, step
from django_reactor.core.naming import MAX_LENGTH
from django_reactor.core.reactor import definition_of
from django_reactor.exceptions import DefinitionError


def test_a_stored_name_of_a_step_that_is_too_long_is_refused() -> None:
    with pytest.raises(DefinitionError, match=rf"Long\.one.*{MAX_LENGTH + 1} characters"):

        class Long(Reactor):
            @step(name="x" * (MAX_LENGTH + 1))
            def one(self) -> None: ...


def test_a_label_that_is_too_long_is_refused() -> None:
    with pytest.raises(DefinitionError, match=rf"LongLabel.*{MAX_LENGTH + 1} characters"):

        class LongLabel(Reactor):
            class Meta:
                name = "x" * (MAX_LENGTH + 1)

            @step
            def one(self) -> None: ...


def test_names_that_just_fit_are_taken() -> None:
    class Fits(Reactor):
        class Meta:
            name = "x" * MAX_LENGTH

        @step(name="y" * MAX_LENGTH)
        def one(self) -> None: ...

    assert definition_of(Fits).label == "x" * MAX_LENGTH
