"""Types of CEL expressions, as the type checker uses them.

A type counts its own nodes. Nested literals can double a type at every level, so that a type that exceeds the bound is
a compile error before anything traverses it.
"""

from __future__ import annotations

from functools import cache

from scheduler_core.cel.problems import TooComplexError

_MAX_NODES = 5_000


class Type:
    """A CEL type.

    Attributes:
        kind: The kind: a primitive's name, or ``list``, ``map``, ``type``, ``struct``, ``opaque``, ``param``, ``dyn``,
            ``any``, ``error``.
        name: The name that CEL itself uses, such as ``google.protobuf.Duration``.
        params: Types of elements, of keys and values, or of an opaque type's parameters.
    """

    __slots__ = ("_hash", "kind", "name", "params", "size")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.size: int = 1 + sum(param.size for param in params)
        if self.size > _MAX_NODES:
            raise TooComplexError(f"expression type exceeds {_MAX_NODES} nodes")
        self._hash = hash((kind, name, params))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and (
            self is other
            or (
                self._hash == other._hash
                and self.kind == other.kind
                and self.name == other.name
                and self.params == other.params
            )
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        """Return the type as errors of the type checker show it."""
        if self.kind in _DISPLAY_NAMES:
            return _DISPLAY_NAMES[self.kind]
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(str(param) for param in self.params)})"

    def native_text(self) -> str:
        """Return the type with the names that CEL itself uses, as the reference reports a result of another type."""
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(param.native_text() for param in self.params)})"


_DISPLAY_NAMES = {
    "any": "any",
    "duration": "duration",
    "error": "!error!",
    "null": "null",
    "timestamp": "timestamp",
}

ANY = Type("any", "google.protobuf.Any")
BOOL = Type("bool", "bool")
BYTES = Type("bytes", "bytes")
DOUBLE = Type("double", "double")
DURATION = Type("duration", "google.protobuf.Duration")
DYN = Type("dyn", "dyn")
ERROR = Type("error", "error")
INT = Type("int", "int")
NULL = Type("null", "null_type")
STRING = Type("string", "string")
TIMESTAMP = Type("timestamp", "google.protobuf.Timestamp")
TYPE = Type("type", "type")
UINT = Type("uint", "uint")

_BY_NAME = {
    "any": ANY,
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "duration": DURATION,
    "dyn": DYN,
    "int": INT,
    "null": NULL,
    "string": STRING,
    "timestamp": TIMESTAMP,
    "type": TYPE,
    "uint": UINT,
}
_OPAQUE = {"optional_type", "net.IP", "net.CIDR"}


def list_of(element: Type) -> Type:
    """Return the type of lists of *element*."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps from *key* to *value*."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of optional values of *value*."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of the type *value*."""
    return Type("type", "type", (value,))


def type_param(name: str) -> Type:
    """Return a type parameter."""
    return Type("param", name)


@cache
def parse_type(text: str) -> Type:
    """Parse a type from a signature, such as ``map(string, list(A))``; single capitals are type parameters."""
    parsed, rest = _parse(text)
    if rest:
        raise ValueError(f"type {text!r}: trailing text {rest!r}")
    return parsed


def _parse(text: str) -> tuple[Type, str]:
    end = min((index for index in (text.find(char) for char in "(),") if index >= 0), default=len(text))
    name, rest = text[:end].strip(), text[end:]
    params: list[Type] = []
    if rest.startswith("("):
        rest = rest[1:]
        while not rest.startswith(")"):
            param, rest = _parse(rest)
            params.append(param)
            rest = rest.removeprefix(",").lstrip()
        rest = rest[1:]
    return _named(name, tuple(params)), rest


def _named(name: str, params: tuple[Type, ...]) -> Type:
    if name in ("list", "map", "type") and params:
        return Type(name, name, params)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in _OPAQUE:
        return Type("opaque", name, params)
    if len(name) == 1 and name.isupper():
        return type_param(name)
    return Type("struct", name, params)
