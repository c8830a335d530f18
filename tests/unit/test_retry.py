"""`Retry`: how often, how long between, and after which exceptions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_reactor import Reactor, Retry, fail, step
from django_reactor.exceptions import DefinitionError
from tests.engine_support import Bench

pytestmark = pytest.mark.usefixtures("own_registry")


def middle(low: float, high: float) -> float:
    return (low + high) / 2


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [("exponential", [2, 4, 8, 10, 10]), ("linear", [2, 4, 6, 8, 10, 10]), ("fixed", [2, 2, 2])],
)
def test_delays_grow_as_declared_up_to_the_cap(backoff: Any, delays: list[float]) -> None:
    retry = Retry(backoff=backoff, delay=2, max_delay=10)
    assert [retry.delay_after(attempt, middle) for attempt in range(1, len(delays) + 1)] == delays


def test_jitter_varies_a_delay_by_its_share_to_both_sides() -> None:
    retry = Retry(delay=100, jitter=0.25)
    assert retry.delay_after(1, lambda low, high: low) == 75
    assert retry.delay_after(1, lambda low, high: high) == 125


@given(st.integers(1, 10_000), st.sampled_from(["exponential", "linear", "fixed"]), st.floats(0, 1))
def test_no_attempt_waits_longer_than_the_cap_and_its_jitter(attempt: int, backoff: Any, jitter: float) -> None:
    delay = Retry(backoff=backoff, delay=0.5, max_delay=60, jitter=jitter).delay_after(attempt)
    assert 0 <= delay <= 60 * (1 + jitter)


def test_durations_may_be_timedeltas() -> None:
    assert Retry(delay=timedelta(minutes=1), jitter=0).delay_after(1) == 60
    assert Retry(delay=timedelta(hours=1), max_delay=timedelta(minutes=2), jitter=0).delay_after(1) == 120


def test_only_what_is_in_on_and_not_in_never_is_retried() -> None:
    retry = Retry(on=[OSError], never=[FileNotFoundError])
    assert retry.covers(ConnectionError())
    assert not retry.covers(FileNotFoundError())
    assert not retry.covers(ValueError())
    assert not Retry().covers(BaseException())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff": "random"}, "backoff"),
        ({"delay": -1}, "delay"),
        ({"max_delay": float("inf")}, "max_delay"),
        ({"jitter": 1.5}, "jitter"),
        ({"on": ["ValueError"]}, "on"),
        ({"never": [1]}, "never"),
    ],
)
def test_an_impossible_policy_is_refused_and_names_its_option(options: dict[str, Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Retry\({named}="):
        Retry(**options)


# -- the policy at work ------------------------------------------------------------------------------------------------


class Unretryable(Exception):
    retryable = False


class Unsure(Exception):
    @property
    def retryable(self) -> bool:
        raise RuntimeError("who knows")


def played(*errors: Exception | str | None, policy: Retry) -> Bench:
    """A reactor whose one step ends by these, one for each attempt."""
    left = iter(errors)

    class Pay(Reactor[Any]):
        @step(retry=policy)
        def pay(self) -> int:
            error = next(left)
            if isinstance(error, str):
                fail(error)
            if error is not None:
                raise error
            return int(self.context.attempt)

    bench = Bench(Pay)
    bench.start()
    return bench


def test_attempts_are_made_until_one_succeeds_with_the_delays_between() -> None:
    bench = played(OSError(), OSError(), None, policy=Retry(max_attempts=5, jitter=0))
    assert bench.told == ["run pay retrying", "run pay retrying", "run pay success"]
    assert bench.clock.slept == [1, 2]
    assert [entry.attempt for entry in bench.entries] == [1, 2, 3]
    assert bench.entries[-1].value == "3"


def test_the_last_attempt_fails_the_step_and_says_how_many_there_were() -> None:
    bench = played(OSError("one"), OSError("two"), policy=Retry(max_attempts=2, jitter=0))
    assert bench.told == ["run pay retrying", "run pay failure"]
    failure = bench.record.failure
    assert failure is not None
    assert (failure["message"], failure["attempts"]) == ("two", 2)


def test_a_step_without_a_policy_is_tried_once() -> None:
    class Pay(Reactor[Any]):
        @step
        def pay(self) -> None:
            raise OSError

    bench = Bench(Pay)
    bench.start()
    assert bench.told == ["run pay failure"]


@pytest.mark.parametrize("error", [ValueError(), Unretryable()])
def test_what_the_policy_does_not_cover_or_the_error_itself_forbids_is_not_retried(error: Exception) -> None:
    assert played(error, policy=Retry(on=[OSError, Unretryable], jitter=0)).told == ["run pay failure"]


def test_fail_is_retried_whatever_exceptions_the_policy_covers() -> None:
    assert played("not yet", None, policy=Retry(on=[OSError], jitter=0)).told == ["run pay retrying", "run pay success"]


def test_an_error_that_cannot_say_whether_it_may_be_retried_may() -> None:
    assert played(Unsure(), None, policy=Retry(jitter=0)).told == ["run pay retrying", "run pay success"]


def test_a_base_exception_of_the_users_own_fails_the_step_without_a_retry() -> None:
    class Stop(BaseException):
        pass

    class Pay(Reactor[Any]):
        @step(retry=Retry())
        def pay(self) -> None:
            raise Stop

    bench = Bench(Pay)
    bench.start()
    assert bench.told == ["run pay failure"]
