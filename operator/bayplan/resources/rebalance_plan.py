"""RebalancePlan: moves of running pods that empty nodes, drain them, or make room for a gang.

By default a plan is a dry run: the status has the moves, and nothing is evicted.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.config import JsonDict

from bayplan.resources.conditions import Condition, conditions_field, generation_field
from bayplan.resources.crd_rules import Quantity, is_amount, matches
from bayplan.resources.cron_schedule import MAX_LENGTH, MESSAGE, PATTERN, CronSchedule, cron_schedule
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
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
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.model.movable_pod import LONGEST_OWNER, MOST_REQUESTS

MAX_MOVES = 500
MAX_MEMBERS = 1000
MAX_PODS_OF_NODE = 1000
MAX_REASONS = 20
MAX_NAMED_PODS = 5
MAX_NAMED_NODES = 100
_MAX_NAMES = 100
_MAX_LABELS = 16
_MAX_ZONE_LENGTH = 64
_SECONDS = 300
_MOVES = 10
_MAX_CONCURRENT = 50
_HOLD_SECONDS = 300
_NEEDS_NODES = "spec.drain is required with objective Drain, and only then: it selects the nodes"
_NEEDS_GANG = "spec.gang is required with objective MakeRoom, and only then"
_NEEDS_PIECE = "spec.defragment is required with objective Defragment, and only then"
_ONE_REPETITION = "spec.schedule and spec.intervalSeconds exclude each other: remove one of them"
_NEEDS_SCHEDULE = "spec.timeZone is the time zone of spec.schedule: write a schedule, or remove it"
_NODES_OR_LABELS = "nodes or labels are required: they select the nodes"

Objective = Literal["Consolidate", "Defragment", "Drain", "MakeRoom", "Spread"]
Phase = Literal["Pending", "Scheduled", "Planned", "Moving", "Suspended", "Completed", "Stopped", "Invalid"]
MoveState = Literal["Pending", "Evicting", "Moved", "Failed"]
Labels = dict[str, Annotated[str, Field(max_length=63)]]
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]


def _names(description: str) -> Any:
    schema: JsonDict = {"maxItems": _MAX_NAMES, "x-kubernetes-list-type": "set"}
    return Field(default=(), strict=False, description=description, json_schema_extra=schema)


def _amount(description: str) -> Any:
    return number(description, ge=0, le=INT64_MAX)


class DrainedNodes(ConfigModel):
    """Nodes from which all pods are moved that may be moved."""

    model_config = cel_rules(("has(self.nodes) || has(self.labels)", _NODES_OR_LABELS))

    nodes: tuple[Name, ...] | None = Field(
        default=None,
        strict=False,
        description="Names of nodes.",
        json_schema_extra={"maxItems": _MAX_NAMES, "minItems": 1, "x-kubernetes-list-type": "set"},
    )
    labels: Labels | None = Field(
        default=None, min_length=1, max_length=_MAX_LABELS, description="Labels of further nodes."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that nodes are selected."""
        if self.nodes is None and self.labels is None:
            yield RuleProblem((), _NODES_OR_LABELS)


class Piece(ConfigModel):
    """An amount of a resource on one node."""

    resource: str = text("Name of the resource, such as nvidia.com/gpu.", 317, min_length=1)
    amount: Quantity = Field(description="Size of a piece, such as 8.")

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the amount is a quantity."""
        if not is_amount(self.amount):
            yield RuleProblem(("amount",), "must be an amount of 0 or more, such as 8")


class GangReference(ConfigModel):
    """A PodGroup of bayplan.dev."""

    namespace: str = text("Namespace of the PodGroup.", 63, min_length=1)
    name: str = text("Name of the PodGroup.", min_length=1)
    hold_seconds: int = kept(
        _HOLD_SECONDS,
        "Maximum time after the last move for which the room is held for the gang. 0: the room is held "
        f"only while moves are made. Default: {_HOLD_SECONDS}.",
        ge=0,
        le=86400,
    )


class PlanScope(ConfigModel):
    """Pods that may be moved, and nodes that they may leave."""

    profiles: tuple[Name, ...] = _names("Scheduler names of the pods. Default: all live profiles.")
    namespaces: tuple[Name, ...] = _names("Namespaces of the pods. Default: all.")
    pod_labels: Labels | None = Field(
        default=None, max_length=_MAX_LABELS, description="Labels that the pods have. Default: any."
    )
    node_labels: Labels | None = Field(
        default=None,
        max_length=_MAX_LABELS,
        description="Labels of nodes that Consolidate may empty. Default: any.",
    )


class PlanBudget(ConfigModel):
    """What the moves may cost."""

    moves: int = kept(_MOVES, f"Maximum number of moves. Default: {_MOVES}.", ge=1, le=MAX_MOVES)
    cost: int | None = number(
        "Maximum sum of costs: 1 for each move, and the pod-deletion-cost of the pod. Default: no limit.", ge=1
    )
    concurrent_moves: int = kept(
        1,
        "Maximum number of moves that are made at the same time. Pods with constraints to other pods, "
        "volumes or resource claims are moved alone, and with movesPerMinute all pods are. Default: 1.",
        ge=1,
        le=_MAX_CONCURRENT,
    )
    moves_per_minute: int | None = number("Maximum number of moves in a minute. Default: no limit.", ge=1)


class RebalancePlanSpec(ConfigModel):
    """What the moves are to reach, and within which limits."""

    model_config = cel_rules(
        ("(self.objective == 'Drain') == has(self.drain)", _NEEDS_NODES),
        ("(self.objective == 'MakeRoom') == has(self.gang)", _NEEDS_GANG),
        ("(self.objective == 'Defragment') == has(self.defragment)", _NEEDS_PIECE),
        ("!(has(self.schedule) && has(self.intervalSeconds))", _ONE_REPETITION),
        ("!has(self.timeZone) || has(self.schedule)", _NEEDS_SCHEDULE),
    )

    objective: Objective = Field(
        description="Consolidate: empty as many nodes as possible. Defragment: free pieces of a resource on single "
        "nodes. Drain: move the pods off the nodes in drain. "
        "MakeRoom: make room for the quorum of a gang that waits. Spread: repair topology spread constraints."
    )
    drain: DrainedNodes | None = Field(default=None, description="The nodes, with objective Drain.")
    defragment: Piece | None = Field(default=None, description="The resource, with objective Defragment.")
    gang: GangReference | None = Field(default=None, description="The gang, with objective MakeRoom.")
    scope: PlanScope = Field(default=PlanScope(), description="Pods that may be moved. Default: all.")
    budget: PlanBudget = Field(default=PlanBudget(), description="Limits of the moves.")
    dry_run: bool = kept(
        True, "True (default): the status has the moves, and no pod is evicted. False: the moves are made."
    )
    suspend: bool = Field(
        default=False,
        description="True: no move begins until it is false again; a move that has begun is finished. Then the plan is "
        "made again, with a new budget.",
    )
    interval_seconds: int | None = number(
        "Seconds after the end of a plan at which the next one is made. Default: one plan.", ge=60
    )
    schedule: str | None = Field(
        default=None,
        description="Times at which plans are made, in the syntax of cron: minute, hour, day of month, month and day "
        'of week, such as "0 2 * * *", or @hourly, @daily, @weekly, @monthly or @yearly. For all times that are '
        "missed, or that pass while a plan is made, one plan is made. Default: one plan, at once.",
        json_schema_extra={"maxLength": MAX_LENGTH, "x-kubernetes-validations": [matches(PATTERN, MESSAGE)]},
    )
    time_zone: str | None = Field(
        default=None,
        description="Time zone of the schedule, such as Europe/Berlin. Default: UTC.",
        json_schema_extra={"maxLength": _MAX_ZONE_LENGTH},
    )
    move_timeout_seconds: int = kept(
        _SECONDS,
        "Maximum time of one move, until the replacement is bound to its node; then the plan stops. "
        f"Default: {_SECONDS}.",
        ge=10,
        le=3600,
    )

    @property
    def times(self) -> CronSchedule | None:
        """The schedule of a valid spec, if it has one."""
        found = None if self.schedule is None else cron_schedule(self.schedule, self.time_zone)
        return found if isinstance(found, CronSchedule) else None

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the objective has its field, and the schedule."""
        if self.schedule is not None:
            found = cron_schedule(self.schedule, self.time_zone)
            yield from () if isinstance(found, CronSchedule) else found
            if self.interval_seconds is not None:
                yield RuleProblem(("intervalSeconds",), _ONE_REPETITION)
        elif self.time_zone is not None:
            yield RuleProblem(("timeZone",), _NEEDS_SCHEDULE)
        if (self.objective == "Drain") != (self.drain is not None):
            yield RuleProblem(("drain",), _NEEDS_NODES)
        if (self.objective == "MakeRoom") != (self.gang is not None):
            yield RuleProblem(("gang",), _NEEDS_GANG)
        if (self.objective == "Defragment") != (self.defragment is not None):
            yield RuleProblem(("defragment",), _NEEDS_PIECE)


class AwaitedPod(StatusModel):
    """What is needed to hold the room of a replacement again after a restart."""

    owner: str = text("UID of the controller of the pod.", LONGEST_OWNER)
    requests: dict[str, Annotated[str, Field(max_length=63)]] = Field(
        default={}, max_length=MOST_REQUESTS, description="Requests of the pod, by resource."
    )
    priority: int = Field(default=0, ge=-INT32_MAX - 1, le=INT32_MAX, description="Priority of the pod.")
    has_claims: bool = Field(default=False, description="Whether the pod has resource claims.")
    others: tuple[Annotated[str, Field(max_length=64)], ...] = entries(
        "UIDs of the pods of the controller on the node that are not the replacement: those that were there before the "
        "eviction, and replacements of other pods.",
        MAX_PODS_OF_NODE,
    )


class PlannedMoveStatus(StatusModel):
    """One move."""

    pod: str = text("The pod, as namespace/name.", 317)
    uid: str = text("UID of the pod.", 64, default="")
    source: str = text("Node that the pod leaves.")
    target: str = text("Node of its replacement.")
    cost: int = count("1, and the pod-deletion-cost of the pod.", default=1, limit=INT64_MAX)
    state: MoveState = Field(
        default="Pending",
        description="Pending: not begun. Evicting: the room is held, and the replacement is awaited. Moved: the "
        "replacement is bound to the node. Failed: it is not.",
    )
    awaited: AwaitedPod | None = Field(
        default=None, description="The replacement, while the move is Evicting; a restart resumes the move with it."
    )


class MemberRoomStatus(StatusModel):
    """A member of the gang, and the node on which room is held for it."""

    pod: str = text("The pod, as namespace/name.", 317)
    uid: str = text("UID of the pod.", 64)
    node: str = text("Name of the node.")


class GangRoom(StatusModel):
    """Room that is held for the gang."""

    until: Timestamp = Field(description="Time at which the room ends, unless all members are bound before.")
    members: tuple[MemberRoomStatus, ...] = entries("The members. After a restart room is held for these.", MAX_MEMBERS)


class PlanEffect(StatusModel):
    """What the moves reach, as numbers; a field is absent if the objective does not mean it."""

    nodes_emptied: int = count("Number of nodes that are empty after the moves, and were not before.", default=0)
    empty_nodes: tuple[Name, ...] = entries("The first of these nodes.", MAX_NAMED_NODES)
    pieces_before: int | None = _amount("Number of free pieces of the resource before the moves.")
    pieces_after: int | None = _amount("Number of free pieces of the resource after the moves.")
    excess_before: int | None = _amount("Pods by which differences exceed maxSkew before the moves, in sum.")
    excess_after: int | None = _amount("Pods by which differences exceed maxSkew after the moves, in sum.")
    gang_fits: bool | None = Field(default=None, description="Whether the gang has room after the moves.")


class LeftAlonePods(StatusModel):
    """Pods that had to move for more gain, and are left alone for one reason."""

    reason: str = text("Why they are left alone.", 1024)
    count: int = count("Number of the pods.", default=0)
    pods: tuple[Annotated[str, Field(max_length=317)], ...] = entries(
        "The first of the pods, as namespace/name.", MAX_NAMED_PODS
    )


class RebalancePlanStatus(StatusModel):
    """The moves and what they reach; written by the operator."""

    observed_generation: int = generation_field("this status")
    phase: Phase | None = Field(
        default=None,
        description="Pending: another plan makes moves. Scheduled: the next time of the schedule is awaited. "
        "Planned: a dry run has ended. Moving: the moves are made. Suspended: spec.suspend is true. Completed: all "
        "moves are made, or none gain anything. Stopped: a move failed, and the other ones are not made, or the plan "
        "cannot be made. Invalid: the spec is invalid.",
    )
    planned: int = count("Number of moves of the plan.", default=0)
    moved: int = count("Number of moves that were made for this spec.", default=0)
    moved_cost: int = count(
        "Sum of the costs of these moves, which count against budget.cost.", default=0, limit=INT64_MAX
    )
    gain: str | None = text("What the moves reach.", 1024, default=None)
    effect: PlanEffect | None = Field(default=None, description="What the moves reach, as numbers.")
    cost: int = count("Sum of the costs of the moves.", default=0, limit=INT64_MAX)
    left_alone: tuple[LeftAlonePods, ...] = entries(
        "Pods that had to move for more gain, by the reason why they are left alone; the most frequent reasons first.",
        MAX_REASONS,
    )
    moves: tuple[PlannedMoveStatus, ...] = entries("The moves in their order.", MAX_MOVES)
    room: GangRoom | None = Field(default=None, description="Room that is held for the gang, with objective MakeRoom.")
    planned_at: Timestamp | None = Field(default=None, description="Time of the plan.")
    last_moved_at: Timestamp | None = Field(
        default=None, description="End of the last move, from which the rate of moves a minute counts."
    )
    completed_at: Timestamp | None = Field(default=None, description="Time at which the plan ended.")
    last_schedule_time: Timestamp | None = Field(
        default=None, description="The time of the schedule at which the last plan was due."
    )
    next_schedule_time: Timestamp | None = Field(
        default=None, description="The time of the schedule at which the next plan is due."
    )
    conditions: tuple[Condition, ...] = conditions_field(
        "Completed: whether the plan has ended as intended; if not, why it stopped, or what is wrong in the spec."
    )


class RebalancePlan(CustomResource):
    """Moves of running pods, each with the node of its replacement."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="RebalancePlan",
        plural="rebalanceplans",
        short_name="brp",
        namespaced=False,
        description="RebalancePlan moves running pods so that nodes are empty or a gang has room. Each destination is "
        "a node that all filters of the profile accept with the earlier moves made. A dry run by default. The operator "
        "needs its feature gate RebalancePlan.",
        columns=(
            PrinterColumn("Objective", "string", ".spec.objective", "What the moves are to reach."),
            PrinterColumn("Dry Run", "boolean", ".spec.dryRun", "Whether no pod is evicted."),
            PrinterColumn("Phase", "string", ".status.phase", "State of the plan."),
            PrinterColumn("Planned", "integer", ".status.planned", "Number of moves of the plan."),
            PrinterColumn("Moved", "integer", ".status.moved", "Number of moves that were made."),
            PrinterColumn("Gain", "string", ".status.gain", "What the moves reach."),
            PrinterColumn(
                "Next Plan", "string", ".status.nextScheduleTime", "Time at which the next plan is due.", wide=True
            ),
            condition_column("Message", "Completed", "Message of condition Completed.", "message", wide=True),
        ),
        selectable=(".status.phase",),
    )

    spec: RebalancePlanSpec
    status: RebalancePlanStatus = RebalancePlanStatus()
