"""``spec.gangs`` of a profile: owners whose pods are gangs without a PodGroup of the user.

The instance, such as one Job, that a pod belongs to follows from the pod alone: its controller reference, or labels
that the controller of the workload sets. So does the name of its PodGroup, which contains a hash of the owner's UID and
of the labels: pods need no label of Bayplan, and the PodGroups of a deleted and recreated owner differ unless its pods
carry no UID.

The table of the known kinds follows the labels and fields of Job (Kubernetes v1.37.1), JobSet v0.11.1,
LeaderWorkerSet v0.8.0, Kueue v0.17.0, Kubeflow's training operator v1.9, mpi-operator v0.6, and KubeRay v1.4.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from scheduler_core.config.config_model import ConfigModel, RuleProblem, list_field
from scheduler_core.config.validation import did_you_mean, qualified_name_problems
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


_FIELD_PATH = re.compile(r"spec(\.[A-Za-z][A-Za-z0-9]*)+")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_API_VERSION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+")
MAX_OWNERS = 32
MAX_LABELS = 8


class OwnerSize(ConfigModel):
    """Source of the number of members of a gang. Exactly one of the fields is set."""

    owner_fields: tuple[str, ...] = list_field(
        "Paths of integer fields of the owner, such as spec.replicas, whose values are added up. A field "
        "that is absent counts as 1."
    )
    pod_label: str = Field(default="", description="Label of the pods with the size.")
    pod_annotation: str = Field(default="", description="Annotation of the pods with the size.")

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that one source is set, and that paths and keys are valid."""
        if sum(map(bool, (self.owner_fields, self.pod_label, self.pod_annotation))) != 1:
            yield RuleProblem((), "must set one of ownerFields, podLabel and podAnnotation")
        for index, path in enumerate(self.owner_fields):
            if not _FIELD_PATH.fullmatch(path):
                message = f'must be the path of a field of the spec, such as spec.replicas, not "{path[:64]}"'
                yield RuleProblem(("ownerFields", index), message)
        for name, key in (("podLabel", self.pod_label), ("podAnnotation", self.pod_annotation)):
            if key and qualified_name_problems(key):
                yield RuleProblem((name,), f'must be a label key, such as example.com/size, not "{key[:64]}"')


class OwnerTopology(ConfigModel):
    """Topology domain that all members of a gang share."""

    key: str = Field(
        min_length=1, description="Node label whose values are the domains, such as topology.kubernetes.io/zone."
    )
    mode: Literal["Required", "Preferred"] = Field(
        default="Required",
        description="Required (default): all members are placed in one domain, or none is. Preferred: one domain if "
        "the gang fits, several otherwise.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the key is a label key."""
        if qualified_name_problems(self.key):
            message = f'must be a label key, such as topology.kubernetes.io/zone, not "{self.key[:64]}"'
            yield RuleProblem(("key",), message)


_NO_SIZE = OwnerSize.model_construct()


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
        size: Source of the size of a custom row.
        topology, queueing: Fields of a PodGroup that is created for an instance; afterwards they belong to users.
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
    size: OwnerSize = _NO_SIZE
    topology: OwnerTopology | None = None
    queueing: str = ""

    @property
    def api_group(self) -> str:
        return self.api_version.rpartition("/")[0]


_JOBSET_LABELS = ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name")
_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"

_JOB_SET = OwnerRule(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    "jobsets",
    instance_labels=_JOBSET_LABELS[:1],
    name_label=_JOBSET_LABELS[0],
    uid_label=_JOBSET_UID,
)
_REPLICATED_JOB = replace(
    _JOB_SET, sizing="ReplicatedJob", instance_labels=_JOBSET_LABELS, shown_labels=_JOBSET_LABELS[1:]
)


def _kubeflow(kind: str) -> OwnerRule:
    return OwnerRule(kind, "kubeflow.org/v1", "Kubeflow", f"{kind.lower()}s")


KNOWN_OWNERS: Mapping[str, OwnerRule] = {
    "Job": OwnerRule("Job", "batch/v1", "Job", "jobs"),
    "JobSet": _JOB_SET,
    "LeaderWorkerSet": OwnerRule(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "leaderworkersets",
        instance_labels=("leaderworkerset.sigs.k8s.io/group-key",),
        name_label="leaderworkerset.sigs.k8s.io/name",
        shown_labels=("leaderworkerset.sigs.k8s.io/group-index",),
    ),
    "KueuePodGroup": OwnerRule(
        "KueuePodGroup", "", "KueuePodGroup", instance_labels=("kueue.x-k8s.io/pod-group-name",)
    ),
    "PyTorchJob": _kubeflow("PyTorchJob"),
    "TFJob": _kubeflow("TFJob"),
    "XGBoostJob": _kubeflow("XGBoostJob"),
    "PaddleJob": _kubeflow("PaddleJob"),
    "JAXJob": _kubeflow("JAXJob"),
    # The launcher is a pod of a Job, so that only the labels are common to all pods.
    "MPIJob": OwnerRule(
        "MPIJob",
        "kubeflow.org/v2beta1",
        "Kubeflow",
        "mpijobs",
        instance_labels=("training.kubeflow.org/job-name",),
        required_labels=(("training.kubeflow.org/operator-name", "mpi-operator"),),
    ),
    "RayCluster": OwnerRule("RayCluster", "ray.io/v1", "RayCluster", "rayclusters"),
}
"""Rule of each kind that needs no further fields."""

_OTHER_KINDS: Mapping[str, str] = {
    "CronJob": "each run of a CronJob is a Job; use kind Job",
    "RayJob": "a RayJob creates a RayCluster; use kind RayCluster",
    "RayService": "a RayService creates RayClusters; use kind RayCluster",
    "TrainJob": "a TrainJob creates a JobSet; use kind JobSet, with per: ReplicatedJob if it has initializers",
    "Pod": "use kind KueuePodGroup for pod groups of Kueue, or a custom row with apiVersion and instanceLabels",
}


class GangOwner(ConfigModel):
    """Kind of owner whose pods are gangs."""

    kind: str = Field(
        min_length=1,
        description="Kind of the owner. Known: "
        + ", ".join(KNOWN_OWNERS)
        + ". Another kind needs apiVersion and size.",
    )
    api_version: str = Field(
        default="", description="API version of the owner, such as example.com/v1; only for kinds that are not known."
    )
    plural: str = Field(
        default="",
        description="Resource name of the owner in URLs; only for kinds that are not known. Default: the kind in lower "
        'case with an "s".',
    )
    per: Literal["Set", "ReplicatedJob"] | None = Field(
        default=None,
        description="Only for JobSet. Set (default): all pods of the JobSet are one gang. ReplicatedJob: the pods of "
        "each replicated job are one.",
    )
    instance_labels: tuple[str, ...] = list_field(
        "Labels of the pods whose values identify the gang; only for kinds that are not known. Default: "
        "all pods that the owner controls are one gang."
    )
    name_label: str = Field(
        default="",
        description="Label of the pods with the name of the owner; only with instanceLabels. Default: the first of "
        "them.",
    )
    size: OwnerSize | None = Field(
        default=None, description="Number of members of a gang; only for kinds that are not known."
    )
    topology: OwnerTopology | None = Field(
        default=None,
        description="Topology of the PodGroups that are created from now on. Default: any nodes.",
    )
    queueing: Literal["Strict", "BestEffort"] | None = Field(
        default=None,
        description="Field queueing of the PodGroups that are created from now on: Strict reserves capacity for a gang "
        "that smaller pods overtake. Default: BestEffort.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that a known kind has no fields of custom rows, and that a custom row is complete."""
        if self.kind in _OTHER_KINDS and not self.api_version:
            yield RuleProblem(("kind",), _OTHER_KINDS[self.kind])
            return
        known = KNOWN_OWNERS.get(self.kind)
        if self.per is not None and (self.kind != "JobSet" or self.is_custom):
            yield RuleProblem(("per",), "is only for kind JobSet; remove it")
        if known is not None and not self.is_custom:
            yield from self._surplus()
        elif not self.api_version:
            hint = did_you_mean(self.kind, KNOWN_OWNERS)
            message = f'"{self.kind[:64]}" is not a known kind{hint}; set apiVersion and size for another kind'
            yield RuleProblem(("kind",), message)
        else:
            yield from self._custom_problems()

    @property
    def is_custom(self) -> bool:
        """Whether the row describes a kind itself, perhaps of a known name in another API group or version."""
        return bool(self.api_version)

    def _surplus(self) -> Iterator[RuleProblem]:
        for name, value in (
            ("plural", self.plural),
            ("instanceLabels", self.instance_labels),
            ("nameLabel", self.name_label),
            ("size", self.size),
        ):
            if value:
                yield RuleProblem((name,), f"kind {self.kind} is known without it; remove it, or set apiVersion too")

    def _custom_problems(self) -> Iterator[RuleProblem]:
        known = KNOWN_OWNERS.get(self.kind)
        if known is not None and known.api_group == self.api_version.rpartition("/")[0]:
            yield RuleProblem(("apiVersion",), f"kind {self.kind} of {known.api_group} is known; remove it, and size")
        if not _KIND.fullmatch(self.kind):
            yield RuleProblem(("kind",), f'must be a kind, such as Solver, not "{self.kind[:64]}"')
        if not _API_VERSION.fullmatch(self.api_version):
            message = f'must be a group and a version, such as example.com/v1, not "{self.api_version[:64]}"'
            yield RuleProblem(("apiVersion",), message)
        if self.size is None:
            yield RuleProblem(("size",), "must be set for a kind that is not known")
        if self.name_label and not self.instance_labels:
            yield RuleProblem(("nameLabel",), "needs instanceLabels; set them, or remove it")
        keys = [(("instanceLabels", index), label) for index, label in enumerate(self.instance_labels)]
        for place, key in (*keys, (("nameLabel",), self.name_label)):
            if key and qualified_name_problems(key):
                yield RuleProblem(place, f'must be a label key, such as example.com/run, not "{key[:64]}"')
            elif not key and place != ("nameLabel",):
                yield RuleProblem(place, "must not be empty")

    @property
    def rule(self) -> OwnerRule:
        """The rule that the row means."""
        return replace(self._owner_rule(), topology=self.topology, queueing=self.queueing or "")

    def _owner_rule(self) -> OwnerRule:
        if not self.is_custom:
            if self.per == "ReplicatedJob":
                return _REPLICATED_JOB
            return KNOWN_OWNERS[self.kind]
        return OwnerRule(
            self.kind,
            self.api_version,
            "Custom",
            self.plural or f"{self.kind.lower()}s",
            instance_labels=self.instance_labels,
            name_label=self.name_label or next(iter(self.instance_labels), ""),
            size=self.size or _NO_SIZE,
        )


class GangSettings(ConfigModel):
    """Gangs of a profile."""

    from_owners: tuple[GangOwner, ...] = list_field(
        "Owners whose pods are gangs: the operator creates a PodGroup for each instance, and pods belong "
        "to it without a label. Rows by labels are applied before rows by controller, otherwise the first that "
        'applies. A pod that names a PodGroup, or has the label bayplan.dev/gang: "false", is not included.'
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that no kind occurs twice."""
        seen: dict[tuple[str, str, tuple[str, ...]], int] = {}
        for index, owner in enumerate(self.from_owners):
            first = seen.setdefault((owner.kind, owner.api_version.rpartition("/")[0], owner.instance_labels), index)
            if first != index:
                message = f"{owner.kind} is in row {first} already; remove one of the rows"
                yield RuleProblem(("fromOwners", index, "kind"), message)

    @property
    def rules(self) -> tuple[OwnerRule, ...]:
        """The rules of the rows, in the order in which they are applied."""
        # By labels first, as the pods of a JobSet are also its Jobs'.
        return tuple(sorted((owner.rule for owner in self.from_owners), key=lambda rule: not rule.instance_labels))


@dataclass(frozen=True, slots=True)
class OwnerInstance:
    """The instance that a pod belongs to, with the key of its PodGroup; *owner_uid* "" if the pod has none."""

    key: GroupKey
    rule: OwnerRule
    owner_name: str
    owner_uid: str

    def __str__(self) -> str:
        return f"{self.rule.kind} {self.key.namespace}/{self.owner_name}"


def owner_instance(pod: Pod, rules: Sequence[OwnerRule]) -> OwnerInstance | None:
    """Return the instance that a pod belongs to by the first of some ordered rules; None for none."""
    labels = pod.metadata.labels
    if labels.get(OPT_OUT_LABEL) == "false":
        return None
    controller = pod.metadata.controller
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
