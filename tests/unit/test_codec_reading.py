"""Stored arguments, and what a stored text may not do."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from django_reactor.exceptions import SerializationError
from django_reactor.journal.codec import Codec
from tests import codec_support as kinds
from tests.codec_support import restored, stored


def test_arguments_are_marked_as_secret_in_the_text_itself() -> None:
    text = Codec().encode_arguments({"sku": "A", "token": "tok_1"}, redacted={"token"}, at="inputs")
    assert json.loads(text) == {"sku": "A", "token": {"$": "secret", "v": "tok_1"}}
    arguments = Codec().decode_arguments(text)
    assert dict(arguments) == {"sku": "A", "token": "tok_1"}
    assert "tok_1" not in repr(arguments)


def test_a_refused_argument_is_named() -> None:
    with pytest.raises(SerializationError) as caught:
        Codec().encode_arguments({"a": 1, "b": [kinds.Unstorable()]}, redacted=(), at="inputs")
    assert caught.value.path == "inputs.b[0]"


def test_arguments_together_are_bounded() -> None:
    with pytest.raises(SerializationError, match="MAX_PAYLOAD_BYTES"):
        Codec(max_bytes=100).encode_arguments({"a": "x" * 60, "b": "x" * 60}, redacted=(), at="inputs")


def test_an_argument_is_decoded_when_it_is_first_asked_for_and_kept() -> None:
    codec = Codec()
    text = codec.encode_arguments({"good": [1, (2,)], "bad": kinds.Line("A")}, redacted=(), at="inputs")
    arguments = codec.decode_arguments(text.replace("codec_support:Line", "codec_support:Vanished"))
    assert arguments["good"] == [1, (2,)]
    assert arguments["good"] is arguments["good"]
    assert (list(arguments), len(arguments), "bad" in arguments, "other" in arguments) == (
        ["good", "bad"], 2, True, False,
    )  # fmt: skip
    with pytest.raises(SerializationError, match="Vanished"):
        arguments["bad"]
    with pytest.raises(KeyError):
        arguments["other"]
    with pytest.raises(TypeError):
        arguments["good"] = 1  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "[1]", "5", "{", '{"$":"tuple","v":[]}'])
def test_what_is_no_object_of_arguments_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match="damaged"):
        Codec().decode_arguments(text)


def test_redacted_fields_of_a_class_are_marked_as_secret() -> None:
    for value in (
        kinds.Card("Ada", "4111"),
        kinds.Login(user="ada", password="4111"),
        kinds.Credentials("ada", "4111"),
    ):
        assert stored(value).count('{"$":"secret","v":"4111"}') == 1
        assert restored(value) == value


# What a stored text may not do


def reading(text: str) -> SerializationError:
    with pytest.raises(SerializationError) as caught:
        Codec().decode(text)
    return caught.value


@pytest.mark.parametrize(
    ("tag", "reference", "problem"),
    [
        ("dataclass", "not_loaded_anywhere:Thing", "not_loaded_anywhere.Thing is not loaded in this process"),
        ("dataclass", "tests.codec_support:Gone", "tests.codec_support.Gone is not loaded"),
        ("dataclass", "tests.codec_support:Item", "is no dataclass of this name"),
        ("pydantic", "tests.codec_support:Line", "is no Pydantic model of this name"),
        ("enum", "tests.codec_support:Line", "is no enum of this name"),
        ("namedtuple", "tests.codec_support:Line", "is no named tuple of this name"),
        ("dataclass", "tests.codec_support:Broken", "is no dataclass of this name"),
        ("dataclass", "builtins:ValueError", "is no dataclass of this name"),
        ("dataclass", "subprocess:Popen", "is no dataclass of this name"),
        ("dataclass", "os:system", "is no dataclass of this name"),
        ("dataclass", "tests.codec_support:local_class.<locals>.Local", "is not loaded"),
        ("dataclass", "tests.codec_support:Line.__init__.__globals__", "is not loaded"),
        ("dataclass", "tests.codec_support:Line.__class__", "is not loaded"),
        ("dataclass", "django_reactor.journal.encoder:Failure", "is no dataclass of this name"),
        ("enum", "tests.codec_support:SubEnum", "is not loaded"),
    ],
)
def test_only_loaded_classes_of_the_right_kind_and_name_are_restored(tag: str, reference: str, problem: str) -> None:
    error = reading(json.dumps({"$": tag, "c": reference, "v": {}, "s": []}))
    assert problem in error.problem
    assert "not_loaded_anywhere" not in sys.modules


def test_looking_for_a_class_runs_no_module_code(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lazy_module")
    asked: list[str] = []
    module.__getattr__ = asked.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    assert "is not loaded" in reading('{"$":"dataclass","c":"lazy_module:Thing","v":{}}').problem
    assert asked == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[NaN]", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"$":"newest","v":1}', "the tag 'newest' is not known"),
        ('{"$":["list"]}', "damaged"),
        ('{"$":"decimal"}', "damaged"),
        ('{"$":"decimal","v":"x"}', "damaged"),
        ('{"$":"datetime","v":5}', "damaged"),
        ('{"$":"datetime","v":"2024-01-01T00:00:00+00:00","z":"Mars/Base"}', "does not know the time zone 'Mars/Base'"),
        ('{"$":"bytes","v":"*"}', "damaged"),
        ('{"$":"set","v":[[]]}', "damaged"),
        ('{"$":"enum","c":"tests.codec_support:Colour","v":"BLUE"}', "Colour has no member 'BLUE' any more"),
        ('{"$":"lazy","f":"system","v":["ls"],"k":{}}', "'system' is no function that translates"),
        ('{"$":"model","m":"shop.Vanished","v":1}', "the model shop.Vanished is not installed"),
        ('{"$":"model","m":"auth.User","v":1,"d":"lost"}', "'lost', which DATABASES does not have any more"),
    ],
)
def test_a_text_that_cannot_be_read_gives_a_clear_error(text: str, problem: str) -> None:
    assert problem in reading(text).problem


def test_a_field_added_since_takes_its_default_and_a_removed_one_is_passed_over() -> None:
    def older(value: object, **fields: object) -> str:
        tree = json.loads(stored(value))
        tree["v"] = fields
        return json.dumps(tree)

    decode = Codec().decode
    assert decode(older(kinds.Line("A"), sku="B", removed=1)) == kinds.Line("B", 1)
    assert decode(older(kinds.Tree("A"), name="B")) == kinds.Tree("B", [])
    assert decode(older(kinds.Point(1), x=5, removed=1)) == kinds.Point(5, 0)
    assert decode(older(kinds.Basket(), removed=1)) == kinds.Basket()
    for value in (kinds.Line("A"), kinds.Point(1), kinds.Item(sku=1)):
        error = reading(older(value))
        assert "which this value lacks" in error.problem
        assert "give the field a default" in error.problem
