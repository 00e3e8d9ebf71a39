"""Kubernetes' functions on IP addresses, CIDRs and URLs.

IPv4-mapped IPv6 addresses and addresses with a zone are invalid, as in the reference.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import unquote_plus

from scheduler_core.cel.formatting import go_quoted
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import Cidr, IpAddress, Mapping, Url

_PREFIX_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def _address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise EvaluationError(f"ParseAddr({go_quoted(text)}): {_reason(text)}") from None


def _parse_ip(text: str) -> IpAddress:
    try:
        address = _address(text)
    except EvaluationError as error:
        message = f"IP Address {go_quoted(text)} parse error during conversion from string: {error}"
        raise EvaluationError(message) from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f"IP address {go_quoted(text)} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {go_quoted(text)} is not allowed")
    return IpAddress(address)


def _reason(text: str) -> str:
    """Return why Go's ``netip.ParseAddr`` rejects a text; for IPv6 without detail."""
    first = next((char for char in text if char in ".:%"), "")
    if first == "%":
        return f"missing IPv6 address (at {go_quoted(text)})"
    return _ipv4_reason(text) if first == "." else "unable to parse IP"


def _ipv4_reason(text: str) -> str:
    field = ""
    fields = 0
    for index, char in enumerate(text):
        rest = f" (at {go_quoted(text[index:])})"
        if char in "0123456789":
            if field == "0":
                return "IPv4 field has octet with leading zero"
            field += char
            if int(field) > 255:
                return "IPv4 field has value >255"
        elif char == ".":
            if index in (0, len(text) - 1) or text[index - 1] == ".":
                return f"IPv4 field must have at least one digit{rest}"
            if fields == 3:
                return "IPv4 address too long"
            fields += 1
            field = ""
        else:
            return f"unexpected character{rest}"
    return "IPv4 address too short"


def _parse_cidr(text: str) -> Cidr:
    address_text, slash, length = text.rpartition("/")
    failed = f"network address parse error during conversion from string: netip.ParsePrefix({go_quoted(text)}): "
    if not slash:
        raise EvaluationError(f"{failed}no '/'")
    try:
        address = _address(address_text)
    except EvaluationError as error:
        raise EvaluationError(f"{failed}{error}") from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise EvaluationError(f"{failed}IPv6 zones cannot be present in a prefix")
    if not _PREFIX_LENGTH.fullmatch(length):
        raise EvaluationError(f"{failed}bad bits after slash: {go_quoted(length)}")
    if int(length) > address.max_prefixlen:
        raise EvaluationError(f"{failed}prefix length out of range")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f"IPv4-mapped IPv6 address {go_quoted(text)} is not allowed")
    return Cidr(address, int(length))


def _cidr(text: str, _frame: Frame) -> Cidr:
    try:
        return _parse_cidr(text)
    except EvaluationError as error:
        raise EvaluationError(f"network address parse error during conversion from string: {error}") from None


def _valid(parse: Callable[[str], Any]) -> Callable[[str, Frame], bool]:
    def check(text: str, _frame: Frame) -> bool:
        try:
            parse(text)
        except EvaluationError:
            return False
        return True

    return check


def _is_canonical(text: str, _frame: Frame) -> bool:
    return str(_parse_ip(text).address) == text


def _contains_ip(cidr: Cidr, address: IpAddress) -> bool:
    one, two = cidr.address, address.address
    if one.version != two.version:
        return False
    shift = one.max_prefixlen - cidr.length
    return int(one) >> shift == int(two) >> shift


def _contains_cidr(cidr: Cidr, other: Cidr) -> bool:
    return cidr.length <= other.length and _contains_ip(cidr, IpAddress(other.address))


def _masked(cidr: Cidr, _frame: Frame) -> Cidr:
    shift = cidr.address.max_prefixlen - cidr.length
    return Cidr(type(cidr.address)(int(cidr.address) >> shift << shift), cidr.length)


def _is_global_unicast(ip: IpAddress, _frame: Frame) -> bool:
    address = ip.address
    if isinstance(address, IPv4Address) and int(address) == 2**32 - 1:
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(ip: IpAddress, _frame: Frame) -> bool:
    address = ip.address
    if isinstance(address, IPv4Address):
        return int(address) >> 8 == int(IPv4Address("224.0.0.0")) >> 8
    packed = address.packed
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?", re.ASCII)
_BAD_HOST = re.compile(r"[ <>\"\\^`{|}#?/]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_SAFE = re.compile(r"[^A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]")


def parse_url(text: str) -> Url:
    """Parse an absolute URL or a path, as Go's ``url.ParseRequestURI`` accepts them.

    Raises:
        EvaluationError: The text is neither.
    """

    def failed(reason: str) -> EvaluationError:
        return EvaluationError(f"URL parse error during conversion from string: parse {go_quoted(text)}: {reason}")

    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise failed("net/url: invalid control character in URL")
    if not text:
        raise failed("empty url")
    match = _SCHEME.match(text)
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    if match is None and text.startswith(":"):
        raise failed("missing protocol scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme or "?" in rest:
            raise failed("invalid URI for request")
        return Url(text, scheme, "", "", query)
    authority = ""
    # A fragment ends the rest when the URL itself is parsed.
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    user, at, host = authority.rpartition("@")
    form = _HOST.fullmatch(host)
    if (at and not _USER.fullmatch(user)) or form is None:
        raise failed("net/url: invalid userinfo" if at and not _USER.fullmatch(user) else _port_reason(host))
    if _BAD_HOST.search(host):
        bad = _BAD_HOST.search(host)
        raise failed(f"invalid character {go_quoted(bad.group() if bad else '')} in host name")
    escape = _ESCAPE.search(rest)
    if escape:
        raise failed(f"invalid URL escape {go_quoted(rest[escape.start() : escape.start() + 3])}")
    return Url(text, scheme, host, rest.partition("#")[0], query.partition("#")[0])


def _port_reason(host: str) -> str:
    return f"invalid port {go_quoted(':' + host.rpartition(':')[2])} after host"


def _hostname(url: Url, _frame: Frame) -> str:
    if url.host.startswith("["):
        return url.host[1:].partition("]")[0]
    return url.host.partition(":")[0]


def _port(url: Url, _frame: Frame) -> str:
    return url.host.rpartition("]")[2].partition(":")[2]


def _escaped_path(url: Url, _frame: Frame) -> str:
    return _PATH_SAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), url.path)


def _query(url: Url, _frame: Frame) -> Mapping:
    values: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part or _ESCAPE.search(part):
            continue
        key, _, value = part.partition("=")
        values.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return Mapping({key: tuple(found) for key, found in values.items()})


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "string_to_ip": lambda text, _frame: _parse_ip(text),
    "is_ip": _valid(_parse_ip),
    "ip_is_canonical": _is_canonical,
    "ip_family": lambda ip, _frame: ip.address.version,
    "ip_is_unspecified": lambda ip, _frame: ip.address.is_unspecified,
    "ip_is_loopback": lambda ip, _frame: ip.address.is_loopback,
    "ip_is_link_local_unicast": lambda ip, _frame: ip.address.is_link_local,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_global_unicast": _is_global_unicast,
    "ip_to_string": lambda ip, _frame: str(ip.address),
    "string_to_cidr": _cidr,
    "is_cidr": _valid(_parse_cidr),
    "cidr_to_string": lambda cidr, _frame: f"{cidr.address}/{cidr.length}",
    "cidr_ip": lambda cidr, _frame: IpAddress(cidr.address),
    "cidr_masked": _masked,
    "cidr_prefix_length": lambda cidr, _frame: cidr.length,
    "cidr_contains_ip_ip": lambda cidr, ip, _frame: _contains_ip(cidr, ip),
    "cidr_contains_cidr": lambda cidr, other, _frame: _contains_cidr(cidr, other),
    "cidr_contains_ip_string": lambda cidr, text, _frame: _contains_ip(cidr, _known_ip(text)),
    "cidr_contains_cidr_string": lambda cidr, text, frame: _contains_cidr(cidr, _cidr(text, frame)),
    "string_to_url": lambda text, _frame: parse_url(text),
    "is_url_string": _valid(parse_url),
    "url_get_scheme": lambda url, _frame: url.scheme,
    "url_get_host": lambda url, _frame: url.host,
    "url_get_hostname": _hostname,
    "url_get_port": _port,
    "url_get_escaped_path": _escaped_path,
    "url_get_query": _query,
}


def _known_ip(text: str) -> IpAddress:
    # The reference passes the error on as a value of the wrong type.
    try:
        return _parse_ip(text)
    except EvaluationError:
        raise EvaluationError("no such overload") from None
