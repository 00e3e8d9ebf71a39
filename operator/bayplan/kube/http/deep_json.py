"""JSON decoding without a limit on nesting depth; values nested too deep are read as null.

One object that is nested deeper than Python's decoders go must not stop a watch or the operator.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import msgspec

from scheduler_core.model.nullable_forms import without_nulls

T = TypeVar("T")

# Far deeper than a custom resource may be, so validation rejects a cut object and does not use a part of it.
MAX_DEPTH = 128

# Matches strings, so that brackets in them do not count; possessive quantifiers prevent backtracking.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_OPENING = frozenset(b"[{")
_QUOTE = ord('"')


def shallow(text: bytes) -> bytes:
    """Return JSON in which values nested deeper than :data:`MAX_DEPTH` are null; the same text if there is none."""
    # An upper bound of the depth, because brackets in strings count too; cheaper than the search for tokens.
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return text
    parts: list[bytes] = []
    end = 0
    depth = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark == _QUOTE:
            continue
        if mark in _OPENING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [text[end : token.start()], b"null"]
        else:
            if depth == MAX_DEPTH + 1:
                end = token.end()
            depth -= 1
    if not parts:
        return text
    # Brackets without a pair: the decoder must report the text as it is.
    return b"".join([*parts, text[end:]]) if depth <= MAX_DEPTH else text


class DeepDecoder(Generic[T]):
    """Like :class:`msgspec.json.Decoder`, for any nesting depth."""

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, text: bytes | bytearray | msgspec.Raw) -> T:
        """Decode JSON; raises DecodeError if the text is not JSON, or not of the type."""
        try:
            return self._decoder.decode(text)
        except RecursionError:
            # A user who may create a pod can write any managedFields, and one who may create a PluginConfig any args,
            # up to 10,000 levels deep (the API server's own limit); Python's decoders fail at about 1,000.
            return self._decoder.decode(shallow(bytes(text)))


_PLAIN: DeepDecoder[Any] = DeepDecoder(Any)


class ObjectJsonDecoder(DeepDecoder[T]):
    """Decoder of JSON that a Go program wrote: null is read as in :mod:`scheduler_core.model.nullable_forms`."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[T]) -> None:
        super().__init__(kind)
        self._kind = kind

    def decode(self, text: bytes | bytearray | msgspec.Raw) -> T:
        try:
            return super().decode(text)
        except msgspec.ValidationError:
            # Only after a failure: few objects have a null, and this decodes the text a second time.
            return msgspec.convert(without_nulls(_PLAIN.decode(text), self._kind), self._kind)
