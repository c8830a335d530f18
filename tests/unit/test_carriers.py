"""The shipped carriers: what a body is given, and what is there again when it has ended."""

from __future__ import annotations

import sys
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from django.test import override_settings
from django.utils import timezone, translation
from opentelemetry import baggage, context, trace

from django_reactor import carriers
from django_reactor.carriers import ConfiguredCarriers, Language, OpenTelemetry, TimeZone
from django_reactor.exceptions import ConfigurationError


@pytest.fixture(autouse=True)
def nothing_active() -> Iterator[None]:
    translation.deactivate()
    timezone.deactivate()
    yield
    translation.deactivate()
    timezone.deactivate()


@pytest.mark.parametrize("carried", ["de", "fr", None], ids=["the active one", "another", "none"])
@pytest.mark.parametrize("body", ["de", "it", None], ids=["back", "away", "off"])
def test_a_language_is_active_in_the_block_and_the_one_before_again_after_it(
    carried: str | None, body: str | None
) -> None:
    """Whatever the body does to it."""
    translation.activate("de")
    with Language().restore(carried):
        assert translation.get_language() == carried
        translation.deactivate_all() if body is None else translation.activate(body)
    assert translation.get_language() == "de"


def test_without_a_language_before_there_is_none_after() -> None:
    translation.deactivate_all()
    with Language().restore("fr"):
        assert translation.get_language() == "fr"
    assert translation.get_language() is None


@pytest.mark.parametrize("carried", ["Asia/Tokyo", "Europe/Rome"], ids=["the active one", "another"])
@pytest.mark.parametrize("body", ["Asia/Tokyo", "America/Lima", None], ids=["back", "away", "off"])
def test_a_time_zone_is_active_in_the_block_and_the_one_before_again_after_it(carried: str, body: str | None) -> None:
    timezone.activate("Asia/Tokyo")
    with TimeZone().restore(carried):
        assert timezone.get_current_timezone_name() == carried
        timezone.deactivate() if body is None else timezone.activate(zoneinfo.ZoneInfo(body))
    assert timezone.get_current_timezone_name() == "Asia/Tokyo"


@pytest.mark.parametrize("body", ["America/Lima", None], ids=["away", "untouched"])
def test_where_the_project_s_time_zone_held_it_holds_again_also_when_it_is_changed_later(body: str | None) -> None:
    with TimeZone().restore(timezone.get_default_timezone_name()):
        if body is not None:
            timezone.activate(zoneinfo.ZoneInfo(body))
    with override_settings(TIME_ZONE="Europe/Rome"):
        assert timezone.get_current_timezone_name() == "Europe/Rome"


def test_a_trace_and_its_baggage_are_current_in_the_block_and_what_was_before_again_after_it() -> None:
    def current() -> tuple[int, object]:
        return trace.get_current_span().get_span_context().trace_id, baggage.get_baggage("shop")

    started_in = trace.NonRecordingSpan(trace.SpanContext(trace_id=7, span_id=11, is_remote=False))
    with trace.use_span(started_in):
        token = context.attach(baggage.set_baggage("shop", "CD"))
        carried = OpenTelemetry().capture()
        context.detach(token)
    nothing = current()
    with pytest.raises(ZeroDivisionError), OpenTelemetry().restore(carried or {}):
        assert current() == (7, "CD")
        raise ZeroDivisionError
    assert current() == nothing == (0, None)


def test_outside_of_a_trace_nothing_is_carried() -> None:
    assert OpenTelemetry().capture() is None


def test_a_trace_that_cannot_be_carried_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    carriers.carrier.cache_clear()
    with pytest.raises(ConfigurationError, match=r"'opentelemetry'.*install django-reactor-saga\[otel\]"):
        carriers.carrier("opentelemetry")


def test_all_that_was_carried_is_restored_and_taken_back_after_an_error() -> None:
    translation.activate("en")
    timezone.activate("Asia/Tokyo")
    carried = {"language": "fr", "time_zone": "Europe/Rome", "left over": 1}
    with pytest.raises(ZeroDivisionError), ConfiguredCarriers().restored(carried):
        assert (translation.get_language(), timezone.get_current_timezone_name()) == ("fr", "Europe/Rome")
        raise ZeroDivisionError
    assert (translation.get_language(), timezone.get_current_timezone_name()) == ("en", "Asia/Tokyo")


class Noted:
    """A carrier of the project: a generator that says when it is entered and left."""

    def __init__(self, notes: list[str], fails_at: str = "") -> None:
        self._notes, self._fails_at = notes, fails_at

    def capture(self) -> None:
        return None

    @contextmanager
    def restore(self, value: str) -> Iterator[None]:
        self._note(f"enter {value}")
        try:
            yield
        except ZeroDivisionError:
            self._notes.append(f"error in {value}")
            raise
        finally:
            self._note(f"leave {value}")

    def _note(self, what: str) -> None:
        self._notes.append(what)
        if what == self._fails_at:
            raise KeyError(what)


@pytest.fixture
def carried_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Noted], Mapping[str, str]]]:
    """Have three values carried by this carrier."""
    names = ("first", "second", "third")

    def carry(noted: Noted) -> Mapping[str, str]:
        monkeypatch.setattr(carriers, "SHIPPED", dict.fromkeys(names, lambda: noted))
        carriers.carrier.cache_clear()
        return {name: name for name in names}

    with override_settings(DJANGO_REACTOR={"CARRY": names}):
        yield carry
    carriers.carrier.cache_clear()


def test_carriers_are_left_in_the_reverse_order_and_see_the_error_of_the_body(
    carried_by: Callable[[Noted], Mapping[str, str]],
) -> None:
    notes: list[str] = []
    carried = carried_by(Noted(notes))
    with pytest.raises(ZeroDivisionError), ConfiguredCarriers().restored(carried):
        notes.append("body")
        raise ZeroDivisionError
    left = [f"{what} {name}" for name in ("third", "second", "first") for what in ("error in", "leave")]
    assert notes == ["enter first", "enter second", "enter third", "body", *left]


@pytest.mark.parametrize(
    ("fails_at", "then"),
    [
        ("enter second", ["enter first", "enter second", "leave first"]),
        ("leave second", ["enter first", "enter second", "enter third", "leave third", "leave second", "leave first"]),
    ],
)
def test_a_carrier_that_fails_leaves_none_of_the_others_entered(
    carried_by: Callable[[Noted], Mapping[str, str]], fails_at: str, then: list[str]
) -> None:
    notes: list[str] = []
    carried = carried_by(Noted(notes, fails_at))
    with pytest.raises(KeyError, match=fails_at), ConfiguredCarriers().restored(carried):
        pass
    assert notes == then
