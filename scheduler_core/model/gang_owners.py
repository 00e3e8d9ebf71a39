"""Gangs by owner: the instance, such as one Job, that a pod belongs to, and the name of its PodGroup.

The instance follows from the pod alone: its controller reference, or labels that the controller of the workload sets.
So does the name of the PodGroup, which contains a hash of the owner's UID and of the labels: pods need no label of
Bayplan, and the PodGroups of a deleted and recreated owner differ unless its pods carry no UID.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource

OPT_OUT_LABEL = "bayplan.dev/gang"
"""Label of a pod that is scheduled alone, whatever its owner is, if the value is ``false``."""

Sizing = Literal[
    "Job", "JobSet", "ReplicatedJob", "LeaderWorkerSet", "KueuePodGroup", "Kubeflow", "RayCluster", "Custom"
]
"""Rule for the number of members of an instance; the operator applies it."""

MAX_NAME_LENGTH = 63
_HASH_DIGITS = 10


@dataclass(frozen=True, slots=True)
class CustomSize:
    """Source of the size of a custom row; one of the fields is set.

    Attributes:
        owner_fields: Paths of fields of the owner, such as ``spec.replicas``, whose values are added up.
    """

    owner_fields: tuple[str, ...] = ()
    pod_label: str = ""
    pod_annotation: str = ""


@dataclass(frozen=True, slots=True)
class NewGroup:
    """Fields of a PodGroup that is created for an instance; afterwards they belong to users.

    Attributes:
        topology_key: Node label whose values are the domains; "" for no topology.
        topology_mode: ``Required`` or ``Preferred``.
        queueing: ``Strict`` or ``BestEffort``; "" for the default.
    """

    topology_key: str = ""
    topology_mode: str = "Required"
    queueing: str = ""


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """Rule by which pods of one kind of owner are gangs.

    Attributes:
        kind: Kind of the owner, or of what takes its place, such as ``KueuePodGroup``.
        api_version: API version of the owner; "" if no object is read.
        plural: Resource of the owner in URLs; "" if no object is read.
        instance_labels: Labels whose values identify the instance; a pod without one of them does not belong to the
            kind. Empty if pods belong to their controller.
        name_label: Label with the owner's name; "" for the name of the controller.
        shown_labels: Labels whose values, after the owner's name, begin the name of the PodGroup.
    """

    kind: str
    api_version: str
    sizing: Sizing
    plural: str = ""
    instance_labels: tuple[str, ...] = ()
    name_label: str = ""
    uid_label: str = ""
    shown_labels: tuple[str, ...] = ()
    required_labels: tuple[tuple[str, str], ...] = ()
    size: CustomSize = CustomSize()
    new_group: NewGroup = NewGroup()

    @property
    def api_group(self) -> str:
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class OwnerInstance:
    """The instance that a pod belongs to, with the key of its PodGroup; *owner_uid* "" if the pod has none."""

    key: GroupKey
    rule: OwnerRule
    owner_name: str
    owner_uid: str

    def __str__(self) -> str:
        return f"{self.rule.kind} {self.key.namespace}/{self.owner_name}"


def in_order(rules: Sequence[OwnerRule]) -> tuple[OwnerRule, ...]:
    """Return rules in the order of their application: by labels first, as the pods of a JobSet are also its Jobs'."""
    return tuple(sorted(rules, key=lambda rule: not rule.instance_labels))


def owner_instance(pod: Pod, rules: Sequence[OwnerRule]) -> OwnerInstance | None:
    """Return the instance that a pod belongs to by the first rule, in the order of :func:`in_order`, or None."""
    labels = pod.metadata.labels
    if labels.get(OPT_OUT_LABEL) == "false":
        return None
    controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    for rule in rules:
        found = _by_labels(pod, rule) if rule.instance_labels else _by_controller(pod, rule, controller)
        if found is not None:
            return found
    return None


def _by_labels(pod: Pod, rule: OwnerRule) -> OwnerInstance | None:
    labels = pod.metadata.labels
    values = [labels.get(label, "") for label in rule.instance_labels]
    if not all(values) or any(labels.get(label) != value for label, value in rule.required_labels):
        return None
    name, uid = labels.get(rule.name_label, "") if rule.name_label else values[0], labels.get(rule.uid_label, "")
    if not name:
        return None
    shown = [name, *(labels[label] for label in rule.shown_labels if labels.get(label))]
    return OwnerInstance(_key(pod, rule, shown, [name, uid, *values]), rule, name, uid)


def _by_controller(pod: Pod, rule: OwnerRule, controller: OwnerReference | None) -> OwnerInstance | None:
    if controller is None or controller.kind != rule.kind:
        return None
    if controller.api_version.rpartition("/")[0] != rule.api_group:
        return None
    key = _key(pod, rule, [controller.name], [controller.name, controller.uid])
    return OwnerInstance(key, rule, controller.name, controller.uid)


def _key(pod: Pod, rule: OwnerRule, shown: Sequence[str], identity: Sequence[str]) -> GroupKey:
    text = "\0".join((rule.api_group, rule.kind, *identity))
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    readable = "-".join(shown).lower().replace("_", "-").replace(".", "-")
    readable = readable[: MAX_NAME_LENGTH - _HASH_DIGITS - 1].strip("-")
    return GroupKey(GroupSource.BAYPLAN, pod.metadata.namespace, f"{readable}-{digest}" if readable else digest)
