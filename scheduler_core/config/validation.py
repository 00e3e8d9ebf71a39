"""From a document to a model, or to every problem with its field path.

Owns the translation of pydantic's errors into ``Problem`` and the search for all of them. It must not know any one
configuration. Why the search needs more than one pass: pydantic does not judge the rules between fields of a model
that has a bad field, so a document is judged again with its bad parts left out, until nothing new is found.
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
_JUDGEMENTS = frozenset({RULE_ERROR_TYPE, "value_error", "assertion_error"})
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
    """Read a document into a model.

    Args:
        model: The model to read it into.
        document: What was parsed from YAML or JSON; left unchanged.
        prefix: Field path of the document within a larger one, such as ``spec``.

    Returns:
        The model.

    Raises:
        ConfigError: With every problem that could be found, in the order in which they were met; beyond 1,000 they
            are counted.
    """
    found: dict[Location, list[ErrorDetails]] = {}
    above: set[Location] = set()
    removed: set[Location] = set()
    for number in range(_MAX_PASSES):
        pruned, kept = _prune(document, removed)
        try:
            result = model.model_validate(pruned)
        except ValidationError as error:
            details = [(_original(detail["loc"], kept), detail) for detail in error.errors(include_url=False)]
        else:
            if not found:
                return result
            break
        known = frozenset(found)
        above.update(location[:length] for location in known for length in range(len(location)))
        for location, detail in details:
            if number == 0 or (detail["type"] in _JUDGEMENTS and not _touches(location, known, above)):
                found.setdefault(location, []).append(detail)
        cuts = {cut for location, detail in details if (cut := _cut(document, location, detail)) is not None}
        if not cuts - removed:
            break
        removed |= cuts
    told = [(location, detail) for location, details_ in found.items() for detail in details_]
    problems = [_problem(prefix, location, detail, model) for location, detail in told[:_MAX_PROBLEMS]]
    if len(told) > _MAX_PROBLEMS:
        problems.append(Problem(prefix, f"has {len(told) - _MAX_PROBLEMS} problems more; correct those told first"))
    raise ConfigError(problems)


def problems_of(error: ValidationError, prefix: str = "", model: type[BaseModel] | None = None) -> list[Problem]:
    """Translate a pydantic error.

    Args:
        error: What pydantic raised.
        prefix: Field path of the document within a larger one.
        model: The model that was read, for suggestions of similar field names; none are made without it.

    Returns:
        One problem for each error, with its path in the spelling of the document.
    """
    return [_problem(prefix, detail["loc"], detail, model) for detail in error.errors(include_url=False)]


def field_path(prefix: str, location: Iterable[str | int]) -> str:
    """Write a location as Kubernetes writes field paths.

    Args:
        prefix: What the path begins with; may be empty.
        location: Field names, list indices and keys of mappings.

    Returns:
        Such as ``profiles[0].plugins.score.enabled[2].name`` or ``minResources[example.com/gpu]``.
    """
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
    """Take a field path apart, as :func:`field_path` writes it.

    Args:
        path: Such as ``profiles[0].plugins``.

    Returns:
        For each step what stands in brackets, an index or a key, or else "", and the field's name, or else "".
    """
    return _STEP.findall(path)


def repeated(names: Sequence[str]) -> list[int]:
    """Find names that stand more than once.

    Args:
        names: The names in order.

    Returns:
        The index of each name that an earlier entry has too. The earlier index is not told, since messages must not
        contain indices: the list may have been judged without its bad entries.
    """
    first = {name: index for index, name in reversed(list(enumerate(names)))}
    return [index for index, name in enumerate(names) if first[name] != index]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest a similar name.

    Args:
        name: What was written.
        known: What could have been meant.

    Returns:
        A sentence part that begins with a space, or nothing.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f' (did you mean "{by_lower[close[0]]}"?)' if close else ""


def _problem(prefix: str, location: Location, detail: ErrorDetails, model: type[BaseModel] | None) -> Problem:
    return Problem(field_path(prefix, location), _message(location, detail, model))


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
            return "must not be empty; give a value or leave the field out"
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
    """Name a value without repeating a long or secret one."""
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
    """Names of the fields that the model at a location knows, as documents spell them; none where it is not found."""
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
    """The model that a type, a list of it or an optional of it is made of."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for part in typing.get_args(annotation) if (found := _model_within(part))), None)


def _prune(
    node: Any, removed: set[Location], path: Location = (), kept: dict[Location, list[int]] | None = None
) -> tuple[Any, dict[Location, list[int]]]:
    """Copy a document without the removed places; also tell which list entries stayed, by their own indices."""
    kept = {} if kept is None else kept
    if isinstance(node, Mapping):
        pruned = {
            key: _prune(value, removed, (*path, key), kept)[0]
            for key, value in node.items()
            if (*path, key) not in removed
        }
        return pruned, kept
    if isinstance(node, (list, tuple)):
        kept[path] = [index for index in range(len(node)) if (*path, index) not in removed]
        return [_prune(node[index], removed, (*path, index), kept)[0] for index in kept[path]], kept
    return node, kept


def _original(location: Location, kept: Mapping[Location, list[int]]) -> Location:
    """Translate a place in the pruned document into the place in the document as written."""
    path: Location = ()
    for part in location:
        indices = kept.get(path)
        own = indices[part] if isinstance(part, int) and indices is not None and part < len(indices) else part
        path = (*path, own)
    return path


def _cut(document: object, location: Location, detail: ErrorDetails) -> Location | None:
    """Say what to leave out so that the rest can be judged: the bad value, or what lacks a required field."""
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
    """Whether a problem at this place was told already, or judges what was left out.

    Args:
        location: The place.
        known: Places of problems that were told.
        above: Every place that one of them lies in.
    """
    return location in above or any(location[:length] in known for length in range(len(location) + 1))
