"""NodeReservation: room on nodes for pods that do not exist yet.

The room is held in the scheduler; no pod is created for it. kube-scheduler does not read reservations, and its pods may
take the room.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bayplan.resources.conditions import Condition, conditions_field, generation_field
from bayplan.resources.crd_rules import Quantity, amount_problems, amounts, class_problems, priority_class_name
from bayplan.resources.pod_group import Topology
from bayplan.resources.resource_model import (
    CustomResource,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    Timestamp,
    cel_rules,
    condition_column,
    count,
    entries,
    kept,
    number,
    text,
)
from scheduler_core.config.config_model import INT32_MAX, ConfigModel, RuleProblem

MAX_COUNT = 1000
MAX_NODES = 1000
MAX_PODS = 1000
_MAX_LABELS = 16
_ONE_FORM = "exactly one of resources and template is required"
_ONE_OWNER = "at least one of labels, ownerReference and podGroup is required: it selects the pods that use the room"
_ONE_PRIORITY = "priority and priorityClassName are mutually exclusive; remove one"

PodUID = Annotated[str, Field(max_length=63)]
Phase = Literal["Pending", "Reserved", "Consumed", "Expired"]


class ReservationOwnerReference(ConfigModel):
    """The owner of the pods, by an owner reference that they have."""

    kind: str = text("Kind of the owner, such as Job or ReplicaSet.", 63, min_length=1)
    name: str = text("Name of the owner.", min_length=1)
    uid: str | None = text("UID of the owner. Default: any owner of this kind and name.", 63, default=None)


class ReservationOwner(ConfigModel):
    """The pods that use the room: those of the reservation's namespace that meet every condition."""

    model_config = cel_rules(("has(self.labels) || has(self.ownerReference) || has(self.podGroup)", _ONE_OWNER))

    labels: dict[str, Annotated[str, Field(max_length=63)]] | None = Field(
        default=None,
        min_length=1,
        max_length=_MAX_LABELS,
        description="Labels that the pods have.",
    )
    owner_reference: ReservationOwnerReference | None = Field(
        default=None, description="Owner that the pods have, such as a Job that is created later."
    )
    pod_group: str | None = text("Name of the PodGroup (bayplan.dev) of the pods.", default=None, min_length=1)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that there is a condition."""
        if self.labels is None and self.owner_reference is None and self.pod_group is None:
            yield RuleProblem((), _ONE_OWNER)


class NodeReservationSpec(ConfigModel):
    """The room, and the pods that use it."""

    model_config = cel_rules(
        ("has(self.resources) != has(self.template)", _ONE_FORM),
        ("!(has(self.priority) && has(self.priorityClassName))", _ONE_PRIORITY),
    )

    count: int = kept(
        1, "Number of pods that room is reserved for: all of them, or none. Default: 1.", ge=1, le=MAX_COUNT
    )
    resources: dict[str, Quantity] | None = amounts(
        "Requests of one pod, such as `{cpu: 4, nvidia.com/gpu: 1}`.", min_length=1
    )
    template: dict[str, Any] | None = Field(
        default=None,
        description="Template of one pod, as in a Job: its labels, requests, node selector, affinity, tolerations and "
        "spread constraints count; nodeName is not allowed. Instead of resources.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "type": "object", "maxProperties": 8},
    )
    topology: Topology | None = Field(
        default=None,
        description="Topology domain, such as a zone or a rack, that all pods share. Default: any nodes.",
    )
    owner: ReservationOwner = Field(description="The pods that use the room.")
    ttl_seconds: int | None = number(
        "Seconds after its creation at which the reservation expires. Default: it ends when its pods are "
        "bound, or when it is deleted.",
        ge=1,
    )
    priority: int | None = number(
        "Priority of the room: pods and reservations of higher priority may use it. Default: that of the "
        "template, or 0.",
        ge=-INT32_MAX,
    )
    priority_class_name: str | None = priority_class_name("PriorityClass of the room, instead of priority.")
    scheduler_name: str | None = text(
        "Scheduler name of the profile whose plugins decide where the pods fit. Default: that of the template, or "
        "default-scheduler.",
        default=None,
        min_length=1,
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the fields that exclude each other, and the amounts."""
        if (self.resources is None) == (self.template is None):
            yield RuleProblem((), _ONE_FORM)
        if self.priority is not None and self.priority_class_name is not None:
            yield RuleProblem(("priorityClassName",), _ONE_PRIORITY)
        yield from amount_problems("resources", self.resources)
        yield from class_problems(self.priority_class_name)
        if self.template is not None:
            yield from _template_problems(self.template)


def _template_problems(template: Mapping[str, Any]) -> Iterator[RuleProblem]:
    """Check what is read of a template before it is validated as a pod; the API server accepts any content."""
    metadata, spec = template.get("metadata"), template.get("spec")
    if not isinstance(spec, dict):
        yield RuleProblem(("template", "spec"), "is required: the spec of a pod")
    elif spec.get("nodeName"):
        yield RuleProblem(
            ("template", "spec", "nodeName"), "room is searched on all nodes; remove it, or use nodeSelector"
        )
    maps: dict[tuple[str, ...], Any] = {("metadata",): metadata}
    if isinstance(metadata, dict):
        maps |= {("metadata", name): metadata.get(name) for name in ("labels", "annotations")}
    for path, value in maps.items():
        if value is not None and not isinstance(value, dict):
            yield RuleProblem(("template", *path), "must be a mapping of fields; correct it")


class ReservedNode(StatusModel):
    """Room on one node."""

    name: str = text("Name of the node.")
    pods: int = count("Number of pods that room is held for there.")


class NodeReservationStatus(StatusModel):
    """The held room; written by the operator."""

    observed_generation: int = generation_field("this status")
    phase: Phase | None = Field(
        default=None,
        description="Pending: the room does not exist yet. Reserved: it is held. Consumed: all pods are bound. "
        "Expired: its time is over.",
    )
    reserved: int = count("Number of pods that room is held for.", default=0)
    consumed: int = count("Number of pods that were bound and used the room.", default=0)
    nodes: tuple[ReservedNode, ...] = entries("The nodes on which room is held.", MAX_NODES, key="name")
    where: str | None = text("The first node and the number of the others, for kubectl get.", 1024, default=None)
    reserved_since: Timestamp | None = Field(
        default=None, description="Time from which the room is held. A restarted operator reads it."
    )
    expiration_time: Timestamp | None = Field(default=None, description="Time at which the reservation expires.")
    counted_pods: tuple[PodUID, ...] = entries(
        "UIDs of pods that were created since reservedSince, were bound and used the room. A restarted operator reads "
        "them.",
        MAX_PODS,
    )
    other_pods: tuple[PodUID, ...] = entries(
        "UIDs of pods that the owner selects, created since reservedSince, and that need none of the room: they have "
        "used that of another NodeReservation, or had a node when it was held.",
        MAX_PODS,
    )
    in_the_way: tuple[PodUID, ...] = entries(
        "UIDs of pods on the nodes that must end first, or are evicted for the pods. A restarted operator reads them.",
        MAX_PODS,
    )
    conditions: tuple[Condition, ...] = conditions_field(
        "Reserved: whether the room is held; if not, why, and the nearest miss. Consumed: all pods are bound. Expired: "
        "the time is over. Impossible: the pods fit on no node of the cluster, whatever pods end."
    )


class NodeReservation(CustomResource):
    """Room on nodes for pods that do not exist yet."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="NodeReservation",
        plural="nodereservations",
        short_name="bnr",
        namespaced=True,
        description="NodeReservation holds room on nodes for pods that do not exist yet. Only the pods that spec.owner "
        "selects use the room, and pods of higher priority. The operator needs its feature gate NodeReservation.",
        columns=(
            PrinterColumn("Phase", "string", ".status.phase", "State of the room."),
            PrinterColumn("Count", "integer", ".spec.count", "Number of pods that room is reserved for."),
            PrinterColumn("Bound", "integer", ".status.consumed", "Number of bound pods that used the room."),
            PrinterColumn("Nodes", "string", ".status.where", "The first node and the number of the others."),
            condition_column("Reason", "Reserved", "Reason of Reserved.", "reason"),
            PrinterColumn("Held", "integer", ".status.reserved", "Number of pods that room is held for.", wide=True),
            PrinterColumn("Expires", "string", ".status.expirationTime", "Time at which it expires.", wide=True),
            condition_column("Message", "Reserved", "Message of condition Reserved.", "message", wide=True),
        ),
        selectable=(".status.phase",),
    )

    spec: NodeReservationSpec
    status: NodeReservationStatus = NodeReservationStatus()

    @property
    def expiration(self) -> datetime | None:
        """Time at which the reservation expires; None for never, and before the object is created."""
        created, ttl = self.metadata.creation_timestamp, self.spec.ttl_seconds
        return None if created is None or ttl is None else created + timedelta(seconds=ttl)
