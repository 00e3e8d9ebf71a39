"""Runtime values of CEL and their types.

bool, int, float, str, bytes and None stand for themselves, a tuple is a list. The classes here are the other types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

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
    """A point in time.

    Attributes:
        nanos: Nanoseconds since the epoch.
        offset: Offset of the time zone in which the text of the timestamp was written, in seconds.
    """

    nanos: int
    offset: int = 0


class Optional:
    """An optional value; ``MISSING`` for none."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


NONE = Optional(MISSING)


class _BoolKey:
    """A bool as the key of a map, which must not equal the numbers 0 and 1."""

    __slots__ = ("value",)

    def __init__(self, *, value: bool) -> None:
        self.value = value


_BOOL_KEYS = {True: _BoolKey(value=True), False: _BoolKey(value=False)}


class Mapping:
    """A CEL map, in the order of insertion."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Any, Any] | None = None) -> None:
        self.entries: dict[Any, Any] = {} if entries is None else entries

    def find(self, key: Any) -> Any:
        """Return the value of *key*, ``MISSING`` if there is none. Numbers of different types are one key."""
        try:
            return self.entries.get(_BOOL_KEYS[key] if type(key) is bool else key, MISSING)
        except TypeError:
            return MISSING

    def contains(self, key: Any) -> bool:
        """Return whether the map has *key*."""
        return Mapping.find(self, key) is not MISSING

    def insert(self, key: Any, value: Any) -> None:
        """Set the value of *key*."""
        self.entries[_BOOL_KEYS[key] if type(key) is bool else key] = value

    def remove(self, key: Any) -> None:
        """Remove the entry of *key*, if any."""
        self.entries.pop(_BOOL_KEYS[key] if type(key) is bool else key, None)

    def iterate(self) -> Iterator[Any]:
        """Iterate over the keys."""
        for key in self.entries:
            yield key.value if type(key) is _BoolKey else key

    def __len__(self) -> int:
        return len(self.entries)


_EMPTY = Mapping()


class DomainMapping(Mapping):
    """The attributes or capacities of a device by domain. The lookup of an absent domain yields an empty map."""

    __slots__ = ()

    def find(self, key: Any) -> Any:
        """Return the value of *key*, an empty map if there is none."""
        found = Mapping.find(self, key)
        return _EMPTY if found is MISSING else found


class Semver:
    """A semantic version."""

    __slots__ = ("build", "major", "minor", "patch", "prerelease")

    def __init__(self, major: int, minor: int, patch: int, prerelease: tuple[int | str, ...], build: str) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.prerelease = prerelease
        self.build = build

    @property
    def text(self) -> str:
        """The version as text, in its normal form."""
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return f"{text}+{self.build}" if self.build else text

    def compare(self, other: Semver) -> int:
        """Return -1, 0 or 1 by precedence; build metadata does not count."""
        left, right = (self.major, self.minor, self.patch), (other.major, other.minor, other.patch)
        if left != right:
            return -1 if left < right else 1
        if not self.prerelease or not other.prerelease:
            return bool(other.prerelease) - bool(self.prerelease) if self.prerelease != other.prerelease else 0
        for one, two in zip(self.prerelease, other.prerelease, strict=False):
            if one == two and type(one) is type(two):
                continue
            if type(one) is not type(two):
                return -1 if type(one) is int else 1
            if isinstance(one, int) and isinstance(two, int):
                return -1 if one < two else 1
            return -1 if str(one) < str(two) else 1
        return (len(self.prerelease) > len(other.prerelease)) - (len(self.prerelease) < len(other.prerelease))


class Quantity:
    """A resource quantity.

    Attributes:
        nano: The amount in nano-units.
        integer: The amount if the reference represents it as a whole int64, else None.
        computed: Whether the quantity is the result of ``add`` or ``sub``, which the reference's ``==`` rejects on its
            right side.
    """

    __slots__ = ("computed", "nano", "scaled")

    def __init__(self, nano: int, scaled: tuple[int, int] | None, *, computed: bool = False) -> None:
        self.nano = nano
        self.scaled = scaled
        self.computed = computed


@dataclass(frozen=True, slots=True)
class IpAddress:
    """An IP address."""

    address: IPv4Address | IPv6Address

    @property
    def cel_size(self) -> int:
        """Bytes of the address."""
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
    """A URL and its parts."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format by which strings are validated."""

    name: str
    max_pattern_size: int
    validate: Callable[[str], tuple[str, ...]]


TYPE_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    Mapping: "map",
    DomainMapping: "map",
    TypeValue: "type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IpAddress: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
}


def type_name(value: Any) -> str:
    """Return CEL's name of the type of *value*."""
    return TYPE_NAMES[type(value)]
