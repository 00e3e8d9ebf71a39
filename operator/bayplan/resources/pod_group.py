"""PodGroup: pods that are scheduled together or not at all.

No field is immutable: a group is evaluated again in every cycle, so that a smaller minMember or another topology
applies from the next one; running members are not moved.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from bayplan.resources.conditions import Condition, conditions_field, generation_field
from bayplan.resources.crd_rules import (
    Quantity,
    amount_problems,
    amounts,
    class_problems,
    is_label_key,
    priority_class_name,
)
from bayplan.resources.resource_model import (
    CustomResource,
    ObjectRule,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    Timestamp,
    condition_column,
    count,
    entries,
    kept,
    number,
    text,
)
from scheduler_core.config.config_model import INT32_MAX, ConfigModel, RuleProblem
from scheduler_core.config.validation import qualified_name_problems

POD_GROUP_LABEL = "bayplan.dev/pod-group"
"""Label of a pod with the name of its group, in the pod's namespace."""
MAX_LABEL_VALUE_LENGTH = 63

_MAX_LEVELS = 8
_MAX_KEY_LENGTH = 317
_MAX_VICTIMS = 256
DEFAULT_HOLD_SECONDS = 60
_MAX_HOLD_SECONDS = 86_400
MAX_LOST_MEMBERS = 256
MAX_NEW_NODES = 8
MAX_RUN_CONTROLLERS = 100
_MAX_CONTROLLER_LENGTH = 512
_SHOWN = 64
_NAME_MESSAGE = (
    f"the name must be at most {MAX_LABEL_VALUE_LENGTH} characters, because pods refer to it in a label; shorten it"
)

_KEY_MESSAGE = "must be the key of a node label, such as topology.kubernetes.io/zone"
_LEVEL_MESSAGE = "each label may occur only once, in key or in levels; remove the repeated one"

LabelKey = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": _MAX_KEY_LENGTH,
            "x-kubernetes-validations": [is_label_key(_KEY_MESSAGE)],
        }
    ),
]
Phase = Literal["Pending", "Scheduling", "Scheduled", "Running", "Finished", "Failed"]


class Topology(ConfigModel):
    """A topology domain that all members share."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.levels) || !(self.key in self.levels)",
                    "message": _LEVEL_MESSAGE,
                    "fieldPath": ".levels",
                }
            ]
        }
    )

    key: str = Field(
        min_length=1,
        description="Node label whose values are the domains, such as topology.kubernetes.io/zone.",
        json_schema_extra={
            "maxLength": _MAX_KEY_LENGTH,
            "x-kubernetes-validations": [is_label_key(_KEY_MESSAGE)],
        },
    )
    levels: tuple[LabelKey, ...] = Field(
        default=(),
        strict=False,
        description="Labels of domains within those of key, from broad to narrow, such as block and rack in a zone. "
        "The group is placed in the narrowest domain that it fits; these levels are never required.",
        json_schema_extra={
            "maxItems": _MAX_LEVELS,
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-validations": [
                {"rule": "self.all(a, self.exists_one(b, a == b))", "message": _LEVEL_MESSAGE},
            ],
        },
    )
    mode: Literal["Required", "Preferred"] = kept(
        "Required",
        "Required (default): all members are placed in one domain, or none is. Preferred: one domain if "
        "the group fits, several otherwise.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the labels are label keys, unique, and not too many."""
        if qualified_name_problems(self.key):
            yield RuleProblem(("key",), f'{_KEY_MESSAGE}, not "{self.key[:_SHOWN]}"')
        if len(self.levels) > _MAX_LEVELS:
            yield RuleProblem(("levels",), f"must have at most {_MAX_LEVELS} labels; remove those that matter least")
            return
        for index, level in enumerate(self.levels):
            if qualified_name_problems(level):
                yield RuleProblem(("levels", index), f'{_KEY_MESSAGE}, not "{level[:_SHOWN]}"')
            elif level in (self.key, *self.levels[:index]):
                yield RuleProblem(("levels", index), f'{_LEVEL_MESSAGE}, "{level[:_SHOWN]}"')


class Healing(ConfigModel):
    """What happens to the room of a member that is deleted, fails or loses its node while the group runs."""

    hold_seconds: int = kept(
        DEFAULT_HOLD_SECONDS,
        "Seconds for which the room of a lost member is held for its replacement, from the moment when the "
        "member no longer uses it. Pods of higher priority may use it. 0: no room is held.",
        ge=0,
        le=_MAX_HOLD_SECONDS,
    )


class PodGroupSpec(ConfigModel):
    """Size, resources and queueing of the group."""

    min_member: int = Field(
        ge=1,
        le=INT32_MAX,
        description="Number of members that must be placed together. Until that many exist, none is placed; further "
        "members are placed one by one.",
    )
    min_resources: dict[str, Quantity] | None = amounts(
        "Total requests of minMember members, such as `{cpu: 64, memory: 256Gi}`. If set, the group is not "
        "attempted while less than this is free in the cluster."
    )
    schedule_timeout_seconds: int | None = number(
        "Seconds without success after which the group is reported Unschedulable, loses its reservation "
        "and waits behind its peers.",
        ge=1,
    )
    priority_class_name: str | None = priority_class_name(
        "PriorityClass of the group in the queue. Default: the highest priority of its members."
    )
    topology: Topology | None = Field(
        default=None,
        description="Topology domain, such as a zone or a rack, that all members share. Default: any nodes.",
    )
    disruption: Literal["Pod", "Group"] = kept(
        "Pod", "What a preemption may evict of the group. Pod (default): single members. Group: all members or none."
    )
    queueing: Literal["Strict", "BestEffort"] = kept(
        "BestEffort",
        "What happens when smaller pods overtake the group. Strict: after some time, capacity is reserved "
        "for it as it becomes free. BestEffort (default): they overtake it.",
    )

    healing: Healing | None = Field(
        default=None,
        description=f"How the group replaces lost members. Default: room is held for {DEFAULT_HOLD_SECONDS} seconds.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that quantities can be parsed and are not negative, and that the class name is valid."""
        yield from amount_problems("minResources", self.min_resources)
        yield from class_problems(self.priority_class_name)


class PodReference(StatusModel):
    """A pod, by its name."""

    namespace: str = text("The pod's namespace.", 63)
    name: str = text("The pod's name.")


class GroupRunStatus(StatusModel):
    """What the present run of a group has completed."""

    controllers: tuple[Annotated[str, Field(max_length=_MAX_CONTROLLER_LENGTH)], ...] = entries(
        "Controllers whose pods belong to the run, as kind, API group and UID, the first 100; none stands "
        "for pods without a controller.",
        MAX_RUN_CONTROLLERS,
    )
    succeeded: int = count(
        "Members of the run that succeeded, whether or not their pods exist; they count for minMember.", default=0
    )
    since: Timestamp | None = Field(
        default=None, description="Creation time of the newest ended pod of earlier runs, which do not count."
    )


class LostMemberStatus(StatusModel):
    """A lost member whose replacement is not bound yet."""

    name: str = text("Name of the lost pod.")
    node: str = text("Node of the lost pod.")
    held: bool = Field(
        description="Whether room is held on the node. It is not if the node is gone or the room is used otherwise."
    )
    until: Timestamp | None = Field(
        default=None, description="Time at which the hold ends. Not set while the lost pod still uses its room."
    )
    replacement: str | None = text("Name of the waiting pod that replaces it.", default=None)
    index: str | None = text(
        "Owner and index of the lost pod, which its replacement has, too. A restarted operator reads it.",
        1024,
        default=None,
    )


class HelpfulNodes(StatusModel):
    """Copies of a node that would help."""

    node: str = text("Present node of which they are copies.")
    count: int = count("The least number of them.")


class PodGroupStatus(StatusModel):
    """Progress of the group; written by the operator."""

    observed_generation: int = generation_field("this status")
    phase: Phase | None = Field(
        default=None,
        description="Pending: members are missing or gated. Scheduling: the group is being attempted or queued. "
        "Scheduled: minMember members are placed. Running: that many run. Finished: that many succeeded. Failed: too "
        "many failed.",
    )
    members: int = count("Pods of the group that are not being deleted.", default=0)
    gated: int = count("Members with a scheduling gate.", default=0)
    scheduled: int = count("Members bound to a node.", default=0)
    running: int = count("Running members.", default=0)
    succeeded: int = count("Succeeded members of the present run, including those whose pods are gone.", default=0)
    failed: int = count("Failed members of the present run.", default=0)
    run: GroupRunStatus | None = Field(
        default=None,
        description="The present run, which begins with a member that is no replacement for one of the run before. A "
        "restarted operator reads it.",
    )
    lost: tuple[LostMemberStatus, ...] = entries(
        "Lost members whose replacements are not bound yet, the first 256.", MAX_LOST_MEMBERS
    )
    conditions: tuple[Condition, ...] = conditions_field(
        "Healing: whether room is held for replacements of lost members. "
        "Scheduled: whether minMember members are placed; if not, how many fit, what the others lack, the "
        "nearest nodes and what would unblock the group."
    )
    schedule_start_time: Timestamp | None = Field(default=None, description="Time of the first attempt.")
    last_attempt_time: Timestamp | None = Field(default=None, description="Time of the last attempt.")
    nominated_domain: str | None = text(
        "Topology domain, or nodes, in which capacity is reserved for the group.", 1024, default=None
    )
    new_nodes: tuple[HelpfulNodes, ...] = entries(
        "New nodes with which the group would be scheduled without evictions: alternatives, those with the least "
        "number first. Searched about every minute while the group waits for room.",
        MAX_NEW_NODES,
    )
    victims: tuple[PodReference, ...] = entries(
        "Pods of the group's namespace that are evicted for it, the first 256.", _MAX_VICTIMS
    )
    victims_of_other_namespaces: int | None = Field(
        default=None, ge=0, description="Number of pods of other namespaces that are evicted for the group."
    )


class PodGroup(CustomResource):
    """Pods that are scheduled together or not at all."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="PodGroup",
        plural="podgroups",
        short_name="bpg",
        namespaced=True,
        description="PodGroup is a gang: pods that are scheduled together or not at all. A pod belongs to the group in "
        f"its namespace that its label {POD_GROUP_LABEL} names.",
        columns=(
            PrinterColumn("Phase", "string", ".status.phase", "Progress of the group."),
            PrinterColumn("Min", "integer", ".spec.minMember", "Members that must be placed together."),
            PrinterColumn("Pods", "integer", ".status.members", "Existing members."),
            PrinterColumn("Bound", "integer", ".status.scheduled", "Bound members."),
            condition_column("Reason", "Scheduled", "Reason of Scheduled.", "reason"),
            PrinterColumn("Running", "integer", ".status.running", "Running members.", wide=True),
            PrinterColumn("Gated", "integer", ".status.gated", "Gated members.", wide=True),
            PrinterColumn("Succeeded", "integer", ".status.succeeded", "Succeeded members.", wide=True),
            PrinterColumn("Failed", "integer", ".status.failed", "Failed members.", wide=True),
            PrinterColumn(
                "Owner", "string", ".metadata.ownerReferences[0].name", "Owner that it was created for.", wide=True
            ),
            PrinterColumn("Domain", "string", ".status.nominatedDomain", "Where capacity is reserved.", wide=True),
            condition_column("Healing", "Healing", "Reason of Healing.", "reason", wide=True),
            condition_column("Message", "Scheduled", "Message of condition Scheduled.", "message", wide=True),
        ),
        rules=(ObjectRule(f"size(self.metadata.name) <= {MAX_LABEL_VALUE_LENGTH}", _NAME_MESSAGE, ".metadata"),),
        selectable=(".status.phase", ".spec.priorityClassName"),
    )

    spec: PodGroupSpec
    status: PodGroupStatus = PodGroupStatus()

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the name fits into the label of its pods."""
        if len(self.metadata.name) > MAX_LABEL_VALUE_LENGTH:
            yield RuleProblem(("metadata", "name"), _NAME_MESSAGE)
