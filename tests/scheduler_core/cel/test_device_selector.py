"""Compilation and evaluation of device selectors: results, errors and limits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler_core.cel.device_selector import (
    DeviceFacts,
    DeviceSelector,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_selector,
)

GPU = DeviceFacts(
    driver="gpu.example.com",
    allow_multiple_allocations=True,
    attributes={
        "model": "A100",
        "count": 8,
        "shared": True,
        "version": Version("1.2.3"),
        "other.example.com/model": "H100",
        "links": (1, 2, 3),
    },
    capacity={"memory": "80Gi", "other.example.com/memory": "1e3"},
)
ADVICE = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional "
    "fields"
)
MODEL = 'device.attributes["gpu.example.com"].model'


def evaluate(expression: str) -> bool:
    return compile_selector(expression).matches(GPU)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", True),
        (f'{MODEL} == "A100"', True),
        (f"{MODEL} == 3", False),
        ('device.attributes["other.example.com"].model == "H100"', True),
        ('device.attributes["none"].size() == 0', True),
        ('"none" in device.attributes', False),
        ('string(1e6) == "1e+06" && string(123456.0) == "123456" && string(1e20) == "1e+20"', True),
        ('device.attributes["gpu.example.com"].count > 2.5', True),
        ('device.attributes["gpu.example.com"].shared', True),
        ('device.attributes["gpu.example.com"].version.isGreaterThan(semver("1.2.3-rc.1"))', True),
        ('device.attributes["gpu.example.com"].links.exists(x, x == 3)', True),
        ('device.attributes["gpu.example.com"].links.includes(4)', False),
        ('device.attributes["gpu.example.com"].version.includes(4)', False),
        ('device.attributes["gpu.example.com"].version.includes(semver("1.2.3"))', True),
        ('[semver("1.2.3")].includes(4)', False),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["other.example.com"].memory == quantity("1k")', True),
        ('has(device.attributes["none"].x)', False),
        (f"has({MODEL})", True),
        ('device.attributes["none"].?x.orValue("y") == "y"', True),
        ('device.attributes["gpu.example.com"][?"model"].hasValue()', True),
        ('cel.bind(dra, device.attributes["gpu.example.com"], dra.shared && dra.count == 8)', True),
        ('cel.bind(unused, device.attributes["none"].x, true)', True),
        ('device.attributes["none"].x == 1 || true', True),
        ('!(device.attributes["none"].x == 1 && false)', True),
        ("device.attributes.all(d, m, 'model' in m)", True),
        ("[1, 2].map(x, x * 2) == [2, 4] && [3, 1].sortBy(x, -x) == [3, 1]", True),
        ("{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}", True),
        ("optional.of(1).optMap(x, x + 1) == optional.of(2)", True),
        ("'abc'.matches('^[a-c]{3}$') && 'x1y2'.findAll('[0-9]') == ['1', '2']", True),
        ('r"\\d" == "\\\\d" && """a"b""" == "a\\"b" && b"\\x61" == b"a"', True),
        ("1u + 2u == 3u && 7 / -2 == -3 && -7 % 3 == -1 && 1.0 / 0.0 > 1e300", True),
        ("timestamp('2024-02-29T00:00:00Z') + duration('24h') == timestamp('2024-03-01T00:00:00Z')", True),
        ("quantity('1.5Gi').isInteger() || quantity('1500m').asInteger() == 1 || true", True),
        ("'%d-%s'.format([3, [true, null]]) == '3-[true, null]'", True),
    ],
)
def test_result(expression: str, expected: bool) -> None:
    assert evaluate(expression) is expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (MODEL.replace("model", "absent") + " == 1", "no such key: absent" + ADVICE),
        (f"{MODEL} > 3", "no such overload"),
        (f"{MODEL}.x == 1", "no such key: x" + ADVICE),
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("1 / 0 == 1", "division by zero"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("dyn(true) + 1 == 2", "no such overload: _+_"),
        ("dyn(1).lowerAscii() == 'a'", "no such overload: lowerAscii(int)"),
        (
            MODEL,
            (
                "CEL result of type string could not be converted to bool: "
                "unsupported native conversion from string to 'bool'"
            ),
        ),
        ("lists.range(2000000).size() == 1", "lists.range: size 2000000 exceeds maximum allowed (1000000)"),
        (
            "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))",
            "operation cancelled: actual cost limit exceeded",
        ),
    ],
)
def test_runtime_error(expression: str, message: str) -> None:
    with pytest.raises(SelectorRuntimeError) as raised:
        evaluate(expression)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("foo == 1", "1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^"),
        ("foo{a: 1} == 1", "1:4: undeclared reference to 'foo' (in container '')\n | foo{a: 1} == 1\n | ...^"),
        (
            "x.y{a: bar, ?b: 2}.c",
            "1:4: undeclared reference to 'x.y' (in container '')\n | x.y{a: bar, ?b: 2}.c\n | ...^",
        ),
        ("device.foo == 1", "1:7: undefined field 'foo'\n | device.foo == 1\n | ......^"),
        ("true\n && foo", "2:5: undeclared reference to 'foo' (in container '')\n |  && foo\n | ....^"),
        ("'é' == foo", "1:8: undeclared reference to 'foo' (in container '')\n | 'é' == foo\n | .\uff0e.....^"),
        (
            "1 + 'a' == 2",
            "1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a' == 2\n | ..^",
        ),
        ("'a'.matches('(')", "1:13: invalid matches argument\n | 'a'.matches('(')\n | ............^"),
        ("[1, 'a'] == []", "1:5: expected type 'int' but found 'string'\n | [1, 'a'] == []\n | ....^"),
        ("true true", "1:6: Syntax error: extraneous input 'true' expecting <EOF>\n | true true\n | .....^"),
        ("(true", "1:6: Syntax error: missing ')' at '<EOF>'\n | (true\n | .....^"),
    ],
)
def test_compile_error_with_position(expression: str, message: str) -> None:
    with pytest.raises(SelectorCompileError) as raised:
        compile_selector(expression)
    assert str(raised.value) == f"compilation failed: ERROR: <input>:{message}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("int('a') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"),
        ("true || " * 1300 + "true", "expression exceeds the maximum length of 10240 bytes"),
    ],
)
def test_compile_error(expression: str, message: str) -> None:
    with pytest.raises(SelectorCompileError) as raised:
        compile_selector(expression)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 3000 + "true" + ")" * 3000,
        "!" * 3000 + "(" * 300 + "true" + ")" * 300,
        "[" * 3000 + "]" * 3000 + " == []",
        "1" + " + 1" * 300 + " == 1",
        "true" + "".join([f" ? {i} == 1" for i in range(300)]) + " : true" * 300,
        "device" + ".a" * 400,
        "f(" * 2000,
    ],
)
def test_deep_nesting_is_a_compile_error(expression: str) -> None:
    with pytest.raises(SelectorCompileError, match=r"recursion limit|recursion depth|Syntax error|undefined field"):
        compile_selector(expression)


def test_nesting_below_the_limit_evaluates() -> None:
    assert evaluate("(" * 240 + "1" + " + 1)" * 240 + " == 241")
    assert evaluate("1" + " + 1" * 240 + " == 241")


NAMES = [f"v{index}" for index in range(26)]
DOUBLED = "".join(f"cel.bind({new}, {old} + {old}, " for old, new in pairwise(NAMES)) + "v25.size() > 0" + ")" * 26


@pytest.mark.parametrize(
    "expression",
    [
        f"cel.bind(v0, 'aaaaaaaaaaaaaaaa', {DOUBLED}",
        f"cel.bind(v0, [1, 2, 3, 4], {DOUBLED}",
        "lists.range(999).all(a, lists.range(999).all(b, lists.range(999).all(c, a + b + c >= 0)))",
        "lists.range(2000).distinct().size() > 0",
    ],
)
def test_hostile_expression_stops_at_the_cost_limit(expression: str) -> None:
    with pytest.raises(SelectorRuntimeError, match="actual cost limit exceeded"):
        evaluate(expression)


def test_pattern_does_not_backtrack() -> None:
    assert not evaluate(f"'{'a' * 2000}'.matches('^(a*)*(a|aa)*(a*)*b$')")


def test_type_that_doubles_is_a_compile_error() -> None:
    names = [f"v{index}" for index in range(40)]
    bindings = "".join(f"cel.bind({new}, {{{old}: {old}}}, " for old, new in pairwise(names))
    with pytest.raises(SelectorCompileError, match="expression type exceeds"):
        compile_selector(f"cel.bind(v0, {{1: 1}}, {bindings}true" + ")" * len(names))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", frozenset()),
        ("device.driver == 'x' && device.allowMultipleAllocations", frozenset()),
        (f"{MODEL} == 'x'", frozenset({("gpu.example.com", "model")})),
        ("has(device.attributes['a'].b) && device.capacity['c'][?'d'].hasValue()", frozenset({("a", "b"), ("c", "d")})),
        ("cel.bind(a, device.attributes['a'], a.b && has(a.c))", frozenset({("a", "b"), ("a", "c")})),
        ("cel.bind(d, device, cel.bind(a, d.attributes, a['a'].b))", frozenset({("a", "b")})),
        ("cel.bind(a, device.attributes['a'], a.size() == 0 || a.b)", None),
        ("cel.bind(a, device.attributes['a'], cel.bind(a, a, a.b))", None),
        ("device.attributes['a'].exists(k, k == 'x')", None),
        ("'a' in device.attributes", None),
        ("device.attributes[device.driver].x == 1", None),
        ("[device].size() == 1", None),
    ],
)
def test_reads(expression: str, expected: frozenset[tuple[str, str]] | None) -> None:
    assert compile_selector(expression).reads == expected


def test_selector_stores_its_expression() -> None:
    selector = compile_selector("true")
    assert isinstance(selector, DeviceSelector)
    assert selector.expression == "true"


def test_invalid_version_is_a_runtime_error() -> None:
    facts = DeviceFacts(driver="d", attributes={"v": Version("1.2")})
    with pytest.raises(SelectorRuntimeError, match=r"attribute v: parse semantic version: No Major\.Minor\.Patch"):
        compile_selector("true").matches(facts)
