"""Which adapter the settings choose, and what the parts beside the adapters keep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings
from dramatiq.middleware import Shutdown, TimeLimitExceeded
from rq.timeouts import JobTimeoutException

from django_reactor import queues
from django_reactor.exceptions import ConfigurationError
from django_reactor.queues import entry, interruptions, processes
from django_reactor.queues.dramatiq import scaled

ROOT = Path(__file__).parents[2]


class Own:
    """An adapter of the project's own."""

    is_immediate = False
    supports_delay = True
    max_delay = 1.0
    supports_priority = False

    def __init__(self) -> None:
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1

    def enqueue(self, execution_id: str, *, queue_name: str, delay: float, priority: int | None) -> None: ...

    def check(self) -> Sequence[CheckMessage]:
        return []


@pytest.fixture(autouse=True)
def _another_choice_afterwards() -> Iterator[None]:
    yield
    queues.backend.forget()


@pytest.fixture
def _as_before() -> Iterator[None]:
    delivery, boot, stop = entry._deliver, list(processes._at_boot), list(processes._at_stop)
    processes._at_boot.clear()
    processes._at_stop.clear()
    processes.stopped()  # whatever was a worker before
    yield
    entry._deliver = delivery
    processes._at_boot[:], processes._at_stop[:] = boot, stop
    processes.begin()


def test_the_dotted_path_of_a_class_names_an_adapter_which_is_made_and_prepared_once() -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": f"{__name__}.Own"}):
        backend = queues.backend()
        assert isinstance(backend, Own)
        assert queues.backend() is backend
        assert backend.prepared == 1


def test_changed_settings_choose_anew() -> None:
    with override_settings(DJANGO_REACTOR={"BACKEND": f"{__name__}.Own"}):
        before = queues.backend()
        with override_settings(RQ_QUEUES={}):
            assert queues.backend() is not before
        with override_settings(DJANGO_REACTOR={"BACKEND": "immediate"}):
            assert queues.backend().is_immediate


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    with (
        override_settings(DJANGO_REACTOR={"BACKEND": "dramatik"}),
        pytest.raises(ConfigurationError, match="did you mean 'dramatiq'"),
    ):
        queues.backend()


@pytest.mark.parametrize(("library", "name"), [("django_rq", "rq"), ("django_tasks", "tasks")])
def test_an_adapter_whose_library_is_missing_is_refused_with_what_to_install(library: str, name: str) -> None:
    script = f"""
import sys
sys.modules[{library!r}] = None
import django
from django.conf import settings
settings.configure(
    DJANGO_REACTOR={{"BACKEND": {name!r}}}, INSTALLED_APPS=["django_reactor"], USE_TZ=True,
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
from django_reactor.queues.checks import check_queue
(message,) = check_queue()
print(message.id, message.hint)
"""
    if name == "tasks":
        script = "import sys; sys.modules['django.tasks'] = None\n" + script.replace("import sys\n", "", 1)
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.stdout == f"django_reactor.E201 Install django-reactor-saga[{name}].\n", run.stderr


@pytest.mark.usefixtures("_as_before")
def test_nothing_is_delivered_before_the_apps_are_loaded() -> None:
    entry._deliver = None
    with pytest.raises(ConfigurationError, match=r"django\.setup"):
        entry.deliver(str(uuid4()))


@pytest.mark.usefixtures("_as_before")
def test_what_runs_beside_deliveries_starts_once_and_stops_once_in_a_worker() -> None:
    calls: list[str] = []

    def start() -> None:
        calls.append("start")

    def stop() -> None:
        calls.append("stop")

    for _ in range(2):
        processes.on_boot(start)
        processes.on_stop(stop)
    processes.stopped()
    assert calls == [], "a process that is no worker has nothing to stop"
    for _ in range(2):
        processes.booted()
    for _ in range(2):
        processes.stopped()
    assert calls == ["start", "stop"]


@pytest.mark.usefixtures("_as_before")
def test_a_worker_that_begins_again_is_not_stopping() -> None:
    assert not processes.is_stopping()
    processes.stopping()
    assert processes.is_stopping()
    processes.begin()
    assert not processes.is_stopping()
    processes.stopping()
    processes.stopped()
    assert not processes.is_stopping()


def test_what_libraries_raise_to_end_a_body_is_known_and_a_shutdown_is_no_time_limit() -> None:
    for error in (Shutdown(), TimeLimitExceeded(), JobTimeoutException()):
        assert isinstance(error, interruptions.loaded())
    assert interruptions.is_shutdown(Shutdown())
    assert not interruptions.is_shutdown(TimeLimitExceeded())


@pytest.mark.parametrize(("priority", "expected"), [(-1000, 0), (-100, 0), (0, 5), (99, 9), (100, 10), (1000, 10)])
def test_priorities_of_tasks_are_fitted_to_those_of_the_broker(priority: int, expected: int) -> None:
    assert scaled(priority, 10) == expected
