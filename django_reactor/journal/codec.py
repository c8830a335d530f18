"""Stored values: encoded as JSON text with tagged types (see `tags`), decoded to what they were.

Only declared data is stored, and nothing is guessed: a value that would not come back exactly is refused, with the
path to it and what to do instead. Two things differ on purpose in another process: a model instance is fetched again,
and a time zone of a foreign kind comes back as the offset it had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from django_reactor.exceptions import SerializationError
from django_reactor.journal.decoder import Decoder, ResultsOf, has_tags, loads
from django_reactor.journal.encoder import MAX_DEPTH, Encoder, dumps
from django_reactor.journal.references import References
from django_reactor.journal.refusals import too_large
from django_reactor.journal.tags import TAG, Refused, Tree, Unreadable, secret

__all__ = ["Codec"]

STORED = "stored value"
"""The path in errors about a text: where it stands is known to the caller only."""


class Codec:
    """Encodes and decodes for one run in one process: it gives model instances that it has met back as they are, and
    fetches any other row once. Not thread-safe."""

    def __init__(self, *, max_bytes: int = 1_000_000, results_of: ResultsOf | None = None) -> None:
        self._max_bytes = max_bytes
        references = References()
        self._encoder = Encoder(references, max_bytes)
        self._decoder = Decoder(references, results_of)

    def encode(self, value: object, *, at: str, redacted: bool = False) -> str:
        """The value as text, in ASCII, of at most `max_bytes` bytes. Raises `SerializationError`, whose path begins
        with `at`. A redacted one is marked in the text itself as never to be shown."""
        if redacted:
            return self._text(at, lambda: secret(self._encoder.tree(value)))
        return self._text(at, self._encoder.tree, value)

    def encode_arguments(self, values: Mapping[str, object], *, redacted: Collection[str], at: str) -> str:
        """An object of named values; those under a redacted name are marked in the text itself as never to be shown."""
        return self._text(at, self._encoder.fields, values, redacted)

    def decode(self, text: str) -> Any:
        """The value. Raises `Gone` for a row that was deleted, `SerializationError` for what this process cannot
        restore, and what the database raises when a row is fetched."""
        tree = _parsed(text)
        return self._value(tree) if has_tags(text) else tree

    def decode_arguments(self, text: str) -> Mapping[str, Any]:
        """A read-only mapping that decodes each value when it is first asked for, and keeps it."""
        trees = _parsed(text)
        if type(trees) is not dict or TAG in trees:
            raise SerializationError(STORED, "damaged: not an object of named values")
        return _Arguments(trees, self._value)

    def _text(self, at: str, write: Callable[..., Tree], *arguments: object) -> str:
        self._encoder.begin()
        try:
            text = dumps(write(*arguments))
        except Refused as refused:
            raise SerializationError(refused.path(at), refused.problem) from None
        except RecursionError:
            raise SerializationError(at, f"nested too deeply for this call (at most {MAX_DEPTH})") from None
        if len(text) > self._max_bytes:  # ASCII: characters are bytes
            raise SerializationError(at, too_large(len(text), self._max_bytes))
        return text

    def _value(self, tree: Tree) -> Any:
        try:
            return self._decoder.value(tree)
        except Unreadable as unreadable:
            raise SerializationError(STORED, str(unreadable)) from None
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            raise SerializationError(STORED, f"damaged: {type(error).__name__} while it was restored") from error


class _Arguments(Mapping[str, Any]):
    def __init__(self, trees: dict[str, Tree], restore: Callable[[Tree], Any]) -> None:
        self._trees = trees
        self._restore = restore
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._restore(self._trees[name])
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trees)

    def __len__(self) -> int:
        return len(self._trees)

    def __contains__(self, name: object) -> bool:
        return name in self._trees

    def __repr__(self) -> str:
        return f"<arguments {', '.join(self._trees)}>"  # their values may be secret


def _parsed(text: str) -> Tree:
    try:
        return loads(text)
    except (ValueError, RecursionError):
        raise SerializationError(STORED, "damaged: not JSON") from None
