"""Validation of a document by a model, with all problems and their field paths; and Kubernetes' rules for names.

It takes several passes, because pydantic does not check the rules between fields of a model that has an invalid field.
So the document is validated again without its invalid parts until no new problem is found.

They are not used for objects of the API server, which has validated them.
Source: apimachinery v0.37.1, pkg/util/validation and pkg/apis/core/v1/helper of Kubernetes v1.37.1.
"""

import difflib
import re
import typing
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from scheduler_core.config.config_model import RULE_ERROR_TYPE
from scheduler_core.errors import ConfigError, Problem

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_MAX_PASSES = 8
_MAX_PROBLEMS = 1000
_CHECKS = frozenset({RULE_ERROR_TYPE, "value_error", "assertion_error"})
_TYPE_WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of names to values",
    "mapping_type": "a mapping of names to values",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
}


def validate(model: type[Model], document: object, prefix: str = "") -> Model:
    """Validate a document by a model.

    Args:
        prefix: Field path of the document within a larger one, such as ``spec``.

    Raises:
        ConfigError: All problems that were found, in the order of their discovery; beyond 1,000 they are only counted.
    """
    found: dict[Location, list[ErrorDetails]] = {}
    above: set[Location] = set()
    removed: set[Location] = set()
    for number in range(_MAX_PASSES):
        pruned, remaining = _prune(document, removed)
        try:
            result = model.model_validate(pruned)
        except ValidationError as error:
            details = [(_original(detail["loc"], remaining), detail) for detail in error.errors(include_url=False)]
        else:
            if not found:
                return result
            break
        known = frozenset(found)
        above.update(location[:length] for location in known for length in range(len(location)))
        for location, detail in details:
            if number == 0 or (detail["type"] in _CHECKS and not _touches(location, known, above)):
                found.setdefault(location, []).append(detail)
        cuts = {cut for location, detail in details if (cut := _cut(document, location, detail)) is not None}
        if not cuts - removed:
            break
        removed |= cuts
    reported = [(location, detail) for location, details_ in found.items() for detail in details_]
    problems = [
        Problem(field_path(prefix, location), _message(location, detail, model))
        for location, detail in reported[:_MAX_PROBLEMS]
    ]
    if len(reported) > _MAX_PROBLEMS:
        problems.append(
            Problem(prefix, f"has {len(reported) - _MAX_PROBLEMS} more problems; correct the listed ones first")
        )
    raise ConfigError(problems)


def field_path(prefix: str, location: Iterable[str | int]) -> str:
    """Return a field path such as ``profiles[0].plugins.score.enabled[2]`` or ``minResources[example.com/gpu]``."""
    path = prefix
    for part in location:
        if part == "[key]":  # pydantic's mark for a mapping's key rather than its value
            continue
        if isinstance(part, int) or not part.replace("_", "").isalnum():
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def path_steps(path: str) -> list[tuple[str, str]]:
    """Split a field path into steps: each with its index or key in brackets, or "", and its field name, or ""."""
    return _STEP.findall(path)


def repeated(names: Sequence[str]) -> list[int]:
    """Find duplicate names.

    Returns:
        The index of each name that an earlier entry has too. The earlier index is not included, because messages must
        not contain indices: invalid entries of the list may have been removed.
    """
    first = {name: index for index, name in reversed(list(enumerate(names)))}
    return [index for index, name in enumerate(names) if first[name] != index]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of a similar name, which starts with a space, or an empty text."""
    nearest = nearest_name(name, known)
    return f' (did you mean "{nearest}"?)' if nearest else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name of which another one may be a misspelling; "" if there is none.

    Similarity alone would suggest Coscheduling for CapacityScheduling; a misspelt name differs in a letter of four.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    wrong = name.lower()
    close = difflib.get_close_matches(wrong, by_lower, n=3, cutoff=0.6)
    few = [each for each in close if _differences(wrong, each) <= max(1, len(wrong) // 4)]
    return by_lower[few[0]] if few else ""


def _differences(one: str, other: str) -> int:
    """Return how many letters must be added, removed, replaced or swapped with their neighbour."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, target in enumerate(other, start=1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != target))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == target:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        before, last = last, current
    return last[-1]


def _message(location: Location, detail: ErrorDetails, model: type[BaseModel] | None) -> str:
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    given = detail["input"]
    match kind:
        case "extra_forbidden":
            hint = did_you_mean(str(location[-1]), _field_names(model, location[:-1])) if model else ""
            return f"unknown field; remove it or correct its name{hint}"
        case "missing":
            return "is required; add it"
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {given}"
        case "greater_than":
            return f"must be greater than {context['gt']}, not {given}"
        case "less_than_equal":
            return f"must be at most {context['le']}, not {given}"
        case "string_too_short" | "too_short":
            return "must not be empty; set a value or remove the field"
        case "literal_error":
            return (
                f"must be one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}, not {_shown(given)}"
            )
        case "value_error" | "assertion_error":
            return str(context["error"])
        case _ if kind in _TYPE_WORDS:
            return f"must be {_TYPE_WORDS[kind]}, not {_shown(given)}"
        case _:
            return detail["msg"]


def _shown(value: object) -> str:
    """Return a value for a message, without long or secret text."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"' if len(value) <= 64 else "a long text"
        case int() | float():
            return str(value)
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case None:
            return "null"
        case _:
            return f"a value of type {type(value).__name__}"


def _field_names(model: type[BaseModel], location: Location) -> list[str]:
    """Return the field names of the model at a location, as in documents; none if there is no model."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int):
            continue
        if current is None:
            return []
        field = next((info for name, info in current.model_fields.items() if part in (info.alias, name)), None)
        current = _model_within(field.annotation) if field else None
    return [info.alias or name for name, info in current.model_fields.items()] if current else []


def _model_within(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for part in typing.get_args(annotation) if (found := _model_within(part))), None)


def _prune(
    node: Any, removed: set[Location], path: Location = (), remaining: dict[Location, list[int]] | None = None
) -> tuple[Any, dict[Location, list[int]]]:
    """Copy a document without the removed locations; also return which list entries stayed, by their indices."""
    remaining = {} if remaining is None else remaining
    if isinstance(node, Mapping):
        pruned = {
            key: _prune(value, removed, (*path, key), remaining)[0]
            for key, value in node.items()
            if (*path, key) not in removed
        }
        return pruned, remaining
    if isinstance(node, (list, tuple)):
        remaining[path] = [index for index in range(len(node)) if (*path, index) not in removed]
        return [_prune(node[index], removed, (*path, index), remaining)[0] for index in remaining[path]], remaining
    return node, remaining


def _original(location: Location, remaining: Mapping[Location, list[int]]) -> Location:
    """Translate a location in the pruned document to the location in the original document."""
    path: Location = ()
    for part in location:
        indices = remaining.get(path)
        own = indices[part] if isinstance(part, int) and indices is not None and part < len(indices) else part
        path = (*path, own)
    return path


def _cut(document: object, location: Location, detail: ErrorDetails) -> Location | None:
    """Return what to remove so that the rest can be validated: the invalid value, or the parent of a missing field."""
    cut = location[:-1] if detail["type"] == "missing" else location
    while cut and not _exists(document, cut):
        cut = cut[:-1]
    return cut or None


def _exists(node: Any, location: Location) -> bool:
    for part in location:
        if isinstance(node, Mapping):
            if part not in node:
                return False
        elif not (isinstance(node, (list, tuple)) and isinstance(part, int) and part < len(node)):
            return False
        node = node[part]
    return True


def _touches(location: Location, known: Container[Location], above: Container[Location]) -> bool:
    """Return whether a problem at this location was reported already, or results from what was removed."""
    return location in above or any(location[:length] in known for length in range(len(location) + 1))


_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_QUOTA_PREFIX = "requests."


def qualified_name_problems(name: str) -> list[str]:
    """Return what is wrong with a label key or resource name: an optional DNS prefix with a slash, then a name."""
    prefix, slash, local = name.rpartition("/")
    if "/" in prefix:
        return [f'"{name}" must have at most one slash: an optional DNS prefix, "/" and a name']
    problems = []
    if slash and (len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        problems.append(f'"{name}" must have a DNS name in lower case of at most 253 characters before the slash')
    if len(local) > 63 or not _NAME.fullmatch(local):
        problems.append(
            f'"{name}" must have 1 to 63 letters, digits, "-", "_" or "." as its name, '
            "with a letter or digit at both ends"
        )
    return problems


def label_value_problems(value: str) -> list[str]:
    """Return messages on a label value; empty for a valid value."""
    if value == "" or (len(value) <= 63 and _NAME.fullmatch(value)):
        return []
    message = (
        f'"{value}" is not a label value: use at most 63 letters, digits, "-", "_" or ".", '
        "with a letter or digit at both ends"
    )
    return [message]


def extended_resource_problems(name: str) -> list[str]:
    """Return what is wrong with a resource name of a device plugin or an extender."""
    problems = qualified_name_problems(name)
    if problems:
        return problems
    if "/" not in name or "kubernetes.io/" in name:
        return [f'"{name}" is reserved for Kubernetes; use an extended resource such as "example.com/foo"']
    if name.startswith(_QUOTA_PREFIX):
        return [f'"{name}" must not begin with "{_QUOTA_PREFIX}", which resource quotas use as a prefix']
    if qualified_name_problems(_QUOTA_PREFIX + name):
        return [f'"{name}" is too long: with "{_QUOTA_PREFIX}" before it the prefix exceeds 253 characters']
    return []
