"""Ids of executions: unique, of version 7, and sorted by the time they were made."""

from __future__ import annotations

import itertools
import uuid

import pytest

from django_reactor.engine.identifiers import uuid7

A_MOMENT = 1_764_510_000_123_999_000  # nanoseconds; a whole millisecond begins within the next few steps


def test_an_id_says_that_it_is_of_version_seven() -> None:
    made = uuid7()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_id_begins_with_the_millisecond_it_was_made_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: A_MOMENT)
    assert uuid7().int >> 80 == A_MOMENT // 1_000_000


def test_ids_sort_as_they_were_made_within_a_millisecond_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(A_MOMENT, 250)
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    made = [uuid7() for _ in range(1000)]
    assert made == sorted(made)


def test_ids_of_one_instant_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: A_MOMENT)
    assert len({uuid7() for _ in range(1000)}) == 1000
