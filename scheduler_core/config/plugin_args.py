"""Args of the built-in plugins: their fields, defaults and rules, and how any plugin's args are read.

Owns one model for each plugin that takes args. It must not know the plugins themselves. Why all in one place and
not beside each plugin: a configuration is validated whole before any plugin is made.
Source: kube-scheduler v1.36.3, pkg/scheduler/apis/config, v1/defaults.go and validation/validation_pluginargs.go,
with the feature gates at their defaults (StorageCapacityScoring off, the timeouts of DynamicResources on).
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field

from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.duration import Duration, DurationField, seconds
from scheduler_core.config.embedded import NodeAffinity, TopologySpreadConstraint
from scheduler_core.config.kubernetes_names import qualified_name_problems
from scheduler_core.config.validation import field_path, repeated, validate
from scheduler_core.errors import ConfigError, Problem

API_VERSION = "kubescheduler.config.k8s.io/v1"
"""The only version of kube-scheduler's configuration API that v1.36 serves."""

Args = TypeVar("Args", bound=BaseModel)
ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class ResourceSpec(ConfigModel):
    """A resource and how much it counts in a score."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"weight"})

    name: str = Field(description="Name of the resource, such as cpu or example.com/gpu.")
    weight: int = Field(default=1, ge=1, le=100, description="How much it counts among the resources.")


class BalancedResourceSpec(ResourceSpec):
    """A resource in a score that weighs all resources alike."""

    weight: int = Field(default=1, ge=-INT64_MAX - 1, le=INT64_MAX, description="Must be 1 where it is given.")


class UtilizationShapePoint(ConfigModel):
    """A point of a scoring function: utilisation in percent on the x axis, score from 0 to 10 on the y axis."""

    utilization: int = Field(default=0, ge=0, le=100, description="How much of the node is requested, in percent.")
    score: int = Field(default=0, ge=0, le=10, description="The score there; between two points it is interpolated.")


class RequestedToCapacityRatioParam(ConfigModel):
    """The scoring function of the RequestedToCapacityRatio strategy."""

    shape: tuple[UtilizationShapePoint, ...] = Field(
        default=(), strict=False, description="Points of the function, in rising order of utilization; at least one."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """There is a point, and the points rise in utilisation."""
        if not self.shape:
            yield RuleProblem(("shape",), "must have at least one point, each with utilization and score")
        for index in range(1, len(self.shape)):
            if self.shape[index - 1].utilization >= self.shape[index].utilization:
                yield RuleProblem(
                    ("shape", index, "utilization"),
                    "must be greater than that of the point before; put the points in rising order",
                )
                return


class ScoringStrategy(ConfigModel):
    """How NodeResourcesFit scores nodes."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"type"})

    type: ScoringStrategyType = Field(
        description="LeastAllocated prefers nodes with much left, MostAllocated those with little, "
        "RequestedToCapacityRatio follows a function."
    )
    resources: tuple[ResourceSpec, ...] = Field(
        default=(), strict=False, description="The resources that count; cpu and memory alike when left out."
    )
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = Field(
        default=None, description="The function, with type RequestedToCapacityRatio only."
    )

    def scored_resources(self) -> tuple[ResourceSpec, ...]:
        """Give the resources to score.

        Returns:
            Those listed, or cpu and memory alike.
        """
        return self.resources or _CPU_AND_MEMORY

    def rule_problems(self) -> Iterator[RuleProblem]:
        """The shape stands with its own strategy and nowhere else."""
        shaped = self.type == "RequestedToCapacityRatio"
        if shaped and self.requested_to_capacity_ratio is None:
            yield RuleProblem(
                ("requestedToCapacityRatio",), "is required with type RequestedToCapacityRatio; add it with a shape"
            )
        if not shaped and self.requested_to_capacity_ratio is not None:
            yield RuleProblem(
                ("requestedToCapacityRatio",),
                "only belongs to type RequestedToCapacityRatio; remove it or change the type",
            )


_CPU_AND_MEMORY = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class DefaultPreemptionArgs(ConfigModel):
    """How many nodes a preemption looks at: the larger of a share of all nodes and an absolute number."""

    min_candidate_nodes_percentage: int = Field(
        default=10, ge=0, le=100, description="How many percent of the nodes are looked at for victims, at least."
    )
    min_candidate_nodes_absolute: int = Field(
        default=100, ge=0, le=INT32_MAX, description="How many nodes are looked at for victims, at least."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """At least one node must be looked at."""
        if self.min_candidate_nodes_percentage == 0 and self.min_candidate_nodes_absolute == 0:
            for name, other in (
                ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"),
                ("minCandidateNodesAbsolute", "minCandidateNodesPercentage"),
            ):
                yield RuleProblem((name,), f"cannot be 0 together with {other}; raise one of them")


class InterPodAffinityArgs(ConfigModel):
    """How required terms of running pods count in the score, and whether their preferred ones do."""

    hard_pod_affinity_weight: int = Field(
        default=1, ge=0, le=100, description="Score for a required term of a running pod that the incoming pod meets."
    )
    ignore_preferred_terms_of_existing_pods: bool = Field(
        default=False,
        description="Whether preferred terms of running pods are passed over for pods without terms of their own.",
    )


class NodeResourcesFitArgs(ConfigModel):
    """Which extended resources are not looked at, and how nodes are scored."""

    ignored_resources: tuple[str, ...] = Field(
        default=(), strict=False, description="Extended resources that are not looked at when nodes are filtered."
    )
    ignored_resource_groups: tuple[str, ...] = Field(
        default=(), strict=False, description="The same for all of a prefix, such as example.com."
    )
    scoring_strategy: ScoringStrategy = Field(
        default=ScoringStrategy(type="LeastAllocated"), description="How nodes are scored; LeastAllocated by default."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Resources and their groups have valid names, and a group is a prefix without its slash."""
        for index, name in enumerate(self.ignored_resources):
            for message in qualified_name_problems(name):
                yield RuleProblem(("ignoredResources", index), message)
        for index, group in enumerate(self.ignored_resource_groups):
            if "/" in group:
                yield RuleProblem(
                    ("ignoredResourceGroups", index),
                    f'"{group}" must not contain "/"; write only what stands before it in the resource\'s name',
                )
                continue
            for message in qualified_name_problems(group):
                yield RuleProblem(("ignoredResourceGroups", index), message)


class NodeResourcesBalancedAllocationArgs(ConfigModel):
    """The resources whose use is to be balanced within a node."""

    resources: tuple[BalancedResourceSpec, ...] = Field(
        default=(), strict=False, description="The resources that are balanced; cpu and memory when left out."
    )

    def balanced_resources(self) -> tuple[str, ...]:
        """Give the names of the resources to balance.

        Returns:
            Those listed, or cpu and memory.
        """
        return tuple(resource.name for resource in self.resources or _CPU_AND_MEMORY)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Each resource stands once, with weight 1."""
        for index in repeated([resource.name for resource in self.resources]):
            yield RuleProblem(
                ("resources", index, "name"),
                f'"{self.resources[index].name}" is named by an earlier entry already; remove one of them',
            )
        for index, resource in enumerate(self.resources):
            if resource.weight != 1:
                yield RuleProblem(
                    ("resources", index, "weight"), f"must be 1, not {resource.weight}: all resources count alike here"
                )


class PodTopologySpreadArgs(ConfigModel):
    """Spread constraints of pods that have none of their own."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"defaultingType"})

    default_constraints: tuple[TopologySpreadConstraint, ...] = Field(
        default=(), strict=False, description="Constraints of pods that have none; without labelSelector. Needs List."
    )
    defaulting_type: Literal["System", "List"] = Field(
        default="System",
        description="System: kube-scheduler's defaults, softly over hosts and zones. List: defaultConstraints.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Constraints need the type List, have no selector and do not repeat."""
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
    """How long binding volumes may take."""

    bind_timeout_seconds: int = Field(
        default=600, ge=0, le=INT64_MAX, description="Longest wait until a pod's volumes are bound."
    )
    shape: tuple[UtilizationShapePoint, ...] | None = Field(
        default=None, strict=False, description="Needs a gate of kube-scheduler that is off by default; leave it out."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """The shape is behind a feature gate that is off."""
        if self.shape is not None:
            yield RuleProblem(("shape",), "scoring by storage capacity is not available; remove it")


class NodeAffinityArgs(ConfigModel):
    """A node affinity that holds for every pod of the profile besides its own."""

    added_affinity: NodeAffinity | None = Field(
        default=None, description="Affinity that nodes must meet, or are preferred for, beside the pod's own."
    )


class DynamicResourcesArgs(ConfigModel):
    """How long searching and preparing devices may take."""

    filter_timeout: DurationField = Field(default=seconds(10), description="Longest search for devices on one node.")
    binding_timeout: DurationField = Field(default=seconds(600), description="Longest wait for devices to be ready.")

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Neither runs backwards, and binding is given a second."""
        if self.filter_timeout < Duration(0):
            yield RuleProblem(("filterTimeout",), f"must be 0s (no limit) or more, not {self.filter_timeout}")
        if self.binding_timeout < seconds(1):
            yield RuleProblem(("bindingTimeout",), f"must be at least 1s, not {self.binding_timeout}")


class CoschedulingArgs(ConfigModel):
    """How long members wait for each other, and what becomes of a group of which one does not fit.

    Those of scheduler-plugins v0.34.7 (``apis/config/v1``). Percentages are of ``minMember``: as long as no more than
    so many members are missing, one that does not fit leaves those that wait where they are.
    """

    permit_waiting_time_seconds: int = Field(
        default=60, ge=0, le=INT64_MAX, description="How long members wait at Permit, unless the PodGroup says."
    )
    pod_group_backoff_seconds: int = Field(
        default=0, ge=0, le=INT64_MAX, description="How long a gang that was turned away is not tried."
    )
    pod_group_reject_percentage: int = Field(
        default=10, ge=0, le=100, description="Percent of minMember that may be missing without the others giving up."
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
"""The args model of each built-in plugin that takes args, by the plugin's name."""


def read_args(plugin: str, model: type[Args], args: Mapping[str, Any], prefix: str = "args") -> Args:
    """Read the args of a plugin, built-in or not.

    Args:
        plugin: The plugin's name.
        model: Its args model, any pydantic model.
        args: The args as written; ``apiVersion`` and ``kind`` may stand with them and are not handed on.
        prefix: Field path of the args, such as ``spec.pluginConfig[1].args``.

    Returns:
        The args with their defaults.

    Raises:
        ConfigError: With every problem.
    """
    problems = list(_type_problems(plugin, args, prefix))
    fields = {name: value for name, value in args.items() if name not in ("apiVersion", "kind")}
    try:
        read = validate(model, fields, prefix)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    except Exception as error:  # the model of a plugin is anybody's code
        fault = f'plugin "{plugin}" failed at reading its args ({type(error).__name__}: {error}); correct them, and '
        problems.append(Problem(prefix, f"{fault}tell the plugin's author"))
        raise ConfigError(problems) from error
    if problems:
        raise ConfigError(problems)
    return read


def in_tree_args_problems(entries: Iterable[tuple[str, Mapping[str, Any]]], prefix: str) -> Iterator[Problem]:
    """Check the args of the built-in plugins in a ``pluginConfig`` list; those of others are not looked at.

    Args:
        entries: Plugin name and args of each entry.
        prefix: Field path of the list.

    Yields:
        Every problem.
    """
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
