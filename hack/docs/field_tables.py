"""Tables of fields from the JSON schema of a model.

Owns how a field's type, default and rules are told in Markdown. It must not know which models there are. Why from the
models' own schema and not from the CustomResourceDefinition: there, a type that is used thirteen times stands thirteen
times, and a reader wants to meet it once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scheduler_core.config.config_model import INT32_MAX, INT64_MAX

Schema = Mapping[str, Any]

_INT64_MIN = -INT64_MAX - 1
_RULES = "x-kubernetes-validations"
_UNTOLD_DEFAULTS: tuple[Any, ...] = (None, "", [], {})


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table.

    Args:
        heads: Headings of the columns.
        rows: Cells; line breaks and bars in them are made harmless.

    Returns:
        The lines, with a line break at the end.
    """
    told = [[" ".join(cell.split()).replace("|", r"\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in told)]
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def types_reached(root: str, definitions: Mapping[str, Schema]) -> Iterator[str]:
    """Name a type and those that its fields have, each once, before those that only it leads to.

    Args:
        root: Name of the type to begin with.
        definitions: Schemas by the types' names.

    Yields:
        The names.
    """
    waiting, seen = [root], {root}
    while waiting:
        name = waiting.pop(0)
        yield name
        found = [target for field in definitions[name].get("properties", {}).values() for target in _targets(field)]
        fresh = [target for target in dict.fromkeys(found) if target not in seen]
        seen.update(fresh)
        waiting = fresh + waiting


def type_section(name: str, definitions: Mapping[str, Schema], level: int) -> str:
    """Write the section of a type: what it is, its fields, and what the API server refuses.

    Args:
        name: Of the type.
        definitions: Schemas by the types' names.
        level: Of the heading.

    Returns:
        Markdown.
    """
    schema = definitions[name]
    required = schema.get("required", ())
    rows = []
    rules = list(schema.get(_RULES, ()))
    for field, own in schema.get("properties", {}).items():
        kind = ("**required** " if field in required else "") + type_of(own, definitions)
        rows.append((f"`{field}`", kind, default_of(own, definitions), str(own.get("description", ""))))
        rules += [{**rule, "fieldPath": f".{field}"} for rule in _without_null(own).get(_RULES, ())]
    text = f"{'#' * level} {name}\n\n{_sentence(schema)}\n\n"
    heads = ("field", "type", "default", "meaning")
    told = len(heads) if any(row[-1] for row in rows) else len(heads) - 1
    text += table(heads[:told], [row[:told] for row in rows])
    if rules:
        text += "\nThe API server refuses what does not keep to these rules:\n\n"
        text += "".join(dict.fromkeys(f"- {_rule(rule)}\n" for rule in rules))
    return text


def type_of(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """Tell a field's type and bounds in words, with a link where it is a type of its own."""
    told = _without_null(field)
    if "$ref" in told:
        target = told["$ref"].rpartition("/")[2]
        if "properties" not in definitions[target]:
            return type_of({**definitions[target], **{k: v for k, v in told.items() if k != "$ref"}}, definitions)
        return f"[{target}](#{target.lower()})"
    if "enum" in told:
        return ", ".join(f"`{value}`" for value in told["enum"])
    if "const" in told:
        return f"`{told['const']}`"
    kind = str(told.get("type", "" if "anyOf" in told else "string"))
    if kind == "array":
        at_most = f", at most {told['maxItems']}" if "maxItems" in told else ""
        return f"list of {type_of(told['items'], definitions)}{at_most}"
    if kind == "object":
        values = told.get("additionalProperties")
        return f"map of {type_of(values, definitions)}" if isinstance(values, Mapping) and values else "map"
    if not kind:
        return " or ".join(dict.fromkeys(type_of(choice, definitions) for choice in told["anyOf"]))
    if told.get("format") == "date-time":
        return "time"
    return kind + _bounds(told)


def default_of(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """Tell a field's default; empty where there is none or it is nothing."""
    value = field.get("default")
    if value in _UNTOLD_DEFAULTS or (isinstance(value, Mapping) and not _is_plain(field, definitions)):
        return ""
    if isinstance(value, Mapping) and set(value) == {"nanoseconds"}:
        return f"`{value['nanoseconds'] / 1e9:g}s`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _is_plain(field: Schema, definitions: Mapping[str, Schema]) -> bool:
    """Whether a field is no type with defaults of its own, which its own section tells."""
    target = _without_null(field).get("$ref", "").rpartition("/")[2]
    return "properties" not in definitions.get(target, {})


def _without_null(field: Schema) -> Schema:
    choices = [choice for choice in field.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) != 1:
        return field
    return {**choices[0], **{name: value for name, value in field.items() if name != "anyOf"}}


def _targets(field: Schema) -> Iterator[str]:
    told = _without_null(field)
    if "$ref" in told:
        yield told["$ref"].rpartition("/")[2]
    for inner in (told.get("items"), told.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _targets(inner)


def _bounds(told: Schema) -> str:
    """Say what a number or text may be, without what its size implies."""
    low, high = told.get("minimum"), told.get("maximum")
    low = None if low in (-INT32_MAX - 1, _INT64_MIN) else low
    high = None if high in (INT32_MAX, INT64_MAX) else high
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", at least {low}"
    if high is not None:
        return f", at most {high}"
    if "exclusiveMinimum" in told:
        return f", above {told['exclusiveMinimum']}"
    if "maxLength" in told:
        return f", at most {told['maxLength']} characters"
    return ""


def _rule(rule: Schema) -> str:
    path = str(rule.get("fieldPath", "")).lstrip(".")
    return f"`{path}`: {rule['message']}" if path else str(rule["message"])


def _sentence(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).replace("``", "`").split())
