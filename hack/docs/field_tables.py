"""Generates tables of fields from the JSON schema of a model.

The source is the model's schema and not the CustomResourceDefinition: that one repeats a type wherever it is used, and
a page should describe it once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scheduler_core.config.config_model import INT32_MAX, INT64_MAX

Schema = Mapping[str, Any]

_INT64_MIN = -INT64_MAX - 1
_RULES = "x-kubernetes-validations"
_EMPTY_DEFAULTS: tuple[Any, ...] = (None, "", [], {})


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table.

    Args:
        rows: Cells; line breaks and bars in them are escaped.
    """
    escaped = [[" ".join(cell.split()).replace("|", r"\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in escaped)]
    return "".join(f"{' '.join(line.split())}\n" for line in lines)


def types_reached(root: str, definitions: Mapping[str, Schema]) -> Iterator[str]:
    """Yield a type and the types of its fields, each once, before the types that only it leads to."""
    waiting, seen = [root], {root}
    while waiting:
        name = waiting.pop(0)
        yield name
        found = [target for field in definitions[name].get("properties", {}).values() for target in _targets(field)]
        fresh = [target for target in dict.fromkeys(found) if target not in seen]
        seen.update(fresh)
        waiting = fresh + waiting


def type_section(name: str, definitions: Mapping[str, Schema], level: int) -> str:
    """Return the section of a type: description, fields, and validation rules."""
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
    width = len(heads) if any(row[-1] for row in rows) else len(heads) - 1
    text += table(heads[:width], [row[:width] for row in rows])
    if rules:
        text += "\nThe API server rejects objects that break these rules:\n\n"
        text += "".join(dict.fromkeys(f"- {_rule(rule)}\n" for rule in rules))
    return text


def type_of(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return a field's type and bounds in words, with a link if the type has its own section."""
    schema = _without_null(field)
    if "$ref" in schema:
        target = schema["$ref"].rpartition("/")[2]
        if "properties" not in definitions[target]:
            return type_of({**definitions[target], **{k: v for k, v in schema.items() if k != "$ref"}}, definitions)
        return f"[{target}](#{target.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = str(schema.get("type", "" if "anyOf" in schema else "string"))
    if kind == "array":
        at_most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        return f"list of {type_of(schema['items'], definitions)}{at_most}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"map of {type_of(values, definitions)}" if isinstance(values, Mapping) and values else "map"
    if not kind:
        return " or ".join(dict.fromkeys(type_of(choice, definitions) for choice in schema["anyOf"]))
    if schema.get("format") == "date-time":
        return "time"
    return kind + _bounds(schema)


def default_of(field: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return a field's default; empty if there is none or it is empty."""
    value = field.get("default")
    if value in _EMPTY_DEFAULTS or (isinstance(value, Mapping) and not _is_plain(field, definitions)):
        return ""
    if isinstance(value, Mapping) and set(value) == {"nanoseconds"}:
        return f"`{value['nanoseconds'] / 1e9:g}s`"
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _is_plain(field: Schema, definitions: Mapping[str, Schema]) -> bool:
    """Return whether the field's type has no section of its own."""
    target = _without_null(field).get("$ref", "").rpartition("/")[2]
    return "properties" not in definitions.get(target, {})


def _without_null(field: Schema) -> Schema:
    choices = [choice for choice in field.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) != 1:
        return field
    return {**choices[0], **{name: value for name, value in field.items() if name != "anyOf"}}


def _targets(field: Schema) -> Iterator[str]:
    schema = _without_null(field)
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2]
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _targets(inner)


def _bounds(schema: Schema) -> str:
    """Return the bounds of a number or text, except those that its size implies."""
    low, high = schema.get("minimum"), schema.get("maximum")
    low = None if low in (-INT32_MAX - 1, _INT64_MIN) else low
    high = None if high in (INT32_MAX, INT64_MAX) else high
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", at least {low}"
    if high is not None:
        return f", at most {high}"
    if "exclusiveMinimum" in schema:
        return f", above {schema['exclusiveMinimum']}"
    if "maxLength" in schema:
        return f", at most {schema['maxLength']} characters"
    return ""


def _rule(rule: Schema) -> str:
    path = str(rule.get("fieldPath", "")).lstrip(".")
    return f"`{path}`: {rule['message']}" if path else str(rule["message"])


def _sentence(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).replace("``", "`").split())
