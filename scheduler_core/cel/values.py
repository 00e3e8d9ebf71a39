"""Runtime values of CEL, and their types and texts as cel-go's messages show them.

bool, int, float, str, bytes and None stand for themselves, a tuple is a list. The classes here are the other types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)
MAX_UINT = 2**64 - 1
MISSING: Any = type("Missing", (), {"__slots__": ()})()


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, such as the result of ``type(1)``."""

    name: str


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time: nanoseconds since the epoch, and the offset of the zone in which it was written, in seconds."""

    nanos: int
    offset: int = 0


@dataclass(slots=True, eq=False)
class Optional:
    """An optional value; ``MISSING`` for none."""

    value: Any


NONE = Optional(MISSING)


@dataclass(slots=True, eq=False)
class _BoolKey:
    """A bool as the key of a map, which must not equal the numbers 0 and 1."""

    value: bool


_BOOL_KEYS = {True: _BoolKey(True), False: _BoolKey(False)}


class Mapping:
    """A CEL map, in the order of insertion. Numbers of different types are one key."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Any, Any] | None = None) -> None:
        self.entries: dict[Any, Any] = {} if entries is None else entries

    def find(self, key: Any) -> Any:
        """Return the value of *key*, ``MISSING`` if there is none."""
        try:
            return self.entries.get(_BOOL_KEYS[key] if type(key) is bool else key, MISSING)
        except TypeError:
            return MISSING

    def contains(self, key: Any) -> bool:
        return Mapping.find(self, key) is not MISSING

    def insert(self, key: Any, value: Any) -> None:
        self.entries[_BOOL_KEYS[key] if type(key) is bool else key] = value

    def remove(self, key: Any) -> None:
        self.entries.pop(_BOOL_KEYS[key] if type(key) is bool else key, None)

    def iterate(self) -> Iterator[Any]:
        for key in self.entries:
            yield key.value if type(key) is _BoolKey else key

    def __len__(self) -> int:
        return len(self.entries)


class StringKeyMapping(Mapping):
    """A map of the device. Its keys are strings, so that every other value, hashable or not, is an absent key."""

    __slots__ = ()


_EMPTY = StringKeyMapping()


class DomainMapping(StringKeyMapping):
    """The attributes or capacities of a device by domain. The lookup of an absent domain yields an empty map."""

    __slots__ = ()

    def find(self, key: Any) -> Any:
        """Return the value of *key*, an empty map if there is none."""
        found = Mapping.find(self, key)
        return _EMPTY if found is MISSING else found


@dataclass(slots=True, eq=False)
class Semver:
    """A semantic version."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...]
    build: str

    @property
    def text(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return f"{text}+{self.build}" if self.build else text

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1 by precedence; build metadata does not count."""
        own, others = self._precedence(), other._precedence()
        return (own > others) - (own < others)

    def _precedence(self) -> tuple[object, ...]:
        # A prerelease precedes its release. Numeric identifiers precede others, and upper case precedes lower case.
        identifiers = [(type(each) is str, each) for each in self.prerelease]
        return self.major, self.minor, self.patch, not identifiers, identifiers


@dataclass(slots=True, eq=False)
class Quantity:
    """A resource quantity.

    Attributes:
        scaled: Value and power of ten if the reference represents the amount as a scaled int64, else None.
        computed: Whether the quantity is the result of ``add`` or ``sub``, which the reference's ``==`` rejects on its
            right side.
    """

    nano: int
    scaled: tuple[int, int] | None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class IpAddress:
    """An IP address; its size is its number of bytes."""

    address: IPv4Address | IPv6Address

    @property
    def cel_size(self) -> int:
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address and the length of its prefix."""

    address: IPv4Address | IPv6Address
    length: int

    @property
    def cel_size(self) -> int:
        """Bytes that the prefix fills or begins."""
        return (self.length + 7) // 8


@dataclass(frozen=True, slots=True)
class Url:
    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format by which strings are validated; *validate* returns the problems of a string."""

    name: str
    max_pattern_size: int
    validate: Callable[[str], tuple[str, ...]]


# By type: CEL's name, the Go type in cel-go's internal errors, and the native Go type in errors of derived attributes.
_NAMES: dict[type, tuple[str, str, str]] = {
    bool: ("bool", "types.Bool", "bool"),
    int: ("int", "types.Int", "int64"),
    Uint: ("uint", "types.Uint", "uint64"),
    float: ("double", "types.Double", "float64"),
    str: ("string", "types.String", "string"),
    bytes: ("bytes", "types.Bytes", "[]uint8"),
    type(None): ("null_type", "types.Null", "structpb.NullValue"),
    tuple: ("list", "*types.baseList", "[]ref.Val"),
    Mapping: ("map", "*types.baseMap", "map[ref.Val]ref.Val"),
    StringKeyMapping: ("map", "*types.baseMap", "map[string]interface {}"),
    DomainMapping: ("map", "dra.mapper", "map[string]interface {}"),
    TypeValue: ("type", "*types.Type", "string"),
    Duration: ("google.protobuf.Duration", "types.Duration", "time.Duration"),
    Timestamp: ("google.protobuf.Timestamp", "types.Timestamp", "time.Time"),
    Optional: ("optional_type", "*types.Optional", "<nil>"),
    Quantity: ("kubernetes.Quantity", "cel.Quantity", "*resource.Quantity"),
    Semver: ("kubernetes.Semver", "cel.Semver", "semver.Version"),
    IpAddress: ("net.IP", "cel.IP", "netip.Addr"),
    Cidr: ("net.CIDR", "cel.CIDR", "netip.Prefix"),
    Url: ("kubernetes.URL", "cel.URL", "*url.URL"),
    NamedFormat: ("kubernetes.NamedFormat", "cel.Format", "cel.Format"),
}
KUBERNETES_TYPES = (Cidr, IpAddress, NamedFormat, Quantity, Semver, Url)
_TYPE_NAMES = {kind: names[0] for kind, names in _NAMES.items()}


def type_name(value: Any) -> str:
    return _TYPE_NAMES[type(value)]


def go_type(value: Any) -> str:
    """Return the name of the Go type that represents *value* in the reference, as its internal errors show it."""
    name = _NAMES[type(value)][1]
    return f"*{name}" if isinstance(value, Quantity) and value.computed else name


def native_go_type(value: Any) -> str:
    """Return the name of the native Go type of *value* in the reference, as errors of derived attributes show it."""
    return _NAMES[type(value)][2]


# -- Go's notation --------------------------------------------------------------------------------------------------


def go_float(number: float, *, positional: bool = False) -> str:
    """Return the shortest text that reads back as *number*, as Go's ``%g`` prints it; without exponent if requested."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if positional or not number or 1e-4 <= abs(number) < 1e6:
        return np.format_float_positional(number, trim="-")
    return np.format_float_scientific(number, trim="-", exp_digits=2)


def go_text(value: Any) -> str:
    """Return a scalar as Go's ``%v`` prints it."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return go_float(value)
    if type(value) in (int, Uint):
        return str(int(value))
    return "null" if value is None else str(value)


_QUOTED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def go_quoted(text: str) -> str:
    """Return *text* in double quotes, as Go's ``%q`` prints it."""
    return f'"{text.translate(_QUOTED)}"'
