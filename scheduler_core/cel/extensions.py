"""Extensions of cel-go (strings, version 2; lists; sets), and Kubernetes' libraries of lists and of regexes (RE2).

``format`` formats in the locale en_US, as the reference does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cmp_to_key, lru_cache, reduce
from itertools import pairwise
from typing import Any

import re2

from scheduler_core.cel.overloads import (
    COST_LIMIT,
    REGEX,
    TRAVERSAL,
    Frame,
    Implementation,
    first,
    flattened,
    function,
    joined,
    operator,
    result_list,
    searched,
    second,
    self_compared,
    sets,
    traversed,
)
from scheduler_core.cel.problems import CostLimitError, EvaluationError
from scheduler_core.cel.standard_functions import ORDERED, add, compare, contains, equal, no_overload, to_string
from scheduler_core.cel.values import MISSING, NONE, Duration, Mapping, Optional, Timestamp, Uint, go_float, type_name

# -- regular expressions, matched in time linear in the text --------------------------------------------------------

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 8 << 20
_COMPILATION_WORK = 20_000
# Texts of Go's regexp/syntax by what RE2 reports.
_GO_MESSAGES = (
    ("missing )", "missing closing )"),
    ("unexpected )", "unexpected )"),
    ("missing ]", "missing closing ]"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
    ("invalid character class", "invalid character class"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid UTF-8", "invalid UTF-8"),
)


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> Any:
    return re2.compile(pattern, _OPTIONS)


def compile_pattern(pattern: str, frame: Frame | None = None) -> Any:
    """Return the compiled pattern. Raises EvaluationError: the pattern is invalid.

    Args:
        frame: Counts the compilation of a pattern that is not cached, which the reference's cost leaves out.
    """
    misses = _compile.cache_info().misses
    try:
        return _compile(pattern)
    except re2.error as error:
        raise EvaluationError(_message(pattern, error)) from None
    finally:
        if frame is not None and _compile.cache_info().misses != misses:
            frame.add_work(_COMPILATION_WORK)


def _message(pattern: str, error: Exception) -> str:
    raw = error.args[0] if error.args else ""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    for prefix, message in _GO_MESSAGES:
        if text.startswith(prefix):
            _, separator, part = text.partition(": ")
            if message == "trailing backslash at end of expression":
                return f"error parsing regexp: {message}: ``"
            shown = part if separator and message != "missing closing )" else pattern
            return f"error parsing regexp: {message}: `{shown}`"
    return f"error parsing regexp: {text}: `{pattern}`"


def _matches(text: Any, pattern: Any, frame: Frame) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise EvaluationError("no such overload")
    return compile_pattern(pattern, frame).search(text) is not None


def _searched(text: Any, pattern: str, frame: Frame) -> Any:
    try:
        compiled = compile_pattern(pattern, frame)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None
    if type(text) is not str:
        raise EvaluationError("no such overload")
    return compiled


def _find(text: Any, pattern: Any, frame: Frame) -> str:
    return next(iter(_find_all(text, pattern, 1, frame)), "")


def _find_all(text: Any, pattern: Any, *rest: Any) -> tuple[str, ...]:
    """Return the first matches, all if the limit is negative. An empty match beside a match does not count."""
    limit = rest[0] if len(rest) > 1 else -1
    if type(limit) is not int:
        raise EvaluationError("no such overload")
    found: list[str] = []
    end_of_last = -1
    for match in _searched(text, pattern, rest[-1]).finditer(text):
        if 0 <= limit <= len(found):
            break
        if match.start() == match.end() == end_of_last:
            continue
        end_of_last = match.end()
        found.append(str(match.group()))
    return tuple(found)


# -- format ---------------------------------------------------------------------------------------------------------

_CLAUSE = re.compile(r"(?:\.([0-9]*))?(.)?", re.DOTALL)
_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1_000
_MAX_DIGITS = 20
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = ("int", "uint")
_STRING_RULE = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps"
)
_HEX_RULE = "only integers, byte buffers, and strings can be formatted as hex"
_HEX_TYPES = (*_INTEGERS, "string", "bytes")
_TEXT_TYPES = (
    *_INTEGERS, "list", "map", "double", "bool", "string", "bytes", "type", "null_type",
    "google.protobuf.Timestamp", "google.protobuf.Duration",
)  # fmt: skip
# By clause: the types that it supports, and the error for others.
_CLAUSES: dict[str, tuple[tuple[str, ...], str]] = {
    "s": (_TEXT_TYPES, _STRING_RULE),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (("double", "string"), "fixed-point clause can only be used on doubles"),
    "e": (("double", "string"), "scientific clause can only be used on doubles"),
    "b": ((*_INTEGERS, "bool"), "only integers and bools can be formatted as binary"),
    "x": (_HEX_TYPES, _HEX_RULE),
    "X": (_HEX_TYPES, _HEX_RULE),
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def _format(template: str, args: tuple[Any, ...], frame: Frame) -> str:
    def formatted(verb: str, precision: int, index: int) -> str:
        text = _formatted(verb, precision, args[index], frame)
        frame.add_work(len(text))
        return text

    return _walk(template, len(args), formatted)[0]


def check_format(template: str, kinds: list[str]) -> tuple[str, int]:
    """Return what is wrong with the types of a template's arguments, and the index of the wrong one or -1."""
    failed = -1

    def checked(verb: str, _precision: int, index: int) -> str:
        nonlocal failed
        if kinds[index] not in ("dyn", *_CLAUSES[verb][0]):
            failed = index
            raise EvaluationError(f"{_CLAUSES[verb][1]}, was given {kinds[index]}")
        return ""

    try:
        used = _walk(template, len(kinds), checked)[1]
    except EvaluationError as error:
        return str(error), failed
    if len(kinds) > used:
        return f"too many arguments supplied to string.format (expected {used}, got {len(kinds)})", -1
    return "", -1


def _walk(template: str, count: int, formatted: Callable[[str, int, int], str]) -> tuple[str, int]:
    parts = []
    position = used = 0
    while position < len(template):
        start = template.find("%", position)
        if start < 0:
            parts.append(template[position:])
            break
        parts.append(template[position:start])
        if template[start + 1 : start + 2] == "%":
            parts.append("%")
            position = start + 2
            continue
        if used >= count:
            raise EvaluationError(f"index {used} out of range")
        if start + 1 >= len(template):
            raise EvaluationError("unexpected end of string")
        verb, precision, position = _clause(template, start + 1)
        try:
            parts.append(formatted(verb, precision, used))
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error}") from None
        used += 1
    return "".join(parts), used


def _clause(template: str, start: int) -> tuple[str, int, int]:
    match = _CLAUSE.match(template, start)
    assert match is not None
    digits, verb = match[1], match[2]
    prefix = "could not parse formatting clause: "
    if verb is None:
        raise EvaluationError(f"{prefix}error while parsing precision: could not find end of precision specifier")
    if digits == "":
        reason = 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'
        raise EvaluationError(f"{prefix}error while parsing precision: {reason}")
    precision = _DEFAULT_PRECISION if digits is None else int(digits[:_MAX_DIGITS])
    if precision > _MAX_PRECISION:
        raise EvaluationError(f"{prefix}precision {precision} exceeds maximum allowed precision {_MAX_PRECISION}")
    if verb not in _CLAUSES:
        raise EvaluationError(f'{prefix}unrecognized formatting clause "{verb}"')
    return verb, precision, match.end()


def _formatted(verb: str, precision: int, arg: Any, frame: Frame) -> str:
    if verb == "s":
        return _display(arg, frame)
    if verb in "fe":
        return _real(verb, precision, arg)
    if verb in "xX" and type(arg) in (str, bytes):
        text: str = (arg if type(arg) is bytes else arg.encode(errors="surrogatepass")).hex()
        return text.upper() if verb == "X" else text
    if type(arg) not in (int, Uint) and (verb != "b" or type(arg) is not bool):
        raise EvaluationError(f"{_CLAUSES[verb][1]}, was given {type_name(arg)}")
    return format(int(arg), verb)


def _real(verb: str, precision: int, arg: Any) -> str:
    number = _SPECIAL.get(arg) if type(arg) is str else arg
    if type(number) is not float:
        raise EvaluationError(f"{_CLAUSES[verb][1]}, was given {type_name(arg)}")
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if verb == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    # Python prints a sign and at least two digits; the reference leaves out a positive sign.
    return f"{mantissa}\u202f\u00d7\u202f10{exponent.removeprefix('+').translate(_SUPERSCRIPT)}"


def _display(arg: Any, frame: Frame) -> str:
    if type(arg) is tuple:
        return "[" + ", ".join([_element(element, frame) for element in arg]) + "]"
    if isinstance(arg, Mapping):
        entries = sorted([(_key(key, frame), _element(arg.find(key), frame)) for key in arg.iterate()])
        return "{" + ", ".join([f"{key}: {value}" for key, value in entries]) + "}"
    if arg is None:
        return "null"
    if type_name(arg) not in _TEXT_TYPES:
        raise EvaluationError(f"{_STRING_RULE}, was given {type_name(arg)}")
    return to_string(arg, frame)


def _key(key: Any, frame: Frame) -> str:
    if type(key) not in (str, int, Uint, bool):
        raise EvaluationError(f"no formatting function for map key of type {type_name(key)}")
    return _element(key, frame)


def _element(arg: Any, frame: Frame) -> str:
    if type(arg) is str:
        return f'"{arg}"'
    if type(arg) is float:
        return go_float(arg, positional=True) if math.isfinite(arg) else f'"{arg}"'
    if type(arg) is Timestamp:
        return f'timestamp("{to_string(arg, frame)}")'
    if type(arg) is Duration:
        return f'duration("{to_string(arg, frame)}")'
    return _display(arg, frame)


# -- strings --------------------------------------------------------------------------------------------------------

_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_QUOTED = str.maketrans(
    dict(zip('\a\b\f\n\r\t\v\\"', ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v", "\\\\", '\\"'), strict=True))
)


def _strings_only(run: Callable[[str, str], bool]) -> Implementation:
    def call(text: Any, other: Any, _frame: Frame) -> bool:
        if type(text) is not str or type(other) is not str:
            raise EvaluationError("no such overload")
        return run(text, other)

    return call


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int, _frame: Frame) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _position(text: str, wanted: str, offset: int, find: Callable[[], int]) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not wanted:
        return min(offset, len(text))
    return -1 if offset >= len(text) else find()


def _index_of(text: str, wanted: str, *rest: Any) -> int:
    offset = rest[0] if len(rest) > 1 else 0
    return _position(text, wanted, offset, lambda: text.find(wanted, offset))


def _last_index_of(text: str, wanted: str, *rest: Any) -> int:
    if len(rest) == 1:
        return text.rfind(wanted)
    return _position(text, wanted, rest[0], lambda: text.rfind(wanted, 0, rest[0] + len(wanted)))


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


def _size(value: Any, _frame: Frame) -> int:
    if type(value) in (str, bytes, tuple) or isinstance(value, Mapping):
        return len(value)
    raise no_overload("size", value)


# -- lists and sets ---------------------------------------------------------------------------------------------------

_MAX_RANGE = 1_000_000


def _slice(elements: Any, start: int, end: int, _frame: Frame) -> Any:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: Any, *rest: Any) -> Any:
    depth, frame = rest if len(rest) > 1 else (1, rest[0])
    if type(elements) is not tuple or type(depth) is not int:
        text = f"{type_name(elements)}.flatten({type_name(depth) if len(rest) > 1 else ''})"
        raise EvaluationError(f"no such overload: {text}")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    _flatten_into(flat, elements, depth, frame)
    return tuple(flat)


def _flatten_into(flat: list[Any], elements: tuple[Any, ...], depth: int, frame: Frame) -> None:
    frame.add_work(len(elements))
    for element in elements:
        if type(element) is tuple and depth:
            _flatten_into(flat, element, depth - 1, frame)
        else:
            flat.append(element)


def _range(count: int, _frame: Frame) -> Any:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    if count > _MAX_RANGE:
        raise EvaluationError(f"lists.range: size {count} exceeds maximum allowed ({_MAX_RANGE})")
    return tuple(range(count))


def _distinct(elements: Any, frame: Frame) -> Any:
    if len(elements) ** 2 * 2 > COST_LIMIT:
        raise CostLimitError
    distinct: list[Any] = []
    for element in elements:
        if not contains(tuple(distinct), element, frame):
            distinct.append(element)
    return tuple(distinct)


def _sort(elements: Any, frame: Frame) -> Any:
    if type(elements) is not tuple:
        raise no_overload("sort", elements)
    return _sort_by(elements, elements, frame)


def _sort_by(elements: Any, keys: Any, _frame: Frame) -> Any:
    if type(elements) is not tuple or type(keys) is not tuple:
        raise no_overload("@sortByAssociatedKeys", elements)
    if len(elements) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if len(elements) ** 2 * 2 > COST_LIMIT:
        raise CostLimitError
    if type(keys[0]) not in ORDERED:
        raise EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")

    def order(one: int, two: int) -> int:
        try:
            return compare(keys[one], keys[two], "sort")
        except EvaluationError:
            return 0

    ordered = sorted(range(len(keys)), key=cmp_to_key(order))
    return tuple(elements[index] for index in ordered)


def _unwrap(elements: Any, frame: Frame) -> Any:
    frame.add_work(len(elements))
    unwrapped = []
    for element in elements:
        if type(element) is not Optional:
            raise EvaluationError(f"value {element} is not optional")
        if element.value is not MISSING:
            unwrapped.append(element.value)
    return tuple(unwrapped)


def _is_sorted(elements: Any, _frame: Frame) -> bool:
    for one, two in pairwise(elements):
        if type(one) not in ORDERED:
            raise EvaluationError("no such overload")
        if compare(one, two, "isSorted") > 0:
            return False
    return True


def _sum(zero: Any) -> Callable[[Any, Frame], Any]:
    return lambda elements, frame: reduce(lambda total, element: add(total, element, frame), elements, zero)


def _extreme(name: str, sign: int) -> Callable[[Any, Frame], Any]:
    def extreme(elements: Any, _frame: Frame) -> Any:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        best = elements[0]
        for element in elements[1:]:
            if type(element) not in ORDERED:
                raise EvaluationError("no such overload")
            if compare(element, best, name) * sign > 0:
                best = element
        return best

    return extreme


def _index(elements: Any, value: Any, frame: Frame, *, step: int = 1) -> int:
    """Return the first index of a value, -1 for none; with *step* -1 the last one."""
    frame.add_work(len(elements))
    for index in range(len(elements))[::step]:
        try:
            if equal(elements[index], value, frame):
                return index
        except EvaluationError:
            continue
    return -1


def _includes_all(elements: Any, wanted: Any, frame: Frame) -> bool:
    return all(contains(elements, element, frame) for element in wanted)


def _of_lists(result: str) -> str:
    """Return the signatures of a method of lists of ordered types, whose *result* has ``{}`` for the type."""
    return "; ".join([f"list({kind}).() -> {result.format(kind)}" for kind in _KINDS])


_KINDS = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_TWO_LISTS = "(list(T), list(T)) -> bool"
_SORTED_BY = " | ".join([f"list(T).(list({kind}))" for kind in _KINDS])

FUNCTIONS = [
    function("charAt", "string.(int) -> string", _char_at),
    operator("contains", "string.(string) -> bool", _strings_only(str.__contains__), searched(0.0, TRAVERSAL)),
    operator("endsWith", "string.(string) -> bool", _strings_only(str.endswith), second(TRAVERSAL)),
    operator("startsWith", "string.(string) -> bool", _strings_only(str.startswith), second(TRAVERSAL)),
    function("find", "string.(string) -> string", _find, REGEX),
    function("findAll", "string.(string) | string.(string, int) -> list(string)", _find_all, REGEX),
    function("format", "string.(list(dyn)) -> string", _format, exact=first(TRAVERSAL)),
    function("indexOf", "string.(string) | string.(string, int) -> int", _index_of, traversed),
    function("join", "list(string).() | list(string).(string) -> string", _join, joined),
    function("lastIndexOf", "string.(string) | string.(string, int) -> int", _last_index_of, traversed),
    function("lowerAscii", "string.() -> string", lambda text, _frame: text.translate(_LOWER), first(TRAVERSAL)),
    operator("matches", "(string, string) | string.(string) -> bool", _matches, REGEX),
    function(
        "replace", "string.(string, string) | string.(string, string, int) -> string", _replace, first(2 * TRAVERSAL)
    ),
    operator(
        "size",
        "(bytes) | bytes.() | (list(A)) | list(A).() | (map(A, B)) | map(A, B).() | (string) | string.() -> int",
        _size,
    ),
    function("split", "string.(string) | string.(string, int) -> list(string)", _split, first(2 * TRAVERSAL)),
    function(
        "strings.quote", "(string) -> string", lambda t, _frame: f'"{t.translate(_QUOTED)}"', exact=first(TRAVERSAL)
    ),
    function("substring", "string.(int) | string.(int, int) -> string", _substring, first(TRAVERSAL)),
    function("trim", "string.() -> string", lambda text, _frame: text.strip(_SPACE), first(TRAVERSAL)),
    function("upperAscii", "string.() -> string", lambda text, _frame: text.translate(_UPPER), first(TRAVERSAL)),
    operator("@sortByAssociatedKeys", f"{_SORTED_BY} -> list(T)", _sort_by, self_compared(1)),
    function("distinct", "list(T).() -> list(T)", _distinct, self_compared(0)),
    function("first", "list(V).() -> optional(V)", lambda items, _frame: Optional(items[0]) if items else NONE),
    operator("flatten", "list(list(T)).() -> list(T); list(dyn).(int) -> list(dyn)", _flatten, flattened),
    function(
        "includes", "dyn.(dyn) -> bool", lambda a, b, f: _index(a if type(a) is tuple else (a,), b, f) >= 0, traversed
    ),
    function("indexOf", "list(A).(A) -> int", _index, traversed),
    function("isSorted", _of_lists("bool"), _is_sorted, traversed),
    function("last", "list(V).() -> optional(V)", lambda items, _frame: Optional(items[-1]) if items else NONE),
    function("lastIndexOf", "list(A).(A) -> int", lambda a, b, f: _index(a, b, f, step=-1), traversed),
    function("lists.range", "(int) -> list(int)", _range, result_list),
    function("max", _of_lists("{}"), _extreme("max", 1), traversed),
    function("min", _of_lists("{}"), _extreme("min", -1), traversed),
    function("optional.unwrap", "(list(optional(V))) -> list(V)", _unwrap),
    function("reverse", "list(T).() -> list(T)", lambda elements, _frame: elements[::-1], result_list),
    function("sets.contains", _TWO_LISTS, _includes_all, sets(1)),
    function("sets.equivalent", _TWO_LISTS, lambda a, b, f: _includes_all(a, b, f) and _includes_all(b, a, f), sets(2)),
    function("sets.intersects", _TWO_LISTS, lambda a, b, f: any(contains(b, each, f) for each in a), sets(1)),
    function("slice", "list(T).(int, int) -> list(T)", _slice, result_list),
    operator("sort", _of_lists("list({})"), _sort, self_compared(0)),
    *[
        function("sum", f"list({kind}).() -> {kind}", _sum(zero), traversed)
        for kind, zero in (("int", 0), ("uint", Uint(0)), ("double", 0.0), ("duration", Duration(0)))
    ],
    function("unwrapOpt", "list(optional(V)).() -> list(V)", _unwrap),
]
