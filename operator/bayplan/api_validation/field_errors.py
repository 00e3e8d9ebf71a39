"""Fields of an object with their problems in the API server's own words; formats of names, ports, paths and addresses.

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
Messages = tuple[str, ...]
Form = Callable[[str], Sequence[str]]
"""Returns a message for each problem with the format of a text."""
_SHOWN = 64


class Fields:
    """An object with its path, and the problems that rules have found in it, in the order of the rules.

    The methods take the name of a field, or "" for the object itself. Null means "not set"; null in a list is an object
    without fields, or an empty text.

    Attributes:
        path: Path from the root, which has an empty one.
        problems: All problems of the whole object; every part of it appends to the same list.
    """

    __slots__ = ("path", "problems", "value")

    def __init__(self, value: Mapping[str, Any] | None, path: str = "", problems: list[Problem] | None = None) -> None:
        self.value: Mapping[str, Any] = value or {}
        self.path = path
        self.problems = [] if problems is None else problems

    def get(self, field: str) -> Any:
        return self.value.get(field)

    def given(self, *fields: str) -> list[str]:
        """Return which of some fields are set."""
        return [field for field in fields if self.value.get(field) is not None]

    def text(self, field: str) -> str:
        return self.value.get(field) or ""

    def texts(self, field: str) -> list[str]:
        return [each or "" for each in self.value.get(field) or ()]

    def number(self, field: str) -> int:
        return self.value.get(field) or 0

    def mapping(self, field: str) -> Mapping[str, Any]:
        return self.value.get(field) or {}

    def part(self, field: str) -> Fields:
        """Return an object within the object; one without fields if it is not set."""
        return Fields(self.value.get(field), self._at(field), self.problems)

    def parts(self, field: str) -> list[Fields]:
        """Return the objects of a list."""
        where = self._at(field)
        given = self.value.get(field) or ()
        return [Fields(each, f"{where}[{index}]", self.problems) for index, each in enumerate(given)]

    def parts_by_key(self, field: str) -> dict[str, Fields]:
        """Return the objects of a map."""
        where = self._at(field)
        return {key: Fields(each, f"{where}[{key}]", self.problems) for key, each in self.mapping(field).items()}

    def _at(self, field: str) -> str:
        return f"{self.path}.{field}" if self.path and field else self.path or field

    # -- problems -----------------------------------------------------------------------------------------------------

    def _add(self, field: str, message: str) -> None:
        self.problems.append(Problem(self._at(field), message))

    def required(self, field: str, detail: str = "add it") -> None:
        self._add(field, f"Required value: {detail}")

    def invalid(self, field: str, value: object, *details: str) -> None:
        """Add a value once for each detail; none adds nothing."""
        for detail in details:
            self._add(field, f"Invalid value: {shown(value)}: {detail}")

    def unsupported(self, field: str, value: object, supported: Iterable[str]) -> None:
        values = ", ".join(f'"{each}"' for each in sorted(supported))
        self._add(field, f"Unsupported value: {shown(value)}: supported values: {values}")

    def duplicate(self, field: str, value: object) -> None:
        """Add a value that occurs in an earlier entry."""
        self._add(field, f"Duplicate value: {shown(value)}; remove one")

    def forbidden(self, field: str, detail: str) -> None:
        self._add(field, f"Forbidden: {detail}; remove it")

    def not_found(self, field: str, value: object, detail: str = "correct the name") -> None:
        """Add a reference to something that the object does not have."""
        self._add(field, f"Not found: {shown(value)}: {detail}")

    def too_long(self, field: str, limit: int) -> None:
        """Add a text with too many bytes."""
        self._add(field, f"Too long: may not be more than {limit} bytes")

    def too_many(self, field: str, count: int, limit: int) -> None:
        self._add(field, f"Too many: {count}: must have at most {limit} items")

    # -- common rules -------------------------------------------------------------------------------------------------

    def require(self, *fields: str, detail: str = "add it") -> None:
        """Require fields that are neither missing nor empty."""
        for field in fields:
            if not self.value.get(field):
                self.required(field, detail)

    def check(self, field: str, form: Form) -> None:
        """Require a format of a text, also of an empty one."""
        self.invalid(field, self.text(field), *form(self.text(field)))

    def check_each(self, field: str, form: Form) -> None:
        """Require a format of each text of a list."""
        for index, each in enumerate(self.texts(field)):
            self.invalid(f"{field}[{index}]", each, *form(each))

    def name(self, field: str, form: Form, missing: str = "add it", *, is_required: bool = True) -> None:
        """Require a format of a text; an empty one is missing if it is required, and otherwise valid."""
        if self.text(field):
            self.check(field, form)
        elif is_required:
            self.required(field, missing)

    def optional(self, field: str, form: Form) -> None:
        """Require a format of a text that is set, also of an empty one."""
        if self.value.get(field) is not None:
            self.check(field, form)

    def one_of(self, field: str, supported: Collection[str]) -> None:
        """Require one of some values if one is set, also if it is empty."""
        value = self.value.get(field)
        if value is not None and value not in supported:
            self.unsupported(field, value, supported)

    def choice(self, field: str, supported: Collection[str], *, is_required: bool = False) -> None:
        """Require one of some values; an empty one is missing if it is required, and otherwise valid."""
        value = self.text(field)
        if value and value not in supported:
            self.unsupported(field, value, supported)
        elif not value and is_required:
            self.required(field)

    def unique(self, field: str, value: T, seen: set[T], shown_as: object = None) -> None:
        """Require a value that is not among those seen before, and add it to them."""
        if value in seen:
            self.duplicate(field, value if shown_as is None else shown_as)
        seen.add(value)

    def no_repeats(self, field: str, values: Sequence[str]) -> None:
        """Require that the entries of a list differ in a value, which is given for each of them."""
        for index, each in enumerate(values):
            if each in values[:index]:
                self.duplicate(f"{field}[{index}]", each)

    def fits(self, field: str, limit: int) -> bool:
        """Require at most some entries of a list or map; return whether that is so."""
        count = len(self.value.get(field) or ())
        if count > limit:
            self.too_many(field, count, limit)
        return count <= limit

    def not_negative(self, *fields: str) -> None:
        for field in fields:
            if self.number(field) < 0:
                self.invalid(field, self.number(field), "must be greater than or equal to 0")

    def between(self, field: str, low: int, high: int) -> None:
        """Require that a number is in a range if it is set."""
        value = self.value.get(field)
        if value is not None and not low <= value <= high:
            self.invalid(field, value, f"must be between {low} and {high}, inclusive")

    def port(self, field: str) -> None:
        self.invalid(field, self.number(field), *port_number(self.number(field)))


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
_UNDERSCORED = r"[a-z0-9_]([-_a-z0-9]*[a-z0-9])?"
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


def _form(pattern: str, limit: int, message: str) -> Form:
    """Return the check of a pattern and of a maximum number of bytes."""

    @lru_cache(maxsize=4096)
    def check(value: str) -> Messages:
        found = () if len(value) <= limit else (f"must be no more than {limit} bytes",)
        return found if re.fullmatch(pattern, value) else (*found, message)

    return check


dns_label = _form(_LABEL, 63, _LABEL_MESSAGE)
"""RFC 1123 label, such as the name of a container."""
dns_subdomain = _form(_SUBDOMAIN, 253, _SUBDOMAIN_MESSAGE)
"""RFC 1123 subdomain, such as the name of most objects."""
dns_subdomain_with_underscore = _form(rf"{_UNDERSCORED}(\.{_UNDERSCORED})*", 253, _SUBDOMAIN_MESSAGE)
label_value = _form(rf"({_NAME})?", 63, _VALUE_MESSAGE)


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


def path_segment(value: str) -> Messages:
    """Check a name that is only a part of a URL, which all names must be."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in value)


def port_number(value: int) -> Messages:
    return () if 1 <= value <= 65535 else ("must be between 1 and 65535, inclusive",)


def port_name(value: str) -> Messages:
    wrong = {
        "must be no more than 15 characters": len(value) > 15,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": not re.fullmatch("[-a-z0-9]+", value),
        "must contain at least one letter (a-z)": not re.search("[a-z]", value),
        "must not contain consecutive hyphens": "--" in value,
        "must not begin or end with a hyphen": value.startswith("-") or value.endswith("-"),
    }
    return tuple(message for message, is_wrong in wrong.items() if is_wrong)


def environment_name(value: str) -> Messages:
    """Check the name of an environment variable: printable ASCII characters except "="."""
    if re.fullmatch(r"[ -<>-~]+", value):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def config_key(value: str) -> Messages:
    found = [] if len(value) <= 253 else ["must be no more than 253 bytes"]
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
