"""Validation of custom resources by their CustomResourceDefinitions: Bayplan's own, and scheduler-plugins' PodGroup.

CEL rules are not evaluated here: each of them is a rule of the models, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from bayplan.api_validation.custom_resource_schema import Schema, schema_problems
from bayplan.api_validation.field_errors import FieldErrors, mapping, other_problems
from bayplan.api_validation.metadata_rules import metadata_problems
from bayplan.api_validation.strict_decoding import strictly_decoded
from bayplan.api_validation.text_formats import dns_subdomain
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.errors import Problem

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
    """Return the schemas of Bayplan's resources by kind."""
    found = {}
    for resource in RESOURCES:
        definition = definition_of(resource)
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found[resource.definition.kind] = _whole(mapping(schema["properties"], "spec"), required=["spec"])
    return found
