"""Functions on strings: cel-go's strings extension, version 2, and Kubernetes' regex library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler_core.cel import regular_expressions
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.string_format import format_string
from scheduler_core.cel.values import type_name

_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_COMPILATION_WORK = 20_000
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_QUOTED = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip


def _strings_only(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(text: Any, other: Any, _frame: Frame) -> Any:
        if type(text) is not str or type(other) is not str:
            raise EvaluationError("no such overload")
        return function(text, other)

    return call


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int, _frame: Frame) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, wanted: str, *rest: Any) -> int:
    offset = rest[0] if len(rest) > 1 else 0
    if offset < 0:
        raise _out_of_range(offset)
    if not wanted:
        return int(min(offset, len(text)))
    return -1 if offset >= len(text) else text.find(wanted, offset)


def _last_index_of(text: str, wanted: str, *rest: Any) -> int:
    if len(rest) == 1:
        return text.rfind(wanted)
    offset = rest[0]
    if offset < 0:
        raise _out_of_range(offset)
    if not wanted:
        return int(min(offset, len(text)))
    return -1 if offset >= len(text) else text.rfind(wanted, 0, offset + len(wanted))


def _substring(text: str, start: int, *rest: Any) -> str:
    end = rest[0] if len(rest) > 1 else len(text)
    if len(rest) > 1 and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _replace(text: str, old: str, new: str, *rest: Any) -> str:
    frame: Frame = rest[-1]
    limit = int(rest[0]) if len(rest) > 1 else -1
    count = text.count(old)
    frame.add_work(len(text) + count * len(new))
    return text.replace(old, new, min(limit, count)) if limit >= 0 else text.replace(old, new)


def _split(text: str, separator: str, *rest: Any) -> tuple[str, ...]:
    limit = int(rest[0]) if len(rest) > 1 else -1
    if limit == 0:
        return ()
    if not separator:
        if limit < 0 or limit >= len(text):
            return tuple(text)
        return (*text[: limit - 1], text[limit - 1 :])
    return tuple(text.split(separator, -1 if limit < 0 else min(limit - 1, len(text))))


def _join(elements: tuple[Any, ...], *rest: Any) -> str:
    frame: Frame = rest[-1]
    separator = rest[0] if len(rest) > 1 else ""
    length = len(elements) * len(separator)
    for element in elements:
        if type(element) is not str:
            raise EvaluationError(f"join: invalid input: {element}")
        length += len(element)
    frame.add_work(length)
    return str(separator).join(elements)


def _quote(text: str, _frame: Frame) -> str:
    return '"' + "".join([_QUOTED.get(char, char) for char in text]) + '"'


def _count_compilation(pattern: Any, frame: Frame) -> None:
    """Count the steps of the compilation of a pattern that is not cached; the reference's cost leaves them out."""
    if type(pattern) is str and not regular_expressions.is_cached(pattern):
        frame.add_work(_COMPILATION_WORK)


def _matches(text: Any, pattern: Any, frame: Frame) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise EvaluationError("no such overload")
    _count_compilation(pattern, frame)
    return regular_expressions.matches(text, pattern)


def _find(text: Any, pattern: Any, frame: Frame) -> str:
    _count_compilation(pattern, frame)
    return str(_illegal(regular_expressions.find, text, pattern))


def _find_all(text: Any, pattern: Any, *rest: Any) -> Any:
    _count_compilation(pattern, rest[-1])
    return _illegal(regular_expressions.find_all, text, pattern, rest[0] if len(rest) > 1 else -1)


def _illegal(function: Callable[..., Any], text: Any, pattern: str, *rest: Any) -> Any:
    if type(text) is not str:
        raise EvaluationError("no such overload")
    try:
        return function(text, pattern, *rest)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


def _size(value: Any, _frame: Frame) -> int:
    if type_name(value) not in ("string", "bytes", "list", "map"):
        raise EvaluationError(
            "no such overload" if type_name(value).startswith("google.") else "no such overload: size"
        )
    return len(value)


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "contains_string": _strings_only(lambda text, other: other in text),
    "ends_with_string": _strings_only(lambda text, other: text.endswith(other)),
    "starts_with_string": _strings_only(lambda text, other: text.startswith(other)),
    "matches": _matches,
    "matches_string": _matches,
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_of,
    "string_lower_ascii": lambda text, _frame: text.translate(_LOWER),
    "string_upper_ascii": lambda text, _frame: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring,
    "string_trim": lambda text, _frame: text.strip(_SPACE),
    "string_format": format_string,
    "list_join": _join,
    "list_join_string": _join,
    "strings_quote": _quote,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
SINGLETONS: dict[str, Callable[..., Any]] = {"size": _size}
UNGUARDED = frozenset({"contains", "endsWith", "startsWith", "matches", "flatten"})
