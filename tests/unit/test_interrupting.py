"""The demo's Ctrl-C."""

from __future__ import annotations

import signal

import pytest

from testproject.shop.demo.interrupting import noticing


class Ends:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_interrupts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), noticing():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_that_strikes_in_a_finalizer_interrupts_at_the_next_look() -> None:
    with noticing() as look:
        look()
        Ends()
        with pytest.raises(KeyboardInterrupt):
            look()


def test_afterwards_ctrl_c_is_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noticing():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
