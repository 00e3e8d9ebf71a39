"""PodGroup: pods that are placed together or not at all.

Owns the grammar of its spec, its status and its columns. It must not know how a gang is scheduled. Why nothing is
immutable: a group is judged anew in every cycle, so a smaller minMember or another topology simply holds from the
next one; members that run already are not moved.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from bayplan.resources.admission import DNS_NAME_PATTERN, is_label_key, matches
from bayplan.resources.conditions import CONDITIONS_SCHEMA, Condition
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
    CustomResource,
    ObjectRule,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    Timestamp,
)
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.kubernetes_names import qualified_name_problems
from scheduler_core.errors import QuantityError
from scheduler_core.model.quantity import nano

POD_GROUP_LABEL = "bayplan.dev/pod-group"
"""A pod joins the group of its own namespace whose name this label holds."""
MAX_LABEL_VALUE_LENGTH = 63

_MAX_RESOURCES = 64
_MAX_LEVELS = 8
_MAX_KEY_LENGTH = 317
_MAX_VICTIMS = 256
_SHOWN = 64
_MAX_AMOUNT_LENGTH = 64
_NAME_MESSAGE = (
    f"the name must be at most {MAX_LABEL_VALUE_LENGTH} characters, since pods join by a label and no label's "
    "value can be longer; shorten it"
)

_KEY_MESSAGE = "must be the key of a node label, such as topology.kubernetes.io/zone"
_LEVEL_MESSAGE = "each label may stand once, in key or in levels; remove the repeated one"
_AMOUNT_MESSAGE = 'must be an amount of 0 or more, such as 4, "500m" or "64Gi"'
_CLASS_MESSAGE = 'must be the name of a PriorityClass: lower case letters, digits, "-" and "."'

Quantity = Annotated[
    str | int,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": _MAX_AMOUNT_LENGTH,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : isQuantity(self) && "
                    "!quantity(self).isLessThan(quantity('0'))",
                    "message": _AMOUNT_MESSAGE,
                }
            ],
        }
    ),
]
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
    """A domain of nodes that all members are to share."""

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
        description="Label of nodes whose values are the domains, such as topology.kubernetes.io/zone.",
        json_schema_extra={
            "maxLength": _MAX_KEY_LENGTH,
            "x-kubernetes-validations": [is_label_key(_KEY_MESSAGE)],
        },
    )
    levels: tuple[LabelKey, ...] = Field(
        default=(),
        strict=False,
        description="Labels of domains inside those of key, from broad to narrow, such as a block and a rack inside a "
        "zone. The group goes into the narrowest domain that it fits into; none of them is ever required.",
        json_schema_extra={
            "maxItems": _MAX_LEVELS,
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-validations": [
                {"rule": "self.all(a, self.exists_one(b, a == b))", "message": _LEVEL_MESSAGE},
            ],
        },
    )
    mode: Literal["Required", "Preferred"] = Field(
        default="Required",
        description="Required, the default: all members in one domain or none is placed. Preferred: one domain when "
        "the group fits into one, several otherwise.",
        json_schema_extra={"x-keep-default": True},
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Labels must be label keys, each named once, and not more than a node's place has parts."""
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


class PodGroupSpec(ConfigModel):
    """How many members are needed, what they need and how the group waits."""

    min_member: int = Field(
        ge=1,
        le=INT32_MAX,
        description="How many members must be placed together. Until as many exist none is placed; further members "
        "are placed one by one.",
    )
    min_resources: dict[str, Quantity] | None = Field(
        default=None,
        description="What minMember members request in all, such as `{cpu: 64, memory: 256Gi}`. When given, the group "
        "is not tried while less than this is free in the cluster.",
        json_schema_extra={"maxProperties": _MAX_RESOURCES},
    )
    schedule_timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="After how many seconds without success the group is told Unschedulable, gives up what is "
        "reserved for it and waits behind its peers.",
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        description="PriorityClass by which the group stands in the queue; the highest priority of its members when "
        "left out.",
        json_schema_extra={
            "maxLength": MAX_NAME_LENGTH,
            "x-kubernetes-validations": [matches(DNS_NAME_PATTERN, _CLASS_MESSAGE)],
        },
    )
    topology: Topology | None = Field(
        default=None,
        description="The domain of nodes, such as a zone or a rack, that all members are to share. Any nodes when "
        "left out.",
    )
    disruption: Literal["Pod", "Group"] = Field(
        default="Pod",
        description="What a preemption may take from the group. Pod, the default: single members. Group: all "
        "members or none.",
        json_schema_extra={"x-keep-default": True},
    )
    queueing: Literal["Strict", "BestEffort"] = Field(
        default="BestEffort",
        description="What happens when smaller pods pass the group. Strict: after some time the capacity that it "
        "needs is reserved for it as it becomes free. BestEffort, the default: they pass.",
        json_schema_extra={"x-keep-default": True},
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Amounts can be read and are not negative, and the class has a name that exists."""
        for name, amount in (self.min_resources or {}).items():
            if not _is_amount(amount):
                shown = amount[:_SHOWN] if isinstance(amount, str) else min(max(amount, -INT64_MAX), INT64_MAX)
                yield RuleProblem(("minResources", name), f'{_AMOUNT_MESSAGE}, not "{shown}"')
        if self.priority_class_name and not re.fullmatch(DNS_NAME_PATTERN, self.priority_class_name):
            yield RuleProblem(("priorityClassName",), f'{_CLASS_MESSAGE}, not "{self.priority_class_name[:_SHOWN]}"')


def _is_amount(amount: str | int) -> bool:
    """Whether the API server takes it; texts are bounded first, since Python reads no number of thousands of digits."""
    if isinstance(amount, int):
        return 0 <= amount <= INT64_MAX
    try:
        return len(amount) <= _MAX_AMOUNT_LENGTH and nano(amount) >= 0
    except QuantityError:
        return False


class PodReference(StatusModel):
    """A pod, by its name."""

    namespace: str = Field(description="The pod's namespace.", json_schema_extra={"maxLength": 63})
    name: str = Field(description="The pod's name.", json_schema_extra={"maxLength": MAX_NAME_LENGTH})


def _count(description: str) -> Any:
    return Field(default=0, ge=0, le=INT32_MAX, description=description)


class PodGroupStatus(StatusModel):
    """How far the group has come; written by the operator."""

    observed_generation: int = Field(
        default=0, ge=0, le=INT64_MAX, description="The metadata.generation that this status was found for."
    )
    phase: Phase | None = Field(
        default=None,
        description="Pending: members are missing or gated. Scheduling: the group is tried or waits to be. Scheduled: "
        "minMember members are placed. Running: as many run. Finished: as many succeeded. Failed: too many failed.",
    )
    members: int = _count("Pods that belong to the group and are not being deleted.")
    gated: int = _count("Members that a scheduling gate holds back.")
    scheduled: int = _count("Members that are bound to a node.")
    running: int = _count("Members that run.")
    succeeded: int = _count("Members that ended well.")
    failed: int = _count("Members that failed.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="Scheduled: whether minMember members are placed; when not, how many of how many fit, what the "
        "others lack, which nodes are nearest and what would unblock the group.",
        json_schema_extra=dict(CONDITIONS_SCHEMA),
    )
    schedule_start_time: Timestamp | None = Field(default=None, description="When the group was first tried.")
    last_attempt_time: Timestamp | None = Field(default=None, description="When the group was last tried.")
    nominated_domain: str | None = Field(
        default=None,
        description="The topology domain, or the nodes, that capacity is reserved in for the group.",
        json_schema_extra={"maxLength": 1024},
    )
    victims: tuple[PodReference, ...] = Field(
        default=(),
        description="Pods that are about to be evicted for the group, the first 256.",
        json_schema_extra={"maxItems": _MAX_VICTIMS, "x-kubernetes-list-type": "atomic"},
    )


class PodGroup(CustomResource):
    """Pods that are placed together or not at all."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="PodGroup",
        plural="podgroups",
        short_name="bpg",
        namespaced=True,
        description="PodGroup is a gang: pods that are placed together or not at all. A pod joins the group of its own "
        f"namespace whose name is the value of its label {POD_GROUP_LABEL}.",
        columns=(
            PrinterColumn("Phase", "string", ".status.phase", "How far the group has come."),
            PrinterColumn("Min", "integer", ".spec.minMember", "Members that must be placed together."),
            PrinterColumn("Pods", "integer", ".status.members", "Members that exist."),
            PrinterColumn("Bound", "integer", ".status.scheduled", "Members that are bound."),
            PrinterColumn(
                "Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason', "Why it is (not) scheduled."
            ),
            PrinterColumn("Running", "integer", ".status.running", "Members that run.", wide=True),
            PrinterColumn("Gated", "integer", ".status.gated", "Members that are held back.", wide=True),
            PrinterColumn("Succeeded", "integer", ".status.succeeded", "Members that ended well.", wide=True),
            PrinterColumn("Failed", "integer", ".status.failed", "Members that failed.", wide=True),
            PrinterColumn("Domain", "string", ".status.nominatedDomain", "Where capacity is reserved.", wide=True),
            PrinterColumn(
                "Message",
                "string",
                '.status.conditions[?(@.type=="Scheduled")].message',
                "Why it is (not) scheduled, in words.",
                wide=True,
            ),
        ),
        rules=(ObjectRule(f"size(self.metadata.name) <= {MAX_LABEL_VALUE_LENGTH}", _NAME_MESSAGE, ".metadata"),),
    )

    spec: PodGroupSpec
    status: PodGroupStatus = PodGroupStatus()

    def rule_problems(self) -> Iterator[RuleProblem]:
        """The name must fit into the label by which pods join."""
        if len(self.metadata.name) > MAX_LABEL_VALUE_LENGTH:
            yield RuleProblem(("metadata", "name"), _NAME_MESSAGE)
