"""The README's examples do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from django_reactor.conf import problems

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.django_db


def example(name: str) -> str:
    found = re.findall(rf"<!-- example: {re.escape(name)} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert len(found) == 1, name
    return str(found[0])


def execute(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "README.md", "exec", dont_inherit=True), names)


def promised(code: str) -> list[str]:
    """What the comments behind `print` and below a loop say will be printed."""
    lines = []
    for line in code.splitlines():
        if match := re.search(r"print\(.*\) +# (.*)$", line) or re.match(r"# (#\d+ .*)$", line):
            lines.append(match[1].replace("[]: everything was undone", "[]"))
    return lines


class Warehouse:
    closed = False

    def reserve(self, sku: str, quantity: int, key: str) -> dict[str, Any]:
        return {"sku": sku, "total": 10 * quantity, "key": key}

    def release(self, reservation: dict[str, Any]) -> None:
        assert reservation["sku"] == "A-1"


@pytest.fixture
def world() -> dict[str, Any]:
    bank = SimpleNamespace(
        charge=lambda card, total, key: "charge 1", void=lambda key: None, refund=lambda charge: None
    )
    names = {"__name__": "tests.docs.shop", "warehouse": Warehouse(), "bank": bank}
    execute(example("reactors.py"), names)
    return names


@pytest.mark.parametrize("name", ["run", "fail", "invalid"])
def test_an_example_prints_what_its_comments_say(
    name: str, world: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code = example(name)
    execute(code, world)
    assert promised(code)
    assert capsys.readouterr().out.splitlines() == promised(code)


def test_the_settings_shown_are_valid() -> None:
    names: dict[str, Any] = {}
    execute(example("settings"), names)
    assert problems(names["DJANGO_REACTOR"]) == []


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not link.startswith("http") and not (ROOT / link).exists()] == []
