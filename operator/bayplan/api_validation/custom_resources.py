"""Validation of custom resources by their CustomResourceDefinitions: Bayplan's own, and scheduler-plugins' PodGroup.

CEL rules are not evaluated here: each of them is a rule of the models, too.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from bayplan.api_validation.field_errors import FieldErrors, mapping, other_problems
from bayplan.api_validation.metadata_rules import metadata_problems
from bayplan.api_validation.strict_decoding import strictly_decoded
from bayplan.api_validation.text_formats import dns_subdomain
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX
from scheduler_core.config.validation import did_you_mean, field_path
from scheduler_core.errors import Problem

Schema = Mapping[str, Any]

_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of fields",
}
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"


def schema_problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    """Validate a value by a schema."""
    kind = schema.get("type")
    if schema.get(_INT_OR_STRING):
        kind = "integer" if _is("integer", value) else "string"
    if kind is not None and not _is(kind, value):
        yield Problem(path, f"must be {_WORDS[kind]}")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Problem(path, f"must be one of {', '.join(str(each) for each in schema['enum'])}")
    if kind == "object":
        yield from _object_problems(value, schema, path)
    elif kind == "array":
        yield from _array_problems(value, schema, path)
    elif kind == "string":
        yield from _text_problems(value, schema, path)
    elif kind in ("integer", "number"):
        yield from _number_problems(value, schema, path)


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case _:
            return isinstance(value, Mapping)


def _object_problems(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[Problem]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    given = {name: each for name, each in value.items() if each is not None}
    for name in schema.get("required", ()):
        if name not in given:
            yield Problem(field_path(path, (name,)), "is required; add it")
    if len(given) > schema.get("maxProperties", len(given)):
        yield Problem(path, f"must have at most {schema['maxProperties']} fields")
    for name, each in given.items():
        place = field_path(path, (str(name),))
        if name in properties:
            yield from schema_problems(each, properties[name], place)
        elif isinstance(extra, Mapping):
            yield from schema_problems(each, extra, place)
        elif properties and not schema.get(_PRESERVE):
            hint = did_you_mean(str(name), properties)
            yield Problem(place, f"unknown field; remove it or correct its name{hint}")


def _array_problems(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxItems", len(value)):
        yield Problem(path, f"must have at most {schema['maxItems']} entries; remove those that are not needed")
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, f"must have at least {schema['minItems']} entries")
    keys = schema.get("x-kubernetes-list-map-keys")
    is_set = schema.get("x-kubernetes-list-type") == "set"
    seen = set[str]()
    for index, each in enumerate(value):
        place = field_path(path, (index,))
        yield from schema_problems(each, schema.get("items", {}), place)
        identity = None
        if keys and isinstance(each, Mapping):
            identity = json.dumps([each.get(key) for key in keys], default=str)
        elif is_set:
            identity = json.dumps(each, default=str)
        if identity is not None and identity in seen:
            at = field_path(place, keys) if keys and len(keys) == 1 else place
            yield Problem(at, "occurs in an earlier entry already; remove one of them")
        if identity is not None:
            seen.add(identity)


def _text_problems(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    if len(value) > schema.get("maxLength", len(value)):
        yield Problem(path, f"must have at most {schema['maxLength']} characters, not {len(value)}")
    if len(value) < schema.get("minLength", 0):
        yield Problem(path, "must not be empty; set a value or remove the field")
    pattern = schema.get("pattern")
    if pattern and not re.search(pattern, value):
        yield Problem(path, f"must match {pattern}")
    if schema.get("format") == "byte":
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            yield Problem(path, "must be base64")


def _number_problems(value: float, schema: Schema, path: str) -> Iterator[Problem]:
    widest = INT32_MAX if schema.get("format") == "int32" else INT64_MAX
    lowest, highest = schema.get("minimum", -widest - 1), schema.get("maximum", widest)
    if value < lowest:
        yield Problem(path, f"must be at least {lowest}, not {value}")
    elif value > highest:
        yield Problem(path, f"must be at most {highest}, not {value}")


_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SCHEDULER_PLUGINS = ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
_SCHEDULER_PLUGINS_SPEC: Schema = {
    "type": "object",
    "properties": {
        "minMember": {"type": "integer", "format": "int32", "minimum": 1},
        "minResources": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"},
        "topologyAwarePolicy": {"type": "string"},
    },
}
"""Spec of scheduler-plugins v0.31: manifests/coscheduling/crd.yaml."""


def is_custom_resource(api_version: str, kind: str) -> bool:
    """Return whether an object is a custom resource that Bayplan reads."""
    return (api_version, kind) == _SCHEDULER_PLUGINS or (api_version == API_VERSION and kind in _specs())


def custom_resource_problems(body: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Validate metadata and structure of a custom resource; its status is ignored, as on creation."""
    metadata = body.get("metadata")
    valid: Mapping[str, Any] = {}
    problems: list[Problem] = []
    if metadata is None or isinstance(metadata, Mapping):
        valid, decoding = strictly_decoded(metadata or {}, _OBJECT_META)
        problems += [Problem(f"metadata.{each.path}" if each.path else "metadata", each.message) for each in decoding]
    else:
        problems.append(Problem("metadata", "must be a mapping of fields; correct it"))
    found = FieldErrors()
    metadata_problems(found, valid, dns_subdomain, standard_finalizers=False)
    problems += other_problems(found.problems, problems)
    rest = {name: value for name, value in body.items() if name not in ("metadata", "status")}
    schema = _schema(str(body.get("apiVersion")), str(body.get("kind")))
    problems += schema_problems({**rest, "metadata": {}}, schema, "")
    return tuple(problems)


def _schema(api_version: str, kind: str) -> Schema:
    if (api_version, kind) == _SCHEDULER_PLUGINS:
        return _whole(_SCHEDULER_PLUGINS_SPEC, required=[])
    return _specs()[kind]


def _whole(spec: Schema, *, required: list[str]) -> Schema:
    text: Schema = {"type": "string"}
    properties = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, "spec": spec}
    return {"type": "object", "properties": properties, "required": required}


@cache
def _specs() -> Mapping[str, Schema]:
    found = {}
    for resource in RESOURCES:
        definition = definition_of(resource)
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found[resource.definition.kind] = _whole(mapping(schema["properties"], "spec"), required=["spec"])
    return found
