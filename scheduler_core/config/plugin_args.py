"""Args of the built-in plugins: fields, defaults and rules; and the parsing of any plugin's args.

``scheduler_core.model`` decodes what the API server has validated; these models validate what users write and report
the path of every problem. Source: component-helpers v0.37.1, scheduling/corev1/nodeaffinity.

All args are in one module because a configuration is validated completely before any plugin is created.
Source: kube-scheduler v1.37.1, pkg/scheduler/apis/config, v1/defaults.go and validation/validation_pluginargs.go,
with the feature gates at their defaults (StorageCapacityScoring and the timeouts of DynamicResources on).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field

from scheduler_core.config.config_model import (
    INT32_MAX,
    INT64_MAX,
    ConfigModel,
    Duration,
    DurationField,
    RuleProblem,
    list_field,
    seconds,
)
from scheduler_core.config.validation import (
    field_path,
    label_value_problems,
    qualified_name_problems,
    repeated,
    validate,
)
from scheduler_core.errors import ConfigError, Problem

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")


class NodeSelectorRequirement(ConfigModel):
    """One requirement on a node's label or field."""

    key: str = Field(default="", description="Label key, or name of the field (metadata.name).")
    operator: str = Field(default="", description="In, NotIn, Exists, DoesNotExist, Gt or Lt.")
    values: tuple[str, ...] = list_field("Values for the operator.")


class NodeSelectorTerm(ConfigModel):
    """Requirements that must all match; a term without requirements matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = list_field()
    match_fields: tuple[NodeSelectorRequirement, ...] = list_field()


class NodeSelector(ConfigModel):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = list_field()

    def rule_problems(self) -> Iterator[RuleProblem]:
        for index, term in enumerate(self.node_selector_terms):
            yield from _below(("nodeSelectorTerms", index), _term_problems(term))


class PreferredSchedulingTerm(ConfigModel):
    """A term that adds its weight to the score of matching nodes; a term with weight 0 is ignored."""

    weight: int = Field(default=0, ge=-INT32_MAX - 1, le=INT32_MAX)
    preference: NodeSelectorTerm = NodeSelectorTerm()

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the requirements of a term that is not ignored."""
        if self.weight != 0:
            yield from _below(("preference",), _term_problems(self.preference))


class NodeAffinity(ConfigModel):
    """Required and preferred terms."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = list_field()


class LabelSelectorRequirement(ConfigModel):
    """A requirement on a pod's label."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = list_field()


class LabelSelector(ConfigModel):
    """Selects pods by labels; empty selects all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = list_field()


class TopologySpreadConstraint(ConfigModel):
    """A topology spread constraint in the grammar of the pod's spec."""

    max_skew: int = Field(gt=0, le=INT32_MAX)
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: int | None = Field(default=None, le=INT32_MAX)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] = list_field()

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the topology key is a label key."""
        if not self.topology_key:
            yield RuleProblem(("topologyKey",), "must not be empty; set the node label whose values are the domains")
            return
        for message in qualified_name_problems(self.topology_key):
            yield RuleProblem(("topologyKey",), message)


def _term_problems(term: NodeSelectorTerm) -> Iterator[RuleProblem]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _below(("matchExpressions", index), _label_requirement_problems(requirement))
    for index, requirement in enumerate(term.match_fields):
        yield from _below(("matchFields", index), _field_requirement_problems(requirement))


def _label_requirement_problems(requirement: NodeSelectorRequirement) -> Iterator[RuleProblem]:
    for message in qualified_name_problems(requirement.key):
        yield RuleProblem(("key",), message)
    check = _VALUE_CHECKS.get(requirement.operator)
    if check is None:
        yield _unknown_operator(requirement.operator, _LABEL_OPERATORS)
        return
    if message := check(requirement.values):
        yield RuleProblem(("values",), f"{message} with operator {requirement.operator}")
    for index, value in enumerate(requirement.values):
        for message in label_value_problems(value):
            yield RuleProblem(("values", index), message)


def _field_requirement_problems(requirement: NodeSelectorRequirement) -> Iterator[RuleProblem]:
    if requirement.operator not in _FIELD_OPERATORS:
        yield _unknown_operator(requirement.operator, _FIELD_OPERATORS)
    elif len(requirement.values) != 1:
        yield RuleProblem(("values",), "must have exactly one value in matchFields")


def _unknown_operator(operator: str, known: tuple[str, ...]) -> RuleProblem:
    return RuleProblem(("operator",), f'must be one of {", ".join(known)}, not "{operator}"')


def _needs_some(values: tuple[str, ...]) -> str:
    return "" if values else "must have at least one value"


def _needs_none(values: tuple[str, ...]) -> str:
    return "must be empty" if values else ""


def _needs_one_number(values: tuple[str, ...]) -> str:
    # A label value has at most 63 characters, and Python parses longer numbers slowly.
    digits = values[0] if len(values) == 1 and len(values[0]) <= 63 else ""
    if digits.isascii() and digits.isdigit() and int(digits) <= INT64_MAX:
        return ""
    return "must be one integer as text"


_VALUE_CHECKS: dict[str, Callable[[tuple[str, ...]], str]] = {
    "In": _needs_some,
    "NotIn": _needs_some,
    "Exists": _needs_none,
    "DoesNotExist": _needs_none,
    "Gt": _needs_one_number,
    "Lt": _needs_one_number,
}


def _below(location: tuple[str | int, ...], problems: Iterable[RuleProblem]) -> Iterator[RuleProblem]:
    for problem in problems:
        yield RuleProblem((*location, *problem.location), problem.message)


API_VERSION = "kubescheduler.config.k8s.io/v1"
"""The only version of kube-scheduler's configuration API."""

Args = TypeVar("Args", bound=BaseModel)
ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class ResourceSpec(ConfigModel):
    """A resource with its weight in a score."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"weight"})

    name: str = Field(description="Name of the resource, such as cpu or example.com/gpu.")
    weight: int = Field(default=1, ge=1, le=100, description="Weight of the resource.")


class BalancedResourceSpec(ResourceSpec):
    """A resource in a score where all resources have the same weight."""

    weight: int = Field(default=1, ge=-INT64_MAX - 1, le=INT64_MAX, description="Must be 1.")


class UtilizationShapePoint(ConfigModel):
    """A point of a scoring function: utilization in percent, and score from 0 to 10."""

    utilization: int = Field(default=0, ge=0, le=100, description="Requested share of the node, in percent.")
    score: int = Field(default=0, ge=0, le=10, description="Score at this utilization; interpolated between points.")


def _shape_problems(shape: tuple[UtilizationShapePoint, ...]) -> Iterator[RuleProblem]:
    """Check that points are in ascending order of utilization."""
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            yield RuleProblem(
                ("shape", index, "utilization"),
                "must be greater than that of the previous point; sort the points in ascending order",
            )
            return


class RequestedToCapacityRatioParam(ConfigModel):
    """The scoring function of the RequestedToCapacityRatio strategy."""

    shape: tuple[UtilizationShapePoint, ...] = list_field(
        "Points of the function, in ascending order of utilization; at least one."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that there are points in ascending order of utilization."""
        if not self.shape:
            yield RuleProblem(("shape",), "must have at least one point, each with utilization and score")
        yield from _shape_problems(self.shape)


class ScoringStrategy(ConfigModel):
    """Scoring strategy of NodeResourcesFit."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"type"})

    type: ScoringStrategyType = Field(
        description="LeastAllocated prefers nodes with many free resources, MostAllocated nodes with few, "
        "RequestedToCapacityRatio uses a function of the utilization.",
    )
    resources: tuple[ResourceSpec, ...] = list_field("Scored resources; by default cpu and memory with weight 1.")
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = Field(
        default=None, description="The scoring function; only with type RequestedToCapacityRatio."
    )

    def scored_resources(self) -> tuple[ResourceSpec, ...]:
        """Return the resources to score: those listed, or CPU and memory with equal weights."""
        return self.resources or _CPU_AND_MEMORY

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the shape is set if and only if its strategy is used."""
        shaped = self.type == "RequestedToCapacityRatio"
        if shaped and self.requested_to_capacity_ratio is None:
            yield RuleProblem(
                ("requestedToCapacityRatio",), "is required with type RequestedToCapacityRatio; add it with a shape"
            )
        if not shaped and self.requested_to_capacity_ratio is not None:
            yield RuleProblem(
                ("requestedToCapacityRatio",),
                "is only valid with type RequestedToCapacityRatio; remove it or change the type",
            )


_CPU_AND_MEMORY = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class DefaultPreemptionArgs(ConfigModel):
    """Number of candidate nodes of a preemption: the larger of a percentage of all nodes and an absolute number."""

    min_candidate_nodes_percentage: int = Field(
        default=10, ge=0, le=100, description="Minimum number of candidate nodes, in percent of all nodes."
    )
    min_candidate_nodes_absolute: int = Field(
        default=100, ge=0, le=INT32_MAX, description="Minimum number of candidate nodes."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that there is at least one candidate node."""
        if self.min_candidate_nodes_percentage == 0 and self.min_candidate_nodes_absolute == 0:
            for name, other in (
                ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"),
                ("minCandidateNodesAbsolute", "minCandidateNodesPercentage"),
            ):
                yield RuleProblem((name,), f"cannot be 0 together with {other}; raise one of them")


class InterPodAffinityArgs(ConfigModel):
    """Weight of required terms of existing pods in the score, and whether their preferred terms count."""

    hard_pod_affinity_weight: int = Field(
        default=1,
        ge=0,
        le=100,
        description="Weight of a required affinity term of an existing pod that matches the incoming pod.",
    )
    ignore_preferred_terms_of_existing_pods: bool = Field(
        default=False,
        description="Whether to ignore preferred terms of existing pods for pods without preferred terms.",
    )


class NodeResourcesFitArgs(ConfigModel):
    """Ignored extended resources, and the scoring strategy."""

    ignored_resources: tuple[str, ...] = list_field("Extended resources that the filter ignores.")
    ignored_resource_groups: tuple[str, ...] = list_field(
        "Prefixes of extended resources that the filter ignores, such as example.com."
    )
    scoring_strategy: ScoringStrategy = Field(
        default=ScoringStrategy(type="LeastAllocated"), description="Scoring strategy; LeastAllocated by default."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the names of resources and groups; a group is a prefix without its slash."""
        for index, name in enumerate(self.ignored_resources):
            for message in qualified_name_problems(name):
                yield RuleProblem(("ignoredResources", index), message)
        for index, group in enumerate(self.ignored_resource_groups):
            if "/" in group:
                yield RuleProblem(
                    ("ignoredResourceGroups", index),
                    f'"{group}" must not contain "/"; use only the part before it of the resource\'s name',
                )
                continue
            for message in qualified_name_problems(group):
                yield RuleProblem(("ignoredResourceGroups", index), message)


class NodeResourcesBalancedAllocationArgs(ConfigModel):
    """The resources whose utilization is balanced."""

    resources: tuple[BalancedResourceSpec, ...] = list_field("Resources to balance; by default cpu and memory.")

    def balanced_resources(self) -> tuple[str, ...]:
        """Return the names of the resources to balance: those listed, or CPU and memory."""
        return tuple(resource.name for resource in self.resources or _CPU_AND_MEMORY)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that each resource occurs once, with weight 1."""
        for index in repeated([resource.name for resource in self.resources]):
            yield RuleProblem(
                ("resources", index, "name"),
                f'"{self.resources[index].name}" is already listed by an earlier entry; remove one of them',
            )
        for index, resource in enumerate(self.resources):
            if resource.weight != 1:
                yield RuleProblem(
                    ("resources", index, "weight"),
                    f"must be 1, not {resource.weight}: all resources have the same weight here",
                )


class PodTopologySpreadArgs(ConfigModel):
    """Default topology spread constraints for pods that have none."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"defaultingType"})

    default_constraints: tuple[TopologySpreadConstraint, ...] = list_field(
        "Constraints for pods without constraints, without labelSelector. Needs defaultingType List."
    )
    defaulting_type: Literal["System", "List"] = Field(
        default="System",
        description="System: kube-scheduler's defaults, preferred over hosts and zones. List: defaultConstraints.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that constraints have type List, no selector, and no duplicates."""
        if self.default_constraints and self.defaulting_type == "System":
            yield RuleProblem(("defaultingType",), "must be List when there are defaultConstraints")
        for index, constraint in enumerate(self.default_constraints):
            if constraint.label_selector is not None:
                yield RuleProblem(
                    ("defaultConstraints", index, "labelSelector"),
                    "must be left out: the selector comes from the services and owners of each pod",
                )
        keys = [f"{item.topology_key} {item.when_unsatisfiable}" for item in self.default_constraints]
        for index in repeated(keys):
            yield RuleProblem(
                ("defaultConstraints", index),
                "has the topologyKey and whenUnsatisfiable of an earlier constraint; remove one of them",
            )


class VolumeBindingArgs(ConfigModel):
    """Timeout of volume binding, and the score by storage capacity."""

    bind_timeout_seconds: int = Field(
        default=600, ge=0, le=INT64_MAX, description="Timeout for binding a pod's volumes, in seconds."
    )
    shape: tuple[UtilizationShapePoint, ...] = list_field(
        "Points of the scoring function: used percentage of volumes or storage on a node, and score, "
        "ascending in the first. By default nodes with more free storage score higher: 0 to 10, 100 to 0."
    )

    def scoring_shape(self) -> tuple[UtilizationShapePoint, ...]:
        """Return the points of the scoring function: those listed, or the default."""
        return self.shape or _EMPTIEST_STORAGE

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that points are in ascending order of utilization."""
        yield from _shape_problems(self.shape)


_EMPTIEST_STORAGE = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))


class NodeAffinityArgs(ConfigModel):
    """A node affinity for all pods of the profile, in addition to their own."""

    added_affinity: NodeAffinity | None = Field(
        default=None, description="Node affinity that applies to all pods in addition to their own."
    )


class DynamicResourcesArgs(ConfigModel):
    """Timeouts of allocating and preparing devices, their selection, and the bound of the search for a gang."""

    filter_timeout: DurationField = Field(
        default=seconds(10), description="Timeout of the device search on one node; 0s for none."
    )
    binding_timeout: DurationField = Field(default=seconds(600), description="Timeout of the wait for devices.")
    device_selection: Literal["FirstFit", "BestFit"] = Field(
        default="FirstFit",
        description="Which of the devices that match a request is taken: FirstFit, as kube-scheduler, the first one of "
        "the node; BestFit, Bayplan's own, the one with the least capacity, and nodes with smaller devices score more.",
    )
    gang_search_steps: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Largest number of steps of the search over a gang's members, nodes and devices, with the feature "
        "gate GangDeviceBacktracking. Bayplan's own.",
    )

    @property
    def is_best_fit(self) -> bool:
        return self.device_selection == "BestFit"

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that timeouts are not negative, and that binding has at least a second."""
        if self.filter_timeout < Duration(0):
            yield RuleProblem(("filterTimeout",), f"must be 0s (no limit) or more, not {self.filter_timeout}")
        if self.binding_timeout < seconds(1):
            yield RuleProblem(("bindingTimeout",), f"must be at least 1s, not {self.binding_timeout}")


class CoschedulingArgs(ConfigModel):
    """Waiting time of members, and the handling of groups with infeasible members.

    As in scheduler-plugins v0.34.7 (``apis/config/v1``). Percentages are of ``minMember``: while at most that many
    members are missing, an infeasible member does not reject the waiting ones.
    """

    permit_waiting_time_seconds: int = Field(
        default=60,
        ge=0,
        le=INT64_MAX,
        description="Timeout of members at Permit, in seconds, unless the PodGroup sets one.",
    )
    pod_group_backoff_seconds: int = Field(
        default=0, ge=0, le=INT64_MAX, description="Backoff of a rejected gang, in seconds."
    )
    pod_group_reject_percentage: int = Field(
        default=10,
        ge=0,
        le=100,
        description="Percentage of minMember that may be missing without rejecting the waiting members.",
    )


IN_TREE_ARGS: Mapping[str, type[ConfigModel]] = MappingProxyType(
    {
        "Coscheduling": CoschedulingArgs,
        "DefaultPreemption": DefaultPreemptionArgs,
        "DynamicResources": DynamicResourcesArgs,
        "InterPodAffinity": InterPodAffinityArgs,
        "NodeAffinity": NodeAffinityArgs,
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
        "NodeResourcesFit": NodeResourcesFitArgs,
        "PodTopologySpread": PodTopologySpreadArgs,
        "VolumeBinding": VolumeBindingArgs,
    }
)
"""Args models of built-in plugins, by the name of the plugin."""


def read_args(plugin: str, model: type[Args], args: Mapping[str, Any], prefix: str = "args") -> Args:
    """Validate the args of any plugin.

    Args:
        args: The args; ``apiVersion`` and ``kind`` are checked and removed.
        prefix: Field path of the args, such as ``spec.pluginConfig[1].args``.
    """
    problems = list(_type_problems(plugin, args, prefix))
    fields = {name: value for name, value in args.items() if name not in ("apiVersion", "kind")}
    try:
        read = validate(model, fields, prefix)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    except Exception as error:  # the model belongs to the plugin and may raise anything
        fault = f'plugin "{plugin}" failed to read its args ({type(error).__name__}: {error}); correct them, and '
        problems.append(Problem(prefix, f"{fault}report the failure to the plugin's author"))
        raise ConfigError(problems) from error
    if problems:
        raise ConfigError(problems)
    return read


def in_tree_args_problems(entries: Iterable[tuple[str, Mapping[str, Any]]], prefix: str) -> Iterator[Problem]:
    """Yield all problems of built-in plugins' args in a ``pluginConfig`` list; other plugins are ignored."""
    for index, (name, args) in enumerate(entries):
        model = IN_TREE_ARGS.get(name)
        if model is None:
            continue
        try:
            read_args(name, model, args, field_path(prefix, (index, "args")))
        except ConfigError as error:
            yield from error.problems


def _type_problems(plugin: str, args: Mapping[str, Any], prefix: str) -> Iterator[Problem]:
    kind = args.get("kind")
    if kind not in (None, "", f"{plugin}Args"):
        yield Problem(field_path(prefix, ("kind",)), f'must be "{plugin}Args" or left out, not "{kind}"')
    version = args.get("apiVersion")
    if plugin in IN_TREE_ARGS and version not in (None, "", API_VERSION):
        yield Problem(field_path(prefix, ("apiVersion",)), f'must be "{API_VERSION}" or left out, not "{version}"')
