"""Collects problems in the API server's own words, and checks formats of names, labels, ports, paths and addresses.

Follows apimachinery v0.37.1, pkg/util/validation and pkg/api/validation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from scheduler_core.errors import Problem

T = TypeVar("T")
Form = Callable[[str], Iterable[str]]
"""Returns a message for each problem with the format of a text."""
_SHOWN = 64


class FieldErrors:
    """Problems of one object, in the order of the rules."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def required(self, path: str, detail: str = "add it") -> None:
        self.problems.append(Problem(path, f"Required value: {detail}"))

    def invalid(self, path: str, value: object, *details: str) -> None:
        """Add a value once for each detail; none adds nothing."""
        self.problems += [Problem(path, f"Invalid value: {shown(value)}: {detail}") for detail in details]

    def unsupported(self, path: str, value: object, supported: Iterable[str]) -> None:
        values = ", ".join(f'"{each}"' for each in sorted(supported))
        self.problems.append(Problem(path, f"Unsupported value: {shown(value)}: supported values: {values}"))

    def duplicate(self, path: str, value: object) -> None:
        """Add a value that occurs in an earlier entry."""
        self.problems.append(Problem(path, f"Duplicate value: {shown(value)}; remove one"))

    def forbidden(self, path: str, detail: str) -> None:
        self.problems.append(Problem(path, f"Forbidden: {detail}; remove it"))

    def not_found(self, path: str, value: object, detail: str = "correct the name") -> None:
        """Add a reference to something that the object does not have."""
        self.problems.append(Problem(path, f"Not found: {shown(value)}: {detail}"))

    def too_long(self, path: str, limit: int) -> None:
        """Add a text with too many bytes."""
        self.problems.append(Problem(path, f"Too long: may not be more than {limit} bytes"))

    def too_many(self, path: str, count: int, limit: int) -> None:
        self.problems.append(Problem(path, f"Too many: {count}: must have at most {limit} items"))

    # -- common rules -------------------------------------------------------------------------------------------------

    def check(self, path: str, value: str, form: Form) -> None:
        self.invalid(path, value, *form(value))

    def name(self, path: str, value: str, form: Form, missing: str = "add it", *, is_required: bool = True) -> None:
        """Require a value of a format; an empty one is missing if it is required, and otherwise valid."""
        if value:
            self.check(path, value, form)
        elif is_required:
            self.required(path, missing)

    def optional(self, path: str, value: str | None, form: Form) -> None:
        """Require a format of a value that is set, also of an empty one."""
        if value is not None:
            self.check(path, value, form)

    def one_of(self, path: str, value: str | None, supported: Collection[str]) -> None:
        """Require one of some values if one is set, also if it is empty."""
        if value is not None and value not in supported:
            self.unsupported(path, value, supported)

    def unique(self, path: str, value: T, seen: set[T], shown_as: str | None = None) -> None:
        """Require a value that is not among those seen before, and add it to them."""
        if value in seen:
            self.duplicate(path, value if shown_as is None else shown_as)
        seen.add(value)

    def choice(self, path: str, value: str, supported: Iterable[str], *, is_required: bool = False) -> None:
        """Require one of some values; an empty one is missing if it is required, and otherwise valid."""
        if not value:
            if is_required:
                self.required(path)
        elif value not in supported:
            self.unsupported(path, value, supported)

    def not_negative(self, path: str, value: float) -> None:
        if value < 0:
            self.invalid(path, value, "must be greater than or equal to 0")

    def between(self, path: str, value: float, low: int, high: int) -> None:
        if not low <= value <= high:
            self.invalid(path, value, f"must be between {low} and {high}, inclusive")


def shown(value: object) -> str:
    """Return a value as the API server prints it, shortened."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return f'"{value[:_SHOWN]}"'
        case _:
            return "an object" if isinstance(value, Mapping) else "a list"


def entries(value: Mapping[str, Any], field: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the entries of a list of objects with their indices; null in a list is an object without fields."""
    return [(index, each or {}) for index, each in enumerate(value.get(field) or ())]


def mapping(value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return an object within an object; one without fields if it is not set."""
    return value.get(field) or {}


def text(value: Mapping[str, Any], field: str) -> str:
    """Return a text; an empty one if it is not set."""
    return value.get(field) or ""


def texts(value: Mapping[str, Any], field: str) -> list[str]:
    return [each or "" for each in value.get(field) or ()]


def other_problems(found: Sequence[Problem], structural: Sequence[Problem]) -> list[Problem]:
    """Return the problems of rules that do not result from an invalid part, which the rules do not see."""
    places = [problem.path for problem in structural]
    return [
        problem
        for problem in dict.fromkeys(found)
        if not any(_is_within(problem.path, place) or _is_within(place, problem.path) for place in places)
    ]


def _is_within(inner: str, outer: str) -> bool:
    return inner == outer or (inner.startswith(outer) and inner[len(outer) :][:1] in (".", "["))


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc')"
)
_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com')"
)
_NAME_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc')"
)
_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345')"
)

_LINK_LOCAL_MULTICAST = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}

Messages = tuple[str, ...]


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


@lru_cache(maxsize=4096)
def dns_label(value: str) -> Messages:
    """Check an RFC 1123 label, such as the name of a container."""
    found = () if len(value) <= 63 else (_too_long(63),)
    return found if re.fullmatch(_LABEL, value) else (*found, _LABEL_MESSAGE)


@lru_cache(maxsize=4096)
def dns_subdomain(value: str) -> Messages:
    """Check an RFC 1123 subdomain, such as the name of most objects."""
    found = () if len(value) <= 253 else (_too_long(253),)
    return found if re.fullmatch(_SUBDOMAIN, value) else (*found, _SUBDOMAIN_MESSAGE)


def dns_subdomain_with_underscore(value: str) -> Messages:
    """Check a subdomain whose labels may contain underscores."""
    label = r"[a-z0-9_]([-_a-z0-9]*[a-z0-9])?"
    found = () if len(value) <= 253 else (_too_long(253),)
    return found if re.fullmatch(rf"{label}(\.{label})*", value) else (*found, _SUBDOMAIN_MESSAGE)


@lru_cache(maxsize=4096)
def qualified_name(value: str) -> Messages:
    """Check a label key, a resource name or a finalizer: an optional DNS prefix with a slash, then a name."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        message = (
            f"a qualified {_NAME_MESSAGE}, with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
        return (message,)
    found: list[str] = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {each}" for each in dns_subdomain(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not re.fullmatch(_NAME, name):
        found.append(_NAME_MESSAGE)
    return tuple(found)


@lru_cache(maxsize=4096)
def label_value(value: str) -> Messages:
    found = () if len(value) <= 63 else (_too_long(63),)
    return found if re.fullmatch(rf"({_NAME})?", value) else (*found, _VALUE_MESSAGE)


def path_segment(value: str) -> Messages:
    """Check a name that is only a part of a URL, which all names must be."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in value)


def port_number(value: int) -> Messages:
    return () if 1 <= value <= 65535 else ("must be between 1 and 65535, inclusive",)


def port_name(value: str) -> Messages:
    found = []
    if len(value) > 15:
        found.append("must be no more than 15 characters")
    if not re.fullmatch(r"[-a-z0-9]+", value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value and "-" in (value[0], value[-1]):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


def environment_name(value: str) -> Messages:
    """Check the name of an environment variable: printable ASCII characters except "="."""
    if re.fullmatch(r"[ -<>-~]+", value):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def config_key(value: str) -> Messages:
    found = [] if len(value) <= 253 else [_too_long(253)]
    if not re.fullmatch(r"[-._a-zA-Z0-9]+", value):
        found.append("a valid config key must consist of alphanumeric characters, '-', '_' or '.'")
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def header_name(value: str) -> Messages:
    return (
        () if re.fullmatch(r"[-A-Za-z0-9]+", value) else ("a valid HTTP header must consist of letters, digits or '-'",)
    )


def no_backsteps(value: str) -> Messages:
    """Check that a path does not lead upwards."""
    return ("must not contain '..'",) if ".." in value.split("/") else ()


def descending_path(value: str) -> Messages:
    """Check a relative path that does not lead upwards."""
    found = ("must be a relative path",) if value.startswith("/") else ()
    return (*found, *no_backsteps(value))


def unreserved_path(value: str) -> Messages:
    """Check a relative path that does not begin with two dots."""
    starts = value.startswith("..") and not value.startswith("../")
    return (*descending_path(value), *(("must not start with '..'",) if starts else ()))


def ip_address(value: str) -> Messages:
    """Check an IP address as with the feature gate StrictIPCIDRValidation, which is on."""
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if "%" in value:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


def endpoint_address(value: str) -> Messages:
    """Check that a valid IP address may be that of an endpoint."""
    found = ipaddress.ip_address(value)
    if found.is_unspecified:
        return (f"may not be unspecified ({value})",)
    if found.is_loopback:
        return ("may not be in the loopback range (127.0.0.0/8, ::1/128)",)
    if found.is_link_local:
        return ("may not be in the link-local range (169.254.0.0/16, fe80::/10)",)
    if found in _LINK_LOCAL_MULTICAST[found.version]:
        return ("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",)
    return ()


def cidr(value: str) -> Messages:
    """Check a CIDR value as with the feature gate StrictIPCIDRValidation, which is on."""
    address, slash, length = value.partition("/")
    if not slash or not re.fullmatch(r"0|[1-9]\d*", length) or ip_address(address):
        return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return ("must be a valid CIDR value without address bits beyond the prefix, (e.g. 10.9.8.0/24)",)
    return ()
