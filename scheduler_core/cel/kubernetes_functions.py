"""Functions of Kubernetes' libraries: quantities, semantic versions, IP addresses, CIDRs, URLs and named formats.

Messages are those of the reference.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import unquote_plus

from scheduler_core.cel.overloads import TRAVERSAL, Frame, Implementation, cidr_contains, first, function, validation
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.standard_functions import parse_timestamp
from scheduler_core.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MISSING,
    Cidr,
    IpAddress,
    Mapping,
    NamedFormat,
    Optional,
    Quantity,
    Semver,
    Url,
    go_quoted,
)

# -- quantities -------------------------------------------------------------------------------------------------------

_NANO = 10**9
_SPLIT = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_FORM = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_MAX_EXPONENT = 2**31 - 1
# Larger powers of ten are all the same amount: they exceed every quantity that a device has.
_LARGEST_POWER = 400
_LARGEST_FLOAT_EXPONENT = 308
_INT64_DIGITS = 18
# Python limits the length of text that it converts to a number.
_MAX_LENGTH = 4_000


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity; raise EvaluationError if the text is none."""
    form = _FORM.fullmatch(text)
    if form is None or not text or len(text) > _MAX_LENGTH:
        raise EvaluationError(f"quantities must match the regular expression '{_SPLIT}'")
    sign = -1 if form[1] == "-" else 1
    whole, fraction, suffix = form[2].lstrip("0"), form[4] or "", form[5]
    if not whole and form[3] is None and not suffix:
        return Quantity(0, (0, 0))
    power, exponent = _suffix(suffix)
    digits = (whole or "0") + fraction
    scaled = _scaled(sign, digits, len(fraction), power, exponent)
    if scaled is None and not form[2] and not form[4]:
        raise EvaluationError("unable to parse numeric part of quantity")
    return Quantity(_nano(sign, int(digits), len(fraction), power, exponent), scaled)


def _suffix(suffix: str) -> tuple[int, int]:
    """Return the power of two and the power of ten of a suffix."""
    if suffix in _BINARY:
        return _BINARY[suffix], 0
    if suffix in _DECIMAL:
        return 0, _DECIMAL[suffix]
    form = _EXPONENT.fullmatch(suffix)
    if form is None or abs(int(form[1])) > _MAX_EXPONENT:
        raise EvaluationError("unable to parse quantity's suffix")
    return 0, int(form[1])


def _scaled(sign: int, digits: str, places: int, power: int, exponent: int) -> tuple[int, int] | None:
    """Return value and scale where the reference represents the amount as an int64, else None."""
    precision = 14 - int(power * 3 / 10) if power else _INT64_DIGITS
    scale = exponent - places
    if len(digits) > precision or scale < -9 or (power and places):
        return None
    value = int(digits) << power
    return (sign * value, scale) if value <= MAX_INT else None


def _nano(sign: int, digits: int, places: int, power: int, exponent: int) -> int:
    shift = exponent - places + 9
    amount = digits << power
    if not amount:
        return 0
    if shift >= 0:
        nano = amount * int(10 ** min(shift, _LARGEST_POWER))
    else:
        # The amount has fewer digits than a third of its bits, plus one: a larger shift leaves the smallest amount.
        nano = 1 if -shift > amount.bit_length() // 3 + 1 else -(-amount // int(10**-shift))
    if power:
        nano = min(nano, MAX_INT * _NANO)
    return sign * nano


def _as_int64(quantity: Quantity) -> int | None:
    if quantity.scaled is None:
        return None
    value, scale = quantity.scaled
    if scale < 0:
        return None
    if not value:
        return 0
    whole = value * 10**scale if scale <= _INT64_DIGITS else MAX_INT + 1
    return whole if MIN_INT <= whole <= MAX_INT else None


def _float(quantity: Quantity, _frame: Frame) -> float:
    if quantity.scaled is not None:
        value, scale = quantity.scaled
        return float(value) * (10.0**scale if scale <= _LARGEST_FLOAT_EXPONENT else math.inf)
    return quantity.nano / _NANO if abs(quantity.nano) < 10**300 else math.inf


def _integer(quantity: Quantity, _frame: Frame) -> int:
    whole = _as_int64(quantity)
    if whole is None:
        raise EvaluationError("cannot convert value to integer")
    return whole


def _sum(one: Quantity, two: Quantity) -> Quantity:
    scaled = None
    if one.scaled is not None and two.scaled is not None:
        scaled = _scaled_sum(one.scaled, two.scaled)
    return Quantity(one.nano + two.nano, scaled, computed=True)


def _scaled_sum(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int] | None:
    if not two[0]:
        return one
    if not one[0]:
        return two
    scale = min(one[1], two[1])
    parts = [value * 10 ** (own - scale) for value, own in (one, two)]
    total = sum(parts)
    fits = all(MIN_INT <= number <= MAX_INT for number in (*parts, total))
    return (total, scale) if fits else None


def _difference(one: Quantity, two: Quantity) -> Quantity:
    scaled = two.scaled
    # The reference negates the scaled int64, which leaves the smallest one as it is.
    if one.scaled is not None and scaled is not None and scaled[0] == MIN_INT:
        return _sum(one, two)
    return _sum(one, Quantity(-two.nano, None if scaled is None else (-scaled[0], scaled[1])))


def _whole(number: int) -> Quantity:
    return Quantity(number * _NANO, (number, 0))


# -- semantic versions ----------------------------------------------------------------------------------------------

_NUMERIC = re.compile(r"[0-9]+", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+", re.ASCII)


@lru_cache(maxsize=4096)
def parse_semver(text: str) -> Semver:
    """Parse a semantic version; raise EvaluationError if the text is none."""
    if not text:
        raise EvaluationError("Version string empty")
    if len(text) > _MAX_LENGTH:
        raise EvaluationError("version string too long")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number(parts[0], "major"), _number(parts[1], "minor")
    patch_text, plus, build = parts[2].partition("+")
    patch_text, dash, prerelease = patch_text.partition("-")
    patch = _number(patch_text, "patch")
    identifiers = tuple([_prerelease(part) for part in prerelease.split(".")]) if dash else ()
    if plus:
        for part in build.split("."):
            if not part:
                raise EvaluationError("Build meta data is empty")
            if not _IDENTIFIER.fullmatch(part):
                raise EvaluationError(f"Invalid character(s) found in build meta data {go_quoted(part)}")
    return Semver(major, minor, patch, identifiers, build)


def _number(text: str, part: str) -> int:
    if not all(char in "0123456789" for char in text):
        raise EvaluationError(f"Invalid character(s) found in {part} number {go_quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{part.capitalize()} number must not contain leading zeroes {go_quoted(text)}")
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    return _uint64(text)


def _uint64(digits: str) -> int:
    if int(digits) > MAX_UINT:
        raise EvaluationError(f"strconv.ParseUint: parsing {go_quoted(digits)}: value out of range")
    return int(digits)


def _prerelease(text: str) -> int | str:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _NUMERIC.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {go_quoted(text)}")
        return _uint64(text)
    if not _IDENTIFIER.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {go_quoted(text)}")
    return text


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in "0123456789" else f"0{stripped}"
    if len(parts) < 3:
        if any(char in "+-" for char in parts[-1]):
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver(text: str, *rest: Any) -> Semver:
    return parse_semver(_normalized(text) if len(rest) > 1 and rest[0] else text)


def _signed(number: int) -> int:
    return number if number <= MAX_INT else number - (1 << 64)


def parses(run: Implementation) -> Implementation:
    def accepts(*args: Any) -> bool:
        try:
            run(*args)
        except EvaluationError:
            return False
        return True

    return accepts


# -- IP addresses, CIDRs and URLs -------------------------------------------------------------------------------------

_PREFIX_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)


def _address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise EvaluationError(f"ParseAddr({go_quoted(text)}): {_reason(text)}") from None


def _parse_ip(text: str, _frame: Frame | None = None) -> IpAddress:
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
    if first != ".":
        return "missing IPv6 address" if first == "%" else "unable to parse IP"
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


def _cidr(text: str, _frame: Frame) -> Cidr:
    address_text, slash, length = text.rpartition("/")
    prefix = "network address parse error during conversion from string: "
    failed = f"{prefix}{prefix}netip.ParsePrefix({go_quoted(text)}): "
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
        raise EvaluationError(f"{prefix}IPv4-mapped IPv6 address {go_quoted(text)} is not allowed")
    return Cidr(address, int(length))


def _contains_ip(cidr: Cidr, address: IpAddress, _frame: Frame) -> bool:
    one, two = cidr.address, address.address
    shift = one.max_prefixlen - cidr.length
    return one.version == two.version and int(one) >> shift == int(two) >> shift


def _contains_ip_text(cidr: Cidr, text: str, frame: Frame) -> bool:
    # The reference passes the error on as a value of the wrong type.
    try:
        address = _parse_ip(text)
    except EvaluationError:
        raise EvaluationError("no such overload") from None
    return _contains_ip(cidr, address, frame)


def _contains_cidr(cidr: Cidr, inner: Cidr | str, frame: Frame) -> bool:
    other = _cidr(inner, frame) if isinstance(inner, str) else inner
    return cidr.length <= other.length and _contains_ip(cidr, IpAddress(other.address), frame)


def _masked(cidr: Cidr, _frame: Frame) -> Cidr:
    shift = cidr.address.max_prefixlen - cidr.length
    return Cidr(type(cidr.address)(int(cidr.address) >> shift << shift), cidr.length)


def _is_global_unicast(ip: IpAddress, _frame: Frame) -> bool:
    address = ip.address
    if isinstance(address, IPv4Address) and int(address) == 2**32 - 1:
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(ip: IpAddress, _frame: Frame) -> bool:
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed.startswith(bytes([224, 0, 0]))
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
_HOST = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?", re.ASCII)
_BAD_HOST = re.compile(r"[ <>\"\\^`{|}#?/]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PATH_SAFE = re.compile(r"[^A-Za-z0-9\-_.~$&+,/:;=@!'()*\[\]%]")


def parse_url(text: str, _frame: Frame | None = None) -> Url:
    """Parse an absolute URL or a path as Go's ``url.ParseRequestURI``; raise EvaluationError for others."""

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
    if at and not _USER.fullmatch(user):
        raise failed("net/url: invalid userinfo")
    if not _HOST.fullmatch(host):
        raise failed(f"invalid port {go_quoted(':' + host.rpartition(':')[2])} after host")
    bad = _BAD_HOST.search(host)
    if bad:
        raise failed(f"invalid character {go_quoted(bad.group())} in host name")
    escape = _ESCAPE.search(rest)
    if escape:
        raise failed(f"invalid URL escape {go_quoted(rest[escape.start() : escape.start() + 3])}")
    return Url(text, scheme, host, rest.partition("#")[0], query.partition("#")[0])


def _hostname(url: Url, _frame: Frame) -> str:
    return url.host[1:].partition("]")[0] if url.host.startswith("[") else url.host.partition(":")[0]


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


# -- named formats ----------------------------------------------------------------------------------------------------

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ENDS = "and must start and end with an alphanumeric character"
_KEY_RULE = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"

_Validation = Callable[[str], tuple[str, ...]]


def _text_rule(pattern: str, rule: str, *examples: str, limit: int = 63, unit: str = "characters") -> _Validation:
    """Return the validation of a text by a pattern and a largest length in bytes, which messages call *unit*."""
    shown = " or ".join([f"'{example}', " for example in examples])

    def validate(text: str) -> tuple[str, ...]:
        problems = []
        if len(text.encode(errors="surrogatepass")) > limit:
            problems.append(f"must be no more than {limit} {unit}")
        if not re.fullmatch(pattern, text):
            dotted = pattern == _LABEL and re.fullmatch(_SUBDOMAIN, text)
            mismatch = f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"
            problems.append("must not contain dots" if dotted else mismatch)
        return tuple(problems)

    return validate


_RFC_1123 = "must consist of lower case alphanumeric characters"
_SUBDOMAIN_RULE = f"a lowercase RFC 1123 subdomain {_RFC_1123}, '-' or '.', {_ENDS}"
_OLD_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_VALUE_RULE = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
_label = _text_rule(_LABEL, f"a lowercase RFC 1123 label {_RFC_1123} or '-', {_ENDS}", "my-name", "123-abc")
_subdomain = _text_rule(_SUBDOMAIN, _SUBDOMAIN_RULE, "example.com", limit=253)
_old_label = _text_rule("[a-z]([-a-z0-9]*[a-z0-9])?", _OLD_LABEL_RULE, "my-name", "abc-123")
_label_value = _text_rule(f"({_KEY})?", _VALUE_RULE, "MyValue", "my_value", "12345", unit="bytes")
_key = _text_rule(_KEY, _KEY_RULE, "MyName", "my.name", "123-abc", unit="bytes")
_key_prefix = _text_rule(_SUBDOMAIN, _SUBDOMAIN_RULE, "example.com", limit=253, unit="bytes")


def _qualified_name(text: str) -> tuple[str, ...]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        rule = _key("/")[0]
        return (f"a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    of_prefix = _key_prefix(prefix) if prefix else ("must be non-empty",)
    problems = [f"prefix part {message}" for message in of_prefix if slash]
    if not name:
        problems.append("name part must be non-empty")
    return (*problems, *[f"name part {message}" for message in _key(name)])


def _prefix(validate: _Validation) -> _Validation:
    return lambda text: validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except EvaluationError as error:
        return (str(error).removeprefix("URL parse error during conversion from string: "),)
    return ()


def _only_if(accepts: Callable[[str], Any], message: str) -> _Validation:
    return lambda text: () if accepts(text) else (message,)


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return text.startswith("0000-")


_FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", 30, _label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", 30, _old_label),
    "qualifiedName": NamedFormat("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", 30, _prefix(_label)),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", 60, _prefix(_subdomain)),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", 30, _prefix(_old_label)),
    "labelValue": NamedFormat("LabelValue", 40, _label_value),
    "uri": NamedFormat("URI", 1103, _uri),
    "uuid": NamedFormat("uuid", len(_UUID), _only_if(re.compile(_UUID).search, "does not match the UUID format")),
    "byte": NamedFormat("byte", 84, _only_if(_BASE64.fullmatch, "invalid base64")),
    "date": NamedFormat("date", 71, _only_if(_is_date, "invalid date")),
    "datetime": NamedFormat("datetime", 71, _only_if(parse_timestamp, "invalid datetime")),
}

_CONTAINS_CIDR = cidr_contains(masked=True)

FUNCTIONS = [
    function("quantity", "(string) -> Quantity", lambda text, _frame: parse_quantity(text), first(TRAVERSAL)),
    function("isQuantity", "(string) -> bool", parses(lambda text, _frame: parse_quantity(text)), first(TRAVERSAL)),
    function("sign", "(Quantity) -> int", lambda one, _frame: (one.nano > 0) - (one.nano < 0)),
    function("isGreaterThan", "Quantity.(Quantity) -> bool", lambda one, two, _frame: one.nano > two.nano),
    function("isGreaterThan", "Semver.(Semver) -> bool", lambda one, two, _frame: one.compare(two) > 0),
    function("isLessThan", "Quantity.(Quantity) -> bool", lambda one, two, _frame: one.nano < two.nano),
    function("isLessThan", "Semver.(Semver) -> bool", lambda one, two, _frame: one.compare(two) < 0),
    function("compareTo", "Quantity.(Quantity) -> int", lambda a, b, _frame: (a.nano > b.nano) - (a.nano < b.nano)),
    function("compareTo", "Semver.(Semver) -> int", lambda one, two, _frame: one.compare(two)),
    function("asApproximateFloat", "Quantity.() -> double", _float),
    function("asInteger", "Quantity.() -> int", _integer),
    function("isInteger", "Quantity.() -> bool", lambda one, _frame: _as_int64(one) is not None),
    function("add", "Quantity.(Quantity) -> Quantity", lambda one, two, _frame: _sum(one, two)),
    function("add", "Quantity.(int) -> Quantity", lambda one, number, _frame: _sum(one, _whole(number))),
    function("sub", "Quantity.(Quantity) -> Quantity", lambda one, two, _frame: _difference(one, two)),
    function("sub", "Quantity.(int) -> Quantity", lambda one, number, _frame: _difference(one, _whole(number))),
    function("semver", "(string) | (string, bool) -> Semver", _semver, first(TRAVERSAL)),
    function("isSemver", "(string) | (string, bool) -> bool", parses(_semver), first(TRAVERSAL)),
    function("major", "Semver.() -> int", lambda one, _frame: _signed(one.major)),
    function("minor", "Semver.() -> int", lambda one, _frame: _signed(one.minor)),
    function("patch", "Semver.() -> int", lambda one, _frame: _signed(one.patch)),
    function("ip", "(string) -> IP", _parse_ip, first(TRAVERSAL)),
    function("ip", "CIDR.() -> IP", lambda cidr, _frame: IpAddress(cidr.address), exact=1),
    function("isIP", "(string) -> bool", parses(_parse_ip), first(TRAVERSAL)),
    function(
        "ip.isCanonical",
        "(string) -> bool",
        lambda text, _frame: str(_parse_ip(text).address) == text,
        first(2 * TRAVERSAL),
    ),
    function("family", "IP.() -> int", lambda ip, _frame: ip.address.version),
    function("isUnspecified", "IP.() -> bool", lambda ip, _frame: ip.address.is_unspecified),
    function("isLoopback", "IP.() -> bool", lambda ip, _frame: ip.address.is_loopback),
    function("isLinkLocalUnicast", "IP.() -> bool", lambda ip, _frame: ip.address.is_link_local),
    function("isLinkLocalMulticast", "IP.() -> bool", _is_link_local_multicast),
    function("isGlobalUnicast", "IP.() -> bool", _is_global_unicast),
    function("cidr", "(string) -> CIDR", _cidr, first(TRAVERSAL)),
    function("isCIDR", "(string) -> bool", parses(_cidr), first(TRAVERSAL)),
    function("string", "(IP) -> string", lambda ip, _frame: str(ip.address)),
    function("string", "(CIDR) -> string", lambda cidr, _frame: f"{cidr.address}/{cidr.length}"),
    function("masked", "CIDR.() -> CIDR", _masked),
    function("prefixLength", "CIDR.() -> int", lambda cidr, _frame: cidr.length),
    function(
        "containsIP", "CIDR.(string) -> bool", _contains_ip_text, cidr_contains(), exact=cidr_contains(parsed=True)
    ),
    function("containsIP", "CIDR.(IP) -> bool", _contains_ip, cidr_contains()),
    function(
        "containsCIDR",
        "CIDR.(string) -> bool",
        _contains_cidr,
        _CONTAINS_CIDR,
        exact=cidr_contains(parsed=True, masked=True),
    ),
    function("containsCIDR", "CIDR.(CIDR) -> bool", _contains_cidr, _CONTAINS_CIDR),
    function("url", "(string) -> URL", parse_url, first(TRAVERSAL)),
    function("isURL", "(string) -> bool", parses(parse_url)),
    function("getScheme", "URL.() -> string", lambda url, _frame: url.scheme),
    function("getHost", "URL.() -> string", lambda url, _frame: url.host),
    function("getHostname", "URL.() -> string", _hostname),
    function("getPort", "URL.() -> string", lambda url, _frame: url.host.rpartition("]")[2].partition(":")[2]),
    function("getEscapedPath", "URL.() -> string", _escaped_path),
    function("getQuery", "URL.() -> map(string, list(string))", _query),
    function(
        "format.named", "(string) -> optional(NamedFormat)", lambda name, _frame: Optional(_FORMATS.get(name, MISSING))
    ),
    *[
        function(f"format.{name}", "() -> NamedFormat", lambda _frame, named=named: named)
        for name, named in _FORMATS.items()
    ],
    function(
        "validate",
        "NamedFormat.(string) -> optional(list(string))",
        lambda named, text, _frame: Optional(named.validate(text) or MISSING),
        validation,
    ),
]
