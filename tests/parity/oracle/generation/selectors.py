"""Generation of valid and invalid CEL device selectors, each with a device.

A case depends only on seed and index.
"""

from __future__ import annotations

import random
from typing import Any

from tests.parity.oracle.generation.selector_mutations import mutated

_ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("model", {"string": "A100"}),
    ("count", {"int": 8}),
    ("shared", {"bool": True}),
    ("version", {"version": "1.2.3"}),
    ("other.example.com/model", {"string": "H100"}),
    ("numa", {"int": 0}),
    ("links", {"ints": [1, 2, 3]}),
    ("names", {"strings": ["a", "b"]}),
    ("text", {"string": "héllo wörld"}),
]
_CAPACITY = [("memory", "80Gi"), ("cores", "64"), ("bandwidth", "1500m"), ("other.example.com/memory", "1e3")]
_DOMAINS = ["gpu.example.com", "other.example.com", "none.example.com"]
_NAMES = ["x", "y", "z"]

_FORMS: dict[str, tuple[str, ...]] = {
    "int": (
        "(<int> + <int>)",
        "(<int> - <int>)",
        "(<int> * <int>)",
        "(<int> / <int>)",
        "(<int> % <int>)",
        "-(<int>)",
        "<string>.size()",
        "size(<list>)",
        "size(<map>)",
        "<list>[<int>]",
        "<map>.a",
        '<map>["b"]',
        "(<bool> ? <int> : <int>)",
        "int(<string>)",
        "int(<double>)",
        "int(<uint>)",
        "<list>.sum()",
        "<list>.max()",
        "<list>.min()",
        "<string>.indexOf(<string>)",
        "<string>.lastIndexOf(<string>)",
        "<list>.indexOf(<int>)",
        "<quantity>.compareTo(<quantity>)",
        "<quantity>.asInteger()",
        "sign(<quantity>)",
        "<semver>.major()",
        "<semver>.compareTo(<semver>)",
        "<optional>.orValue(<int>)",
        "<optional>.value()",
        "<timestamp>.getMonth()",
        "<timestamp>.getDayOfWeek()",
        "<timestamp>.getHours('+02:30')",
        "<duration>.getMinutes()",
        "int(<timestamp>)",
        "<duration>.getMilliseconds()",
        "cel.bind(v, <int>, v + v)",
    ),
    "double": (
        "(<double> + <double>)",
        "(<double> / <double>)",
        "(<double> * <double>)",
        "-(<double>)",
        "double(<int>)",
        "double(<string>)",
        "double(<uint>)",
        "<quantity>.asApproximateFloat()",
    ),
    "string": (
        "(<string> + <string>)",
        "string(<int>)",
        "string(<double>)",
        "string(<bool>)",
        "string(<bytes>)",
        "string(<duration>)",
        "string(<timestamp>)",
        "<string>.lowerAscii()",
        "<string>.upperAscii()",
        "<string>.trim()",
        "<string>.substring(<int>)",
        "<string>.substring(0, <int>)",
        "<string>.charAt(<int>)",
        "<string>.replace(<string>, <string>)",
        "<string>.replace(<string>, <string>, <int>)",
        "<strings>.join(<string>)",
        "<strings>.join()",
        "(<bool> ? <string> : <string>)",
        "<strings>[<int>]",
        "strings.quote(<string>)",
        '"%s-%d".format([<string>, <int>])',
        '<string>.find("[a-z]+")',
    ),
    "uint": (
        "(<uint> + <uint>)",
        "(<uint> - <uint>)",
        "(<uint> * <uint>)",
        "(<uint> / <uint>)",
        "(<uint> % <uint>)",
        "uint(<int>)",
        "uint(<double>)",
    ),
    "list": (
        "[<int>, <int>]",
        "(<list> + <list>)",
        "<list>.map(x, x + <int>)",
        "<list>.filter(y, <bool>)",
        "<list>.map(x, <bool>, x)",
        "<list>.reverse()",
        "<list>.distinct()",
        "<list>.sort()",
        "<list>.slice(0, <int>)",
        "lists.range(3)",
        "[<list>, <list>].flatten()",
        "[?<optional>, <int>]",
        "<list>.transformList(i, v, i + v)",
        "<list>.sortBy(x, -x)",
        "(<bool> ? <list> : <list>)",
    ),
    "map": (
        '{"a": <int>}',
        '{<string>: <int>, "b": <int>}',
        '{?"a": <optional>}',
        "<map>.transformMap(k, v, v + <int>)",
        '<map>.transformMapEntry(k, v, {k + "!": v})',
    ),
    "quantity": (
        "<quantity>.add(<quantity>)",
        "<quantity>.sub(<quantity>)",
        "<quantity>.add(<int>)",
        "quantity(<string>)",
    ),
    "semver": (
        "semver(<string>)",
        'semver("v1.2", true)',
    ),
    "duration": (
        "(<duration> + <duration>)",
        "(<timestamp> - <timestamp>)",
        "duration(<string>)",
    ),
    "timestamp": (
        "(<timestamp> + <duration>)",
        "(<timestamp> - <duration>)",
        "timestamp(<int>)",
    ),
    "bool": (
        "(<bool> && <bool>)",
        "(<bool> || <bool>)",
        "!(<bool>)",
        "(<bool> ? <bool> : <bool>)",
        "(<int> in <list>)",
        "(<string> in <map>)",
        "(<string> in <strings>)",
        "<string>.contains(<string>)",
        "<string>.startsWith(<string>)",
        "<string>.endsWith(<string>)",
        '<string>.matches("^[a-c]+$")',
        "has(<map>.a)",
        "has(<map>.model)",
        "<optional>.hasValue()",
        "<quantity>.isInteger()",
        "<quantity>.isGreaterThan(<quantity>)",
        "<semver>.isLessThan(<semver>)",
        "<list>.isSorted()",
        "sets.contains(<list>, <list>)",
        "sets.intersects(<list>, <list>)",
        "sets.equivalent(<list>, <list>)",
        "bool(<string>)",
        "isQuantity(<string>)",
        "isSemver(<string>)",
        "<list>.includes(<int>)",
        'has(device.attributes["gpu.example.com"].model)',
        '("gpu.example.com" in device.attributes)',
    ),
    "dyn": ("<int>", "<string>", "<bool>", "<list>", "<map>", "<double>"),
    "bytes": (
        "(<bytes> + <bytes>)",
        "bytes(<string>)",
    ),
    "optional": (
        "optional.of(<int>)",
        "optional.ofNonZeroValue(<int>)",
        "<map>.?a",
        '<map>[?"b"]',
        "<list>[?<int>]",
        "<optional>.or(<optional>)",
        "<optional>.optMap(x, x + 1)",
        "<optional>.optFlatMap(x, optional.of(x))",
        "<list>.first()",
        "<list>.last()",
    ),
    "strings": (
        "<string>.split(<string>)",
        "<string>.split(<string>, <int>)",
        '<string>.findAll("[a-z]")',
        "[<string>, <string>]",
    ),
}
"""Expressions of a type that have parts, each of which is the type in angle brackets."""


_COMPARED = [kind for kind in _FORMS if kind != "strings"]


class _Grammar:
    """Grammar of expressions by type, of which most compile."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._scope: list[str] = []

    def expression(self, kind: str, depth: int) -> str:
        """Return an expression of a type."""
        if self._random.random() < 0.04:
            kind = self._random.choice(["bool", "int", "string", "double", "uint", "dyn", "list", "map", "quantity"])
        if self._random.random() < 0.06:
            return f"dyn({self.expression(kind, depth - 1)})" if depth > 0 else self._leaf(kind)
        if depth <= 0 or self._random.random() < 0.12:
            return self._leaf(kind)
        if kind == "bool":
            return self._bool(depth - 1)
        return self._compound(kind, depth - 1)

    def _leaf(self, kind: str) -> str:
        pick = self._random.choice
        leaves = {
            "bool": ["true", "false", self._attribute("shared"), "device.allowMultipleAllocations"],
            "int": ["0", "1", "-1", "2", "9223372036854775807", "-9223372036854775808", "7", self._attribute("count")],
            "uint": ["0u", "1u", "18446744073709551615u", "3u"],
            "double": ["0.0", "1.5", "-2.0", "1e300", "3.0", "double('NaN')"],
            "string": ['""', '"a"', "'abc'", '"héllo"', "r'\\d'", '"1"', "device.driver", self._attribute("model")],
            "bytes": ["b'abc'", "b''", "b'\\xff'"],
            "list": ["[]", "[1, 2, 3]", "[3, 1]", "[-1]", self._attribute("links")],
            "strings": ['["a", "b"]', "[]", '["a", "é", ""]', self._attribute("names")],
            "map": ["{}", '{"a": 1}', '{"a": 1, "b": 2}', '{"model": 3}'],
            "quantity": ['quantity("1Gi")', 'quantity("500m")', 'quantity("0")', self._capacity()],
            "semver": ['semver("1.2.3")', 'semver("1.0.0-alpha.1")', self._attribute("version")],
            "duration": ['duration("1h")', 'duration("-3s")', 'duration("1.5s")'],
            "timestamp": [
                'timestamp("2024-02-29T12:30:45.5Z")',
                'timestamp("1969-12-31T23:00:00-01:00")',
                "timestamp(0)",
            ],
            "optional": ["optional.none()", "optional.of(1)", 'device.attributes["gpu.example.com"].?count', "[1][?0]"],
            "dyn": [self._attribute(name) for name, _ in _ATTRIBUTES[:4]],
        }
        if self._scope and self._random.random() < 0.4:
            return pick(self._scope)
        return str(pick(leaves[kind]))

    def _attribute(self, name: str) -> str:
        if self._random.random() < 0.05:
            name = "absent"
        domain = self._random.choice(_DOMAINS) if self._random.random() < 0.1 else _DOMAINS[0]
        form = self._random.random()
        if form < 0.7:
            return f'device.attributes["{domain}"].{name}'
        if form < 0.9:
            return f'device.attributes["{domain}"]["{name}"]'
        return f'device.attributes["{domain}"].?{name}.orValue(1)'

    def _capacity(self) -> str:
        name = self._random.choice(["memory", "cores", "bandwidth", "absent"])
        return f'device.capacity["gpu.example.com"].{name}'

    def _compound(self, kind: str, depth: int) -> str:
        form = self._random.choice(_FORMS[kind])
        parts = []
        for piece in form.split("<"):
            kind, closing, rest = piece.partition(">")
            if closing and kind.isalpha():
                parts.append(self.expression(kind, depth) + rest)
            else:
                parts.append(piece if not parts else "<" + piece)
        return "".join(parts)

    def _bool(self, depth: int) -> str:
        kind = self._random.choice(_COMPARED)
        other = kind if self._random.random() < 0.85 else self._random.choice(["int", "uint", "double", "dyn"])
        comparison = self._random.choice(["==", "!=", "<", "<=", ">", ">="])
        if self._random.random() < 0.4:
            return f"({self.expression(kind, depth)} {comparison} {self.expression(other, depth)})"
        if self._random.random() < 0.25:
            return self._quantified(depth)
        return self._compound("bool", depth)

    def _quantified(self, depth: int) -> str:
        name = self._random.choice(_NAMES)
        macro = self._random.choice(["all", "exists", "exists_one"])
        iterated = self.expression(self._random.choice(["list", "map", "strings"]), depth)
        self._scope.append(name)
        predicate = self.expression("bool", depth)
        self._scope.pop()
        if self._random.random() < 0.2:
            return f"{iterated}.{macro}(i, {name}, {predicate})"
        return f"{iterated}.{macro}({name}, {predicate})"


def selector_case(seed: int, index: int) -> dict[str, Any]:
    """Return a question for the program ``selectors``."""
    source = random.Random(f"{seed}/{index}")
    if source.random() < 0.3:
        expression = mutated(source)
    else:
        expression = _Grammar(source).expression("bool", source.choice([1, 2, 2, 3, 3, 4]))
    attributes = {name: value for name, value in _ATTRIBUTES if source.random() < 0.9}
    capacity = {name: value for name, value in _CAPACITY if source.random() < 0.9}
    return {
        "expression": expression,
        "driver": "gpu.example.com",
        "allowMultipleAllocations": source.random() < 0.5,
        "attributes": attributes,
        "capacity": capacity,
    }
