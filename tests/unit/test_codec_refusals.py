"""What the codec refuses: by type, by path, by size, by depth."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from pydantic import HttpUrl

from django_reactor.exceptions import SerializationError
from django_reactor.journal.codec import Codec
from django_reactor.results import Failure, Success
from tests import codec_support as kinds
from tests.codec_support import refusal, restored, stored

ELSEWHERE: Any = Enum("Elsewhere", ["ONE"])  # type: ignore[misc]
"""An enum under another name than its own."""

SHADOWED: Any = type("Line", (kinds.Line,), {"__module__": kinds.__name__})
"""A dataclass whose name leads to another one."""

SUBCLASSES: list[type] = [
    type(f"My{base.__name__}", (base,), {})
    for base in (str, int, float, list, dict, tuple, set, frozenset, bytes, Decimal, timedelta)
]
"""They may carry more than their bases."""


REFUSED: list[tuple[object, str]] = [
    *((cls(), f"{cls.__name__} is a kind of {cls.__mro__[1].__name__}") for cls in SUBCLASSES),
    (OrderedDict(a=1), "OrderedDict is a kind of dict that may carry more: return dict(…) of it"),
    (defaultdict(list), "defaultdict is a kind of dict"),
    (Counter("a"), "Counter is a kind of dict"),
    (deque(), "deque is a collection of its own kind: return list(…) of it"),
    (MappingProxyType({}), "mappingproxy is a mapping of its own kind: return dict(…) of it"),
    ({}.keys(), "dict_keys is a set of its own kind"),
    (range(3), "range is a collection of its own kind: return list(…) of it"),
    (memoryview(b"a"), "memoryview is a view into memory: return bytes(…) of it"),
    (iter([]), "list_iterator can be read only once"),
    ((letter for letter in "ab"), "generator can be read only once"),
    (lambda: None, "function is a function"),
    (print, "builtin_function_or_method is a function"),
    (int, "type is a class: return its name"),
    (kinds.Item, "is a class: return its name"),
    (json, "module is a module"),
    (ValueError("secret"), "ValueError is an exception"),
    (io.StringIO(), "StringIO is an open file"),
    (ContentFile(b""), "ContentFile is an open file"),
    (1j, "complex cannot be stored: return plain values"),
    (Path(), "Path stands for a text: return str(…) of it"),
    (ip_address("::1"), "IPv6Address stands for a text"),
    (HttpUrl("https://example.org"), "Url stands for a text"),
    (object(), "object cannot be stored"),
    (kinds.Unstorable(), "Unstorable cannot be stored"),
    (User.objects.filter(pk=1), "QuerySet is a query, not its rows: return list(…) of it"),
    (User.objects, "UserManager is a way to make queries"),
    (User(username="new"), "this auth.User is not saved"),
    (User(pk=5), "this auth.User is not saved"),
    (kinds.local_class()(1), "Local cannot be found as tests.codec_support.local_class.<locals>.Local"),
    (ELSEWHERE.ONE, "Elsewhere cannot be found as tests.unit.test_codec_refusals.Elsewhere"),
    (type("Model", (kinds.Item,), {"__module__": "__main__"})(sku=1), "Model is defined in the script that runs"),
    (SHADOWED("A"), "Line cannot be found as tests.codec_support.Line"),
    (kinds.Listing("a"), "Listing is a dataclass and a list in one"),
    (kinds.Broken(1), "Broken is a dataclass and a Exception in one"),
]


@pytest.mark.parametrize(("value", "problem"), REFUSED, ids=[problem[:40] for _, problem in REFUSED])
def test_anything_else_is_refused_with_its_type_and_path(value: object, problem: str) -> None:
    error = refusal({"items": [0, {"handle": value}]})
    assert error.path == "result.items[1].handle"
    assert problem in error.problem
    assert "secret" not in str(error)


def test_a_coroutine_is_refused_with_the_advice_to_await_it() -> None:
    with closing(asyncio.sleep(0)) as coroutine:
        assert "must be awaited first" in refusal(coroutine).problem


def test_a_named_tuple_with_other_attributes_is_refused() -> None:
    value = kinds.LoosePoint(1)
    assert restored(value) == value
    value.more = 1  # type: ignore[attr-defined]
    assert "attributes beside its fields" in refusal(value).problem


BAD = kinds.Unstorable()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (BAD, "result"),
        ([1, BAD], "result[1]"),
        ((BAD,), "result[0]"),
        ({BAD}, "result[0]"),
        ({"two words": BAD}, "result['two words']"),
        ({"x" * 100: BAD}, f"result.{'x' * 100}"),
        ({"- " * 100: BAD}, f"result['{'- ' * 30}…]"),
        ({5: BAD}, "result[5]"),
        ({(1,): BAD}, "result[<tuple>]"),
        ({BAD: 1}, "result[<Unstorable>].key"),
        (kinds.Line(BAD), "result.sku"),
        (kinds.Point(1, BAD), "result.y"),
        (kinds.Item(sku=[BAD]), "result.sku[0]"),
        (kinds.opened(extra=BAD), "result.extra"),
        (Success([BAD]), "result.value[0]"),
        (Failure("m", arguments={"a": BAD}), "result.arguments.a"),
        (kinds.Receipt(total=1, lines=(kinds.Line({"deep": [BAD]}),)), "result.lines[0].sku.deep[0]"),
    ],
)
def test_the_path_leads_to_the_refused_value(value: object, path: str) -> None:
    error = refusal(value)
    assert error.path == path
    assert str(error).startswith(f"{path}: Unstorable")


def test_a_codec_works_on_after_a_refusal() -> None:
    codec = Codec()
    value = [[BAD]]
    for _ in range(200):
        with pytest.raises(SerializationError, match="Unstorable"):
            codec.encode(value, at="result")
    assert codec.encode([1], at="result") == "[1]"


def test_a_value_that_contains_itself_is_refused_where_it_does() -> None:
    parent = kinds.Tree("parent")
    parent.children.append(kinds.Tree("child", parent=parent))
    error = refusal({"tree": parent})
    assert error.path == "result.tree.children[0].parent"
    assert "this Tree contains itself" in error.problem


def test_the_same_value_twice_is_no_cycle() -> None:
    shared = [1]
    assert restored([shared, shared]) == [[1], [1]]


def test_deep_nesting_is_refused_and_shallower_nesting_comes_back() -> None:
    def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = wrap(value)
        return value

    for wrap in (lambda v: [v], lambda v: {1: v}, kinds.Line, lambda v: kinds.Frozen.model_construct(value=v)):
        assert stored(restored(nested(100, wrap))) == stored(nested(100, wrap))
        assert "nested more than 100 deep" in refusal(nested(101, wrap)).problem
    assert "nested more than 100 deep" in refusal(nested(100_000, lambda v: [v])).problem


def test_a_value_too_deep_for_the_callers_own_depth_is_refused() -> None:
    value: list[Any] = []
    for _ in range(90):
        value = [value]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        with pytest.raises(SerializationError, match="nested too deeply for this call") as caught:
            Codec().encode(value, at="result")
    finally:
        sys.setrecursionlimit(limit)
    assert caught.value.path == "result"


def test_few_objects_that_make_a_huge_text_are_refused_early() -> None:
    value: Any = []
    for _ in range(90):
        value = [value, value]
    assert "MAX_PAYLOAD_BYTES (10,000)" in refusal(value, max_bytes=10_000).problem


def test_a_value_over_the_limit_is_refused_with_size_limit_and_cure() -> None:
    assert stored("x" * 98, max_bytes=100)
    error = refusal(["x" * 1000], max_bytes=100)
    assert error.path == "result"
    for part in ("1,004 bytes", "MAX_PAYLOAD_BYTES (100)", "store it elsewhere", "return a reference"):
        assert part in error.problem
    assert "bytes as stored" in refusal("é" * 60, max_bytes=100).problem


def test_an_unsaved_instance_inside_a_value_is_refused_with_its_path() -> None:
    error = refusal({"group": Group(name="g")})
    assert error.path == "result.group"
    assert "save it first" in error.problem
