"""What the environment of device selectors declares: functions, types and the variable ``device``.

``function_signatures.txt`` lists all overloads of Kubernetes' environment for stored expressions, in the order in which
cel-go tries them. The parity program prints the reference's list; a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scheduler_core.cel.value_types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    parse_type,
)


@dataclass(frozen=True)
class Overload:
    """One signature of a function.

    Attributes:
        identifier: The identifier, which selects the implementation and its cost.
        member: Whether the first argument is written before the name.
        args: Types of all arguments.
        result: The type of the result.
        params: Type parameters in it.
    """

    identifier: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    params: tuple[Type, ...]


_QUANTITY = parse_type("kubernetes.Quantity")
DEVICE = Type("struct", "kubernetes.DRADevice")
VARIABLES = {"device": DEVICE}
FIELDS: dict[str, dict[str, Type]] = {
    DEVICE.name: {
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, DYN)),
        "capacity": map_of(STRING, map_of(STRING, _QUANTITY)),
        "driver": STRING,
    },
}
TYPE_IDENTIFIERS: dict[str, Type] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Any": ANY,
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "net.CIDR": parse_type("net.CIDR"),
    "net.IP": parse_type("net.IP"),
    "null_type": NULL,
    "optional_type": optional_of(DYN),
    "string": STRING,
    "type": TYPE,
    "uint": UINT,
}


@cache
def functions() -> dict[str, tuple[Overload, ...]]:
    """Return the overloads of each declared function."""
    declared: dict[str, list[Overload]] = {}
    name = ""
    for line in Path(__file__).with_name("function_signatures.txt").read_text().splitlines():
        if not line.startswith(" "):
            name = line
            continue
        declared.setdefault(name, []).append(_overload(line.strip()))
    return {function: tuple(overloads) for function, overloads in declared.items()}


def _overload(line: str) -> Overload:
    signature, _, rest = line.partition(" -> ")
    result, _, identifier = rest.rpartition(" ")
    opening = signature.index("(") if signature.startswith("(") else signature.index(".(") + 1
    target = signature[: opening - 1] if opening else ""
    arguments = parse_type(f"arguments{signature[opening:]}") if signature[opening:] != "()" else None
    args = arguments.params if arguments is not None else ()
    if target:
        args = (parse_type(target), *args)
    kinds = (*args, parse_type(result))
    return Overload(identifier, bool(target), args, kinds[-1], tuple(dict.fromkeys(_params(kinds))))


def _params(kinds: tuple[Type, ...]) -> list[Type]:
    found = []
    for kind in kinds:
        found += [kind] if kind.kind == "param" else _params(kind.params)
    return found
