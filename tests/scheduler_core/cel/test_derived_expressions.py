"""Values of derived attributes. kube-scheduler v1.37.1 computed the expected values (oracle command ``selectors``)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.cel.device_selector import (
    AttributeValue,
    DeviceFacts,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_derived_attribute,
)

DEVICE = DeviceFacts(
    "d.example.com",
    attributes={
        "v": Version("1.2.3-rc.1+b"),
        "vs": (Version("1.0.0"), Version("2.0.0+x")),
        "l": (1, 2),
        "b": True,
        "bs": (True, False),
        "s": ("a",),
        "i": 1,
    },
    capacity={"m": "1Gi"},
)
VALUES: list[tuple[str, dict[str, Any]]] = [
    ("1", {"int": 1}),
    ("true", {"bool": True}),
    ('"x"', {"string": "x"}),
    ("AT.v", {"version": "1.2.3-rc.1+b"}),
    ("AT.vs", {"versions": ["1.0.0", "2.0.0+x"]}),
    ("AT.l", {"ints": [1, 2]}),
    ("AT.bs", {"bools": [True, False]}),
    ("AT.s", {"strings": ["a"]}),
    ("[]", {}),
    ("[semver('1.2.3+b'),semver('1.0.0-rc.1')]", {"versions": ["1.2.3+b", "1.0.0-rc.1"]}),
    ("semver('1.2.3-a.1+b.c')", {"version": "1.2.3-a.1+b.c"}),
    ("dyn(optional.of(1))", {"int": 1}),
    ("dyn([optional.of(1)])", {"ints": [1]}),
    ("dyn(type(1))", {"string": "int"}),
    ("AT.?l.orValue([])", {"ints": [1, 2]}),
    ("AT.l.map(x, x*2)", {"ints": [2, 4]}),
    ("AT.l.filter(x, x>100)", {}),
    ("AT.includes(1)", {"bool": False}),
    ("AT.i.includes(1)", {"bool": True}),
    ("[1]+[2]", {"ints": [1, 2]}),
    ("CAPACITY.m.asInteger()", {"int": 1073741824}),
]
RUNTIME_ERRORS = [
    ("dyn(1.5)", "unsupported CEL return type: float64"),
    ("dyn(1u)", "unsupported CEL return type: uint64"),
    ('dyn(b"a")', "unsupported CEL return type: []uint8"),
    ("dyn(null)", "unsupported CEL return type: structpb.NullValue"),
    ('dyn(duration("1s"))', "unsupported CEL return type: time.Duration"),
    ('dyn(timestamp("2020-01-01T00:00:00Z"))', "unsupported CEL return type: time.Time"),
    ("dyn({1:2})", "unsupported CEL return type: map[ref.Val]ref.Val"),
    ("dyn(device)", "unsupported CEL return type: map[string]interface {}"),
    ("dyn(CAPACITY)", "unsupported CEL return type: map[string]cel.Quantity"),
    ("dyn(CAPACITY.m)", "unsupported CEL return type: *resource.Quantity"),
    ("dyn(optional.none())", "unsupported CEL return type: <nil>"),
    ('dyn(ip("1.2.3.4"))', "unsupported CEL return type: netip.Addr"),
    ('dyn(cidr("1.2.3.0/24"))', "unsupported CEL return type: netip.Prefix"),
    ('dyn(url("http://a/b"))', "unsupported CEL return type: *url.URL"),
    ("dyn(format.dns1123Label())", "unsupported CEL return type: cel.Format"),
    ("[dyn(1),dyn('a')]", "expected list element at index 1 to be int, got string"),
    ("[dyn(true),dyn(1)]", "expected list element at index 1 to be bool, got int64"),
    ("[dyn(1.5)]", "unsupported list element type: float64"),
    ("[dyn([1])]", "unsupported list element type: []ref.Val"),
    ("[AT.l]", "unsupported list element type: []int64"),
    ("[dyn(AT.vs)]", "unsupported list element type: []cel.Semver"),
    ("[AT.s, dyn(1)]", "unsupported list element type: []string"),
    ("AT.absent", "no such key: absent"),
]
_UNSUPPORTED_TYPE = (
    "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars, not "
)
COMPILE_ERRORS = [
    (
        "dyn([semver('1.2.3'),'x'])",
        "compilation failed: ERROR: <input>:1:22: expected type 'kubernetes.Semver' but found 'string'",
    ),
    ("dyn([1, AT.bs])", "compilation failed: ERROR: <input>:1:43: expected type 'int' but found 'dyn'"),
    (
        "1.5",
        _UNSUPPORTED_TYPE + "double",
    ),
    (
        "[1.5]",
        _UNSUPPORTED_TYPE + "list(double)",
    ),
    (
        "1u",
        _UNSUPPORTED_TYPE + "uint",
    ),
    (
        "[[1]]",
        _UNSUPPORTED_TYPE + "list(list(int))",
    ),
    (
        "{1:2}",
        _UNSUPPORTED_TYPE + "map(int, int)",
    ),
    (
        "device",
        _UNSUPPORTED_TYPE + "kubernetes.DRADevice",
    ),
    (
        "null",
        _UNSUPPORTED_TYPE + "null_type",
    ),
    (
        "optional.of(1)",
        _UNSUPPORTED_TYPE + "optional_type(int)",
    ),
    (
        "CAPACITY.m",
        _UNSUPPORTED_TYPE + "kubernetes.Quantity",
    ),
    ("x", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')"),
]


def value(expression: str) -> AttributeValue:
    """Return the value for the device; ``AT`` and ``CAPACITY`` stand for its attributes and capacities."""
    text = expression.replace("AT.", 'device.attributes["d.example.com"].')
    text = text.replace("CAPACITY", 'device.capacity["d.example.com"]')
    return compile_derived_attribute(text).value(DEVICE)


@pytest.mark.parametrize(("expression", "expected"), VALUES)
def test_values(expression: str, expected: dict[str, Any]) -> None:
    """A derived value is a scalar or a list; an empty list has no type."""
    found = value(expression)
    plain = [
        each.text if isinstance(each, Version) else each for each in (found if isinstance(found, tuple) else (found,))
    ]
    ((kind, wanted),) = expected.items() or [("strings", [])]
    assert (plain if kind.endswith("s") else plain[0]) == wanted
    names = {bool: "bool", int: "int", str: "string", Version: "version"}
    kinds = {names[type(each)] for each in (found if isinstance(found, tuple) else (found,))}
    assert kinds <= {kind.removesuffix("s")}


@pytest.mark.parametrize(("expression", "message"), RUNTIME_ERRORS)
def test_runtime_errors(expression: str, message: str) -> None:
    """A value of another type is a runtime error that names the Go type."""
    with pytest.raises(SelectorRuntimeError) as caught:
        value(expression)
    assert str(caught.value) == message


@pytest.mark.parametrize(("expression", "message"), COMPILE_ERRORS)
def test_compile_errors(expression: str, message: str) -> None:
    """An expression of a static type that is not allowed does not compile."""
    with pytest.raises(SelectorCompileError) as caught:
        value(expression)
    assert str(caught.value).splitlines()[0] == message
