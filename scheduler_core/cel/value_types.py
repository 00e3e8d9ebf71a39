"""Types of CEL expressions, and their assignability as cel-go's type checker defines it.

A type counts its own nodes. Nested literals can double a type at every level, so that a type that exceeds the bound is
a compile error before anything traverses it.
"""

from __future__ import annotations

import ast
from functools import cache

from scheduler_core.cel.problems import InvalidExpressionError

_MAX_NODES = 5_000


class Type:
    """A CEL type.

    Attributes:
        kind: A primitive's name, or ``list``, ``map``, ``type``, ``struct``, ``opaque``, ``param``, ``dyn``, ``any``,
            ``error``.
        name: The name that CEL itself uses, such as ``google.protobuf.Duration``.
    """

    __slots__ = ("_hash", "kind", "name", "params", "size")

    def __init__(self, kind: str, name: str, params: tuple[Type, ...] = ()) -> None:
        self.kind = kind
        self.name = name
        self.params = params
        self.size: int = 1 + sum(param.size for param in params)
        if self.size > _MAX_NODES:
            raise InvalidExpressionError(f"expression type exceeds {_MAX_NODES} nodes")
        self._hash = hash((kind, name, params))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Type) and (
            (self._hash, self.kind, self.name, self.params) == (other._hash, other.kind, other.name, other.params)
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.kind in _DISPLAY_NAMES:
            return _DISPLAY_NAMES[self.kind]
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name

    def native_text(self) -> str:
        """Return the type with the names that CEL itself uses, as the reference reports a result of another type."""
        return f"{self.name}({', '.join(p.native_text() for p in self.params)})" if self.params else self.name


_DISPLAY_NAMES = {"any": "any", "duration": "duration", "error": "!error!", "null": "null", "timestamp": "timestamp"}

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
IP = Type("opaque", "net.IP")
CIDR = Type("opaque", "net.CIDR")

PRIMITIVES = (ANY, BOOL, BYTES, DOUBLE, DURATION, DYN, INT, NULL, STRING, TIMESTAMP, TYPE, UINT)
_BY_NAME = {
    **{kind.kind: kind for kind in PRIMITIVES},
    **{name: Type("struct", f"kubernetes.{name}") for name in ("Quantity", "Semver", "URL", "NamedFormat")},
    **{
        name: Type("struct", f"kubernetes.authorization.{name}")
        for name in ("Authorizer", "Decision", "GroupCheck", "PathCheck", "ResourceCheck")
    },
    "IP": IP,
    "CIDR": CIDR,
}
QUANTITY = _BY_NAME["Quantity"]


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


@cache
def parse_type(text: str) -> Type:
    """Parse a type of a signature, such as ``map(string, list(A))``.

    Single capitals are type parameters, ``optional`` is the optional type, and Kubernetes' types stand without prefix.
    """
    return _parsed(ast.parse(text, mode="eval").body)


def _parsed(node: ast.expr) -> Type:
    called = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    assert isinstance(called.func, ast.Name)
    name, params = called.func.id, tuple(map(_parsed, called.args))
    if name in ("list", "map", "type") and params:
        return Type(name, name, params)
    if name == "optional":
        return optional_of(*params)
    if len(name) == 1 and name.isupper():
        return Type("param", name)
    return _BY_NAME.get(name) or Type("struct", name, params)


# -- assignability --------------------------------------------------------------------------------------------------

Substitutions = dict[Type, Type]
_DYNAMIC = frozenset({"dyn", "any"})
_DYNAMIC_OR_ERROR = frozenset({"dyn", "any", "error"})
_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_STRUCTURAL = frozenset({"opaque", "list", "map"})


def is_dyn(kind: Type) -> bool:
    return kind.kind in _DYNAMIC


def unwrap_optional(kind: Type) -> tuple[Type, bool]:
    return (kind.params[0], True) if kind.name == "optional_type" and kind.kind == "opaque" else (kind, False)


def assign(substitutions: Substitutions, sources: tuple[Type, ...], targets: tuple[Type, ...]) -> Substitutions | None:
    """Return the substitutions under which *sources* are assignable to *targets*, None if there are none."""
    copied = dict(substitutions)
    return copied if _assignable_all(copied, sources, targets) else None


def _assignable_all(known: Substitutions, sources: tuple[Type, ...], targets: tuple[Type, ...]) -> bool:
    if len(sources) != len(targets):
        return False
    return all(_assignable(known, source, target) for source, target in zip(sources, targets, strict=True))


def _assignable(known: Substitutions, source: Type, target: Type) -> bool:
    if target.kind == "param":
        valid, substituted = _substitutable(known, source, target)
        if valid or substituted:
            return valid
    if source.kind == "param":
        return _substitutable(known, target, source)[0]
    if source.kind in _DYNAMIC_OR_ERROR or target.kind in _DYNAMIC_OR_ERROR:
        return True
    if source.kind == "null":
        return target.kind in _NULLABLE or target.kind == "null"
    if target.kind == "null":
        return source.kind in _NULLABLE
    if source.kind == "type" or source.kind != target.kind:
        return source.kind == target.kind
    return source.name == target.name and (
        source.kind not in _STRUCTURAL or _assignable_all(known, source.params, target.params)
    )


def _substitutable(known: Substitutions, source: Type, param: Type) -> tuple[bool, bool]:
    """Return whether *param* stands for *source*, and whether *param* had a substitution before."""
    if source == param:
        return True, True
    current = known.get(param)
    if current is not None:
        if source == current:
            return True, True
        if not _assignable(known, source, current):
            return False, True
        general = most_general(source, current)
        if _absent(known, param, general):
            known[param] = general
        return True, True
    if _absent(known, param, source):
        known[param] = source
        return True, False
    return False, False


def _absent(known: Substitutions, param: Type, within: Type) -> bool:
    if param == within:
        return False
    if within.kind == "param":
        current = known.get(within)
        return current is None or _absent(known, param, current)
    return all(_absent(known, param, inner) for inner in within.params)


def most_general(one: Type, two: Type) -> Type:
    return one if _less_specific(one, two) else two


def _less_specific(one: Type, two: Type) -> bool:
    if one.kind in _DYNAMIC or one.kind == "param":
        return True
    if two.kind in _DYNAMIC or two.kind == "param" or one.kind != two.kind:
        return False
    if one.kind in _STRUCTURAL:
        if one.name != two.name or len(one.params) != len(two.params):
            return False
        return all(_less_specific(left, right) for left, right in zip(one.params, two.params, strict=True))
    return one.kind == "type" or one == two


def substitute(known: Substitutions, kind: Type, *, params_to_dyn: bool = False) -> Type:
    """Return *kind* with all type parameters replaced that have a substitution, the others by dyn if requested."""
    current = known.get(kind)
    if current is not None:
        return substitute(known, current, params_to_dyn=params_to_dyn)
    if kind.kind == "param":
        return DYN if params_to_dyn else kind
    if not kind.params:
        return kind
    params = tuple([substitute(known, param, params_to_dyn=params_to_dyn) for param in kind.params])
    is_same = all(one is two for one, two in zip(params, kind.params, strict=True))
    return kind if is_same else Type(kind.kind, kind.name, params)
