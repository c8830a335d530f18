"""The reference names all that there is, and nothing else."""

from __future__ import annotations

import ast
import re

import django_reactor
from django_reactor import exceptions, results, signals
from django_reactor.conf import Settings
from django_reactor.core.meta import REACTOR_OPTIONS, STEP_OPTIONS
from django_reactor.core.naming import REACTOR_RESERVED, STEP_RESERVED
from django_reactor.core.plan import Kind
from django_reactor.core.step_options import ALLOWED
from django_reactor.models import Execution
from tests.docs.pages import ROOT, in_backticks, page

REFERENCE = page("reference")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "django_reactor").rglob("*.py")]


def test_every_public_name_is_listed_once() -> None:
    assert sorted(REFERENCE.names("Names")) == sorted(django_reactor.__all__)


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {
        name: ast.literal_eval(default)
        for names, defaults, _ in REFERENCE.rows("Settings")
        for name, default in zip(in_backticks(names), in_backticks(defaults), strict=True)
    }
    defaults = Settings()
    assert listed == {name: getattr(defaults, name) for name in Settings.__dataclass_fields__}


def test_every_option_of_meta_is_listed_with_what_has_it() -> None:
    listed = {name: where for names, where, *_ in REFERENCE.rows("Meta") for name in in_backticks(names)}
    assert set(listed) == set(REACTOR_OPTIONS)
    assert {name for name, where in listed.items() if "Step" in where} == set(STEP_OPTIONS)


def test_every_option_of_a_step_is_listed_with_the_kinds_that_have_it() -> None:
    every = "all kinds"
    kinds = {"map_step" if kind is Kind.MAP else kind.value: options for kind, options in ALLOWED.items()}
    listed: dict[str, set[str]] = {kind: set() for kind in kinds}
    for names, where, _ in REFERENCE.rows("Options of steps"):
        for kind in kinds if where == every else in_backticks(where):
            listed[kind].update(in_backticks(names))
    assert listed == {kind: set(options) for kind, options in kinds.items()}


def test_every_reserved_name_is_listed() -> None:
    (section,) = re.findall(r"## Reserved names\n(.*?)\n## ", REFERENCE.text, re.DOTALL)
    of_both, of_steps = section.split(";")
    assert set(in_backticks(of_both)) == REACTOR_RESERVED
    assert set(in_backticks(of_steps)) == STEP_RESERVED - REACTOR_RESERVED


def test_every_error_is_listed_once() -> None:
    assert sorted(["ReactorError", *REFERENCE.names("Errors")]) == sorted(exceptions.__all__)


def test_every_signal_is_listed_once() -> None:
    assert sorted(REFERENCE.names("Signals")) == sorted(signals.SIGNALS)


def test_every_system_check_is_listed_once() -> None:
    known = {name for text in SOURCES for name in re.findall(r'id="django_reactor\.(\w+)"', text)}
    assert sorted(REFERENCE.names("System checks")) == sorted(known)


def test_every_event_of_the_log_is_listed_once() -> None:
    known = {name for text in SOURCES for name in re.findall(r'"event=django_reactor\.(\w+)', text)}
    assert sorted(REFERENCE.names("Log")) == sorted(known)


def test_every_permission_is_listed_once() -> None:
    named = [name for name, _ in Execution._meta.permissions]
    assert sorted(re.findall(r"^\| `(\w+_execution)` \|", page("admin").text, re.MULTILINE)) == sorted(
        [*named, "view_execution"]
    )


def test_every_field_of_a_failure_is_told() -> None:
    told = re.findall(r"`(\w+)", "".join(page("reactors").text.split("### What a failure says")[1].split("## ")[0]))
    for declared in (results.Failure, results.RollbackFailure):
        fields = set(declared.__dataclass_fields__) - {"execution_id"}  # of every result
        assert fields - set(told) == set()
