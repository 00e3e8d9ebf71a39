"""JSON from the API server, whatever its depth.

Owns what becomes of values that are nested deeper than any object of Kubernetes has reason to be: they are read as
null. Must not know what is read. Why this is needed: whoever may create a pod may write its ``managedFields``, and who
may create a PluginConfig its ``args``, both of any shape and up to 10,000 levels deep (the API server's own limit),
while Python's decoders end at about 1,000 with a RecursionError. One such object must not stop a watch, let alone the
operator. What is cut at :data:`MAX_DEPTH` is still far deeper than a custom resource may be, so it is refused there
rather than taken by half.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 128

# Texts are matched so that brackets in them do not count; possessive, so that no text makes the search go back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_OPENING = frozenset(b"[{")
_QUOTE = ord('"')


def shallow(text: bytes) -> bytes:
    """Give JSON in which what lies deeper than :data:`MAX_DEPTH` levels is null.

    Args:
        text: JSON, valid or not; what is not valid stays so.

    Returns:
        The same text where nothing lies deeper.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return text
    parts: list[bytes] = []
    kept = 0
    depth = 0
    for token in _TOKENS.finditer(text):
        mark = text[token.start()]
        if mark == _QUOTE:
            continue
        if mark in _OPENING:
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [text[kept : token.start()], b"null"]
        else:
            if depth == MAX_DEPTH + 1:
                kept = token.end()
            depth -= 1
    if not parts:
        return text
    return b"".join([*parts, text[kept:]]) if depth <= MAX_DEPTH else text


class DeepDecoder(Generic[T]):
    """As :class:`msgspec.json.Decoder`, but depth does not stop it.

    Args:
        kind: What is read.
    """

    __slots__ = ("_decoder",)

    def __init__(self, kind: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, text: bytes | bytearray | msgspec.Raw) -> T:
        """Read JSON.

        Raises:
            DecodeError: It is no JSON, or not of the expected form.
        """
        try:
            return self._decoder.decode(text)
        except RecursionError:
            return self._decoder.decode(shallow(bytes(text)))
