"""Kubernetes' named formats, ``format.dns1123Label()`` and others, by which strings are validated.

The messages are those of API validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

from scheduler_core.cel.network_functions import parse_url
from scheduler_core.cel.operators import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.timestamps import parse_timestamp
from scheduler_core.cel.values import NONE, NamedFormat, Optional

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_OLD_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_DATE_TIME_PATTERN_SIZE = 71
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ENDS = "and must start and end with an alphanumeric character"
_LABEL_RULE = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', " + _ENDS
)
_OLD_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_KEY_RULE = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
_VALUE_RULE = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', " + _ENDS


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join([f"'{example}', " for example in examples])
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "bytes") -> list[str]:
    exceeds = len(text.encode(errors="surrogatepass")) > limit
    return [f"must be no more than {limit} {unit}"] if exceeds else []


def _label(text: str) -> tuple[str, ...]:
    problems = _too_long(text, 63, "characters")
    if not re.fullmatch(_LABEL, text):
        if re.fullmatch(_SUBDOMAIN, text):
            problems.append("must not contain dots")
        else:
            problems.append(_mismatch(_LABEL_RULE, _LABEL, "my-name", "123-abc"))
    return tuple(problems)


def _subdomain(text: str, unit: str = "characters") -> tuple[str, ...]:
    problems = _too_long(text, 253, unit)
    if not re.fullmatch(_SUBDOMAIN, text):
        problems.append(_mismatch(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
    return tuple(problems)


def _old_label(text: str) -> tuple[str, ...]:
    problems = _too_long(text, 63, "characters")
    if not re.fullmatch(_OLD_LABEL, text):
        problems.append(_mismatch(_OLD_LABEL_RULE, _OLD_LABEL, "my-name", "abc-123"))
    return tuple(problems)


def _qualified_name(text: str) -> tuple[str, ...]:
    parts = text.split("/")
    if len(parts) > 2:
        rule = _mismatch(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
        return (f"a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    problems: list[str] = []
    name = parts[-1]
    if len(parts) == 2:
        found = _subdomain(parts[0], "bytes") if parts[0] else ("must be non-empty",)
        problems += [f"prefix part {message}" for message in found]
    if not name:
        problems.append("name part must be non-empty")
    problems += [f"name part {message}" for message in _too_long(name, 63)]
    if not re.fullmatch(_KEY, name):
        problems.append(f"name part {_mismatch(_KEY_RULE, _KEY, 'MyName', 'my.name', '123-abc')}")
    return tuple(problems)


def _label_value(text: str) -> tuple[str, ...]:
    problems = _too_long(text, 63)
    if not re.fullmatch(_VALUE, text):
        problems.append(_mismatch(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345"))
    return tuple(problems)


def _prefix(validate: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    def check(text: str) -> tuple[str, ...]:
        return validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return check


def _uri(text: str) -> tuple[str, ...]:
    try:
        parse_url(text)
    except EvaluationError as error:
        return (str(error).removeprefix("URL parse error during conversion from string: "),)
    return ()


def _only_if(accepts: Callable[[str], bool], message: str) -> Callable[[str], tuple[str, ...]]:
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
    "uuid": NamedFormat(
        "uuid", len(_UUID), _only_if(lambda text: bool(re.search(_UUID, text)), "does not match the UUID format")
    ),
    "byte": NamedFormat("byte", 84, _only_if(lambda text: bool(_BASE64.fullmatch(text)), "invalid base64")),
    "date": NamedFormat("date", _DATE_TIME_PATTERN_SIZE, _only_if(_is_date, "invalid date")),
    "datetime": NamedFormat(
        "datetime",
        _DATE_TIME_PATTERN_SIZE,
        _only_if(lambda text: parse_timestamp(text) is not None, "invalid datetime"),
    ),
}


def _named(name: str, _frame: Frame) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: NamedFormat, text: str, _frame: Frame) -> Optional:
    problems = named.validate(text)
    return Optional(problems) if problems else NONE


def _constant(named: NamedFormat) -> Callable[[Frame], NamedFormat]:
    return lambda _frame: named


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "format-named": _named,
    "format-validate": _validate,
    **{f"format.{name}": _constant(named) for name, named in _FORMATS.items()},
}
