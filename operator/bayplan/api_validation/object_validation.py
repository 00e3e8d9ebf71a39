"""Validation of one object as by the API server: its structure, then the rules of its kind.

Specs of pods that differ only in their node are validated once, because a file may have tens of thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from bayplan.api_validation import object_rules as rules
from bayplan.api_validation.custom_resources import custom_resource_problems, is_custom_resource
from bayplan.api_validation.device_rules import DEVICE_RULES
from bayplan.api_validation.field_errors import FieldErrors, mapping, other_problems
from bayplan.api_validation.metadata_rules import NameFormat, metadata_problems
from bayplan.api_validation.pod_rules import pod_problems
from bayplan.api_validation.strict_decoding import kubernetes_schema, strictly_decoded
from bayplan.api_validation.text_formats import dns_label, dns_subdomain, path_segment
from bayplan.resources.resource_model import API_VERSION, GROUP
from bayplan.texts import yaml_documents
from scheduler_core.config.plugin_args import API_VERSION as KUBE_SCHEDULER_API
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem

_UNIQUE = frozenset({"SchedulerProfile", "PluginConfig", "KubeSchedulerConfiguration"})
"""Kinds that no other API group has."""
_OTHER_KINDS = {
    API_VERSION: ("SchedulerProfile", "PluginConfig", "PodGroup"),
    KUBE_SCHEDULER_API: ("KubeSchedulerConfiguration",),
}
_GROUPS = frozenset({GROUP, KUBE_SCHEDULER_API.partition("/")[0], "scheduling.x-k8s.io"})


def version_problem(api_version: str, kind: str, known: Iterable[str]) -> Problem | None:
    """Return the problem of an object that is not read; None for a resource that does not matter.

    Args:
        api_version: Its apiVersion; "" if it has none.
        known: The apiVersions in which the kind is read; none for another kind.
    """
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
    data = config_map.get("data")
    found: list[tuple[str, Any]] = []
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if not isinstance(text, str) or CONFIGURATION not in text:
            continue
        try:
            documents = list(yaml_documents.load_all(text, yaml_documents.ManifestLoader))
        except yaml.YAMLError:
            documents = [text]
        found += [
            (str(name), each)
            for each in documents
            if isinstance(each, str) or (isinstance(each, Mapping) and each.get("kind") == CONFIGURATION)
        ]
    return found


_MAX_KNOWN = 4096

_Rule = Callable[[FieldErrors, Mapping[str, Any]], None]


def _of_spec(check: Callable[[FieldErrors, Mapping[str, Any], str], None]) -> _Rule:
    def rule(found: FieldErrors, body: Mapping[str, Any]) -> None:
        check(found, mapping(body, "spec"), "spec")

    return rule


_RULES: Mapping[str, _Rule] = {
    "Pod": pod_problems,
    "Node": rules.node_problems,
    "Namespace": rules.namespace_problems,
    "PersistentVolume": rules.persistent_volume_object_problems,
    "PersistentVolumeClaim": rules.claim_object_problems,
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
_NAME_FORMATS: Mapping[str, NameFormat] = {
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
        """Validate an object.

        Returns:
            All problems with their field paths; none for a kind or version that the schema does not have.
        """
        kind, version = str(body.get("kind")), str(body.get("apiVersion"))
        if is_custom_resource(version, kind):
            return custom_resource_problems(body)
        type_name = kubernetes_schema().type_of(version, kind)
        if not type_name:
            return ()
        valid, problems = strictly_decoded(body, type_name)
        found = FieldErrors()
        metadata_problems(
            found,
            mapping(valid, "metadata"),
            _NAME_FORMATS.get(kind, dns_subdomain),
            standard_finalizers=kind != "PodDisruptionBudget",
            checks_prefix=kind not in ("DeviceClass", "ReplicationController"),
        )
        if kind not in _NEW_GENERATION:
            found.not_negative("metadata.generation", mapping(valid, "metadata").get("generation") or 0)
        key = None if problems else _pod_key(valid, kind)
        if key is None or key not in self._valid_specs:
            rule = _RULES.get(kind)
            before = len(found.problems)
            if rule is not None:
                rule(found, valid)
            if key is not None and len(found.problems) == before:
                if len(self._valid_specs) >= _MAX_KNOWN:
                    self._valid_specs.clear()
                self._valid_specs.add(key)
        return (*problems, *other_problems(found.problems, problems))


def _pod_key(pod: Mapping[str, Any], kind: str) -> bytes | None:
    """Return the content of a pod that the rules read; None for another kind and for what depends on its name."""
    spec = mapping(pod, "spec")
    if kind != "Pod" or any((volume or {}).get("ephemeral") for volume in spec.get("volumes") or ()):
        return None
    if dns_subdomain(spec.get("nodeName") or "a"):
        return None
    rest = {name: value for name, value in spec.items() if name != "nodeName"}
    # The node's name is valid or not by itself, but a gated pod must not have one.
    labels = mapping(mapping(pod, "metadata"), "labels") if _reads_labels(spec) else None
    return msgspec.json.encode((rest, spec.get("nodeName") if spec.get("schedulingGates") else None, labels))


def _reads_labels(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("topologySpreadConstraints") or spec.get("affinity"))
