"""Validation of one object as by the API server: its structure, then the rules of its kind or of its definition.

Specs of pods that differ only in their node are validated once, because a file may have tens of thousands of them. CEL
rules of custom resources are not evaluated: each of them is a rule of the models, too.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
import yaml

from bayplan.api_validation import object_rules as rules
from bayplan.api_validation.device_rules import DEVICE_RULES
from bayplan.api_validation.field_errors import Fields, Form, dns_label, dns_subdomain, other_problems, path_segment
from bayplan.api_validation.pod_rules import pod_problems
from bayplan.api_validation.selection_rules import metadata_problems
from bayplan.api_validation.strict_decoding import kubernetes_schema, strictly_decoded
from bayplan.api_validation.volume_rules import claim_problems, persistent_volume_problems
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.resource_model import API_VERSION, GROUP
from bayplan.texts import yaml_documents
from bayplan.texts.yaml_documents import value_at
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX
from scheduler_core.config.plugin_args import API_VERSION as KUBE_SCHEDULER_API
from scheduler_core.config.validation import did_you_mean, field_path
from scheduler_core.errors import Problem

_UNIQUE = frozenset({*(each.definition.kind for each in RESOURCES), "KubeSchedulerConfiguration"} - {"PodGroup"})
"""Kinds that no other API group has."""
_OTHER_KINDS = {
    API_VERSION: tuple(each.definition.kind for each in RESOURCES),
    KUBE_SCHEDULER_API: ("KubeSchedulerConfiguration",),
}
_GROUPS = frozenset({GROUP, KUBE_SCHEDULER_API.partition("/")[0], "scheduling.x-k8s.io"})


def version_problem(api_version: str, kind: str, known: Iterable[str]) -> Problem | None:
    """Return the problem of an object that is not read in one of the ``known`` versions; None if it does not matter."""
    served = kubernetes_schema().served
    group = _group(api_version)
    groups = _GROUPS | {_group(version) for version in served}
    versions = list(dict.fromkeys(known))
    if kind in served.get(api_version, ()):
        return None
    if versions and (group in groups or kind in _UNIQUE):
        expected = " or ".join(f'"{each}"' for each in versions)
        given = f'"{api_version}"' if api_version else "none"
        return Problem("apiVersion", f"must be {expected}, not {given}; convert the object to it")
    if kind == "List" and api_version:
        return Problem("apiVersion", f'must be "v1", not "{api_version}"; correct it')
    if not api_version:
        return Problem("apiVersion", "is required; add it")
    kinds = _OTHER_KINDS.get(api_version) or served.get(api_version)
    if kinds is not None:
        return Problem("kind", f'no kind "{kind}" in {api_version}{did_you_mean(kind, kinds)}; correct it')
    return None


def _group(api_version: str) -> str:
    return api_version.partition("/")[0] if "/" in api_version else ""


CONFIG_MAP = ("v1", "ConfigMap")
CONFIGURATION = "KubeSchedulerConfiguration"


def configurations_in(config_map: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the configurations in a ConfigMap, with their keys; none for one that holds something else.

    A text that mentions a configuration but is not YAML is returned as it is, so that it is reported.
    """
    return [
        (name, each)
        for name, each in documents_in(config_map, CONFIGURATION)
        if isinstance(each, str) or value_at(each, "kind") == CONFIGURATION
    ]


def documents_in(config_map: Mapping[str, Any], word: str) -> Iterator[tuple[str, Any]]:
    """Yield the documents of the texts in a ConfigMap that contain a word, with their keys; no YAML as it is."""
    data = config_map.get("data")
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and word in text:
            try:
                documents = list(yaml_documents.load_all(text, yaml_documents.ManifestLoader))
            except yaml.YAMLError:
                documents = [text]
            yield from ((str(name), each) for each in documents)


_MAX_KNOWN = 4096

_Rule = Callable[[Fields], None]


def _of_spec(check: _Rule) -> _Rule:
    return lambda body: check(body.part("spec"))


_RULES: Mapping[str, _Rule] = {
    "Pod": pod_problems,
    "Node": rules.node_problems,
    "Namespace": rules.namespace_problems,
    "PersistentVolume": _of_spec(persistent_volume_problems),
    "PersistentVolumeClaim": _of_spec(claim_problems),
    "StorageClass": rules.storage_class_problems,
    "CSINode": rules.csi_node_problems,
    "CSIDriver": rules.csi_driver_problems,
    "CSIStorageCapacity": rules.csi_capacity_problems,
    "VolumeAttachment": rules.volume_attachment_problems,
    "Service": rules.service_problems,
    "ReplicationController": rules.replication_controller_problems,
    "ReplicaSet": rules.replica_set_problems,
    "StatefulSet": rules.stateful_set_problems,
    "PodDisruptionBudget": rules.disruption_budget_problems,
    "PriorityClass": rules.priority_class_problems,
    "PodGroup": rules.native_group_problems,
    "CompositePodGroup": rules.composite_group_problems,
    **{kind: _of_spec(check) for kind, check in DEVICE_RULES.items()},
}
_NAME_FORMATS: Mapping[str, Form] = {
    "Namespace": dns_label,
    "Service": dns_label,
    "StatefulSet": dns_label,
    # Only what all names must satisfy.
    "PodDisruptionBudget": path_segment,
}
_NEW_GENERATION = frozenset(
    {
        "Pod",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
        "PodDisruptionBudget",
        "PriorityClass",
        "DeviceClass",
        "ResourceSlice",
        "DeviceTaintRule",
    }
)
"""Kinds of which the API server replaces ``metadata.generation`` before it validates an object."""


class ObjectValidation:
    """Validation of the objects that are read; valid specs of pods are cached."""

    def __init__(self) -> None:
        self._valid_specs: set[bytes] = set()

    def problems(self, body: Mapping[str, Any]) -> tuple[Problem, ...]:
        """Return all problems of an object with their paths; none for a kind or version without a schema."""
        kind, version = str(body.get("kind")), str(body.get("apiVersion"))
        if is_custom_resource(version, kind):
            return custom_resource_problems(body)
        type_name = kubernetes_schema().type_of(version, kind)
        if not type_name:
            return ()
        valid, problems = strictly_decoded(body, type_name)
        fields = Fields(valid)
        metadata = fields.part("metadata")
        metadata_problems(
            metadata,
            _NAME_FORMATS.get(kind, dns_subdomain),
            standard_finalizers=kind != "PodDisruptionBudget",
            checks_prefix=kind not in ("DeviceClass", "ReplicationController"),
        )
        if kind not in _NEW_GENERATION:
            metadata.not_negative("generation")
        key = None if problems or kind != "Pod" else _pod_key(fields)
        if key is None or key not in self._valid_specs:
            rule = _RULES.get(kind)
            before = len(fields.problems)
            if rule is not None:
                rule(fields)
            if key is not None and len(fields.problems) == before:
                if len(self._valid_specs) >= _MAX_KNOWN:
                    self._valid_specs.clear()
                self._valid_specs.add(key)
        return (*problems, *other_problems(fields.problems, problems))


def _pod_key(pod: Fields) -> bytes | None:
    """Return the content of a pod that the rules read; None if a problem depends on its name or its node's."""
    spec = pod.part("spec")
    node = spec.text("nodeName")
    if any(volume.get("ephemeral") for volume in spec.parts("volumes")) or dns_subdomain(node or "a"):
        return None
    rest = {name: value for name, value in spec.value.items() if name != "nodeName"}
    reads_labels = spec.get("topologySpreadConstraints") or spec.get("affinity")
    labels = pod.part("metadata").mapping("labels") if reads_labels else None
    # The node's name is valid or not by itself, but a gated pod must not have one.
    return msgspec.json.encode((rest, spec.get("nodeName") if spec.get("schedulingGates") else None, labels))


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
    fields = Fields(valid, "metadata")
    metadata_problems(fields, dns_subdomain, standard_finalizers=False)
    problems += other_problems(fields.problems, problems)
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
        found[resource.definition.kind] = _whole(schema["properties"].get("spec", {}), required=["spec"])
    return found
