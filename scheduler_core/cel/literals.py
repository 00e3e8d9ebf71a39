"""Values of CEL's literals."""

from __future__ import annotations

import re
from typing import Any

from scheduler_core.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|[0-3][0-7][0-7]|.)", re.DOTALL)


class LiteralError(Exception):
    """A literal has no value."""


def literal_value(kind: str, text: str, sign: str) -> Any:
    """Return the value of a literal token.

    Args:
        kind: The kind of the token.
        text: Its text.
        sign: ``-`` if a minus sign precedes a number, else empty.

    Raises:
        LiteralError: A number exceeds its type, or an escape is invalid.
    """
    if kind == "NUM_INT":
        number = _integer(sign, text)
        if not MIN_INT <= number <= MAX_INT:
            raise LiteralError("invalid int literal")
        return number
    if kind == "NUM_UINT":
        number = _integer("", text[:-1])
        if number > MAX_UINT:
            raise LiteralError("invalid uint literal")
        return Uint(number)
    if kind == "NUM_FLOAT":
        real = float(sign + text)
        if real in (float("inf"), float("-inf")):
            raise LiteralError("invalid double literal")
        return real
    if kind in _KEYWORDS:
        return _KEYWORDS[kind]
    value = decode_string(text) if kind == "STRING" else decode_bytes(text)
    if value is None:
        raise LiteralError("unable to unescape string")
    return value


_KEYWORDS = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 100


def _integer(sign: str, text: str) -> int:
    base = 16 if text.startswith("0x") else 10
    digits = text.removeprefix("0x").lstrip("0") or "0"
    # Longer numbers exceed both types. Python limits the length of text that it converts.
    magnitude = MAX_UINT + 1 if len(digits) > _MAX_DIGITS else int(digits, base)
    return -magnitude if sign else magnitude


def decode_string(text: str) -> str | None:
    """Return the value of a STRING token; None if an escape names no code point."""
    raw, body = _body(text)
    if raw:
        return body
    decoded = []
    end = 0
    for match in _ESCAPED.finditer(body):
        decoded.append(body[end : match.start()])
        code = match[1]
        end = match.end()
        if code in _SIMPLE_ESCAPES:
            decoded.append(_SIMPLE_ESCAPES[code])
            continue
        point = int(code, 8) if code[0].isdigit() else int(code[1:], 16)
        if point > _MAX_CODE_POINT or point in _SURROGATES:
            return None
        decoded.append(chr(point))
    decoded.append(body[end:])
    return "".join(decoded)


def decode_bytes(text: str) -> bytes | None:
    """Return the value of a BYTES token; None if it has an escape that bytes do not support."""
    raw, body = _body(text[1:])
    if raw:
        return body.encode()
    decoded = bytearray()
    end = 0
    for match in _ESCAPED.finditer(body):
        decoded += body[end : match.start()].encode()
        code = match[1]
        end = match.end()
        if code in _SIMPLE_ESCAPES:
            decoded += _SIMPLE_ESCAPES[code].encode()
        elif code[0] in "uU":
            return None
        else:
            decoded.append(int(code, 8) if code[0].isdigit() else int(code[1:], 16))
    return bytes(decoded + body[end:].encode())


def _body(text: str) -> tuple[bool, str]:
    raw = text[0] in "rR"
    quoted = (text[1:] if raw else text).replace("\r\n", "\n").replace("\r", "\n")
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    return raw, quoted[width:-width]
