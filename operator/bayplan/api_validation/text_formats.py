"""Formats of names, labels, ports, paths and addresses, with the API server's messages.

Follows apimachinery v0.37.1, pkg/util/validation and pkg/api/validation. An empty result means that the text is valid.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

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
