"""Args of the built-in plugins: defaults, and each rule of kube-scheduler's validation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from scheduler_core.config.config_model import seconds
from scheduler_core.config.plugin_args import (
    IN_TREE_ARGS,
    BalancedResourceSpec,
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
    in_tree_args_problems,
    read_args,
)
from tests.support.problems import problems_in
from tests.support.tables import table

Args = dict[str, Any]
FIT = "NodeResourcesFit"
BALANCED = "NodeResourcesBalancedAllocation"
SPREAD = "PodTopologySpread"


def problems(plugin: str, args: Args) -> list[str]:
    return problems_in(lambda: read_args(plugin, IN_TREE_ARGS[plugin], args))


def strategy(kind: str = "RequestedToCapacityRatio", **fields: Any) -> Args:
    return {"scoringStrategy": {"type": kind, **fields}}


def shaped(*points: tuple[int, int]) -> Args:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    return strategy(requestedToCapacityRatio={"shape": shape})


def constraint(**fields: Any) -> Args:
    whole = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {name: value for name, value in whole.items() if value is not None}


def constraints(*each: Args, kind: str = "List") -> Args:
    return {"defaultConstraints": list(each), "defaultingType": kind}


def required(**requirement: Any) -> Args:
    return {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [requirement]}]
            }
        }
    }


def preferred(weight: int, **requirement: Any) -> Args:
    term = {"weight": weight, "preference": {"matchExpressions": [requirement]}}
    return {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_defaults() -> None:
    """Omitted args have kube-scheduler's defaults."""
    made = {name: model() for name, model in IN_TREE_ARGS.items()}
    assert made["DefaultPreemption"] == DefaultPreemptionArgs(
        min_candidate_nodes_percentage=10, min_candidate_nodes_absolute=100
    )
    assert made["Coscheduling"] == CoschedulingArgs(
        permit_waiting_time_seconds=60, pod_group_backoff_seconds=0, pod_group_reject_percentage=10
    )
    assert made["InterPodAffinity"] == InterPodAffinityArgs(
        hard_pod_affinity_weight=1, ignore_preferred_terms_of_existing_pods=False
    )
    assert made["DynamicResources"] == DynamicResourcesArgs(filter_timeout=seconds(10), binding_timeout=seconds(600))
    assert made["VolumeBinding"] == VolumeBindingArgs(bind_timeout_seconds=600)
    assert made[SPREAD] == PodTopologySpreadArgs(defaulting_type="System", default_constraints=())
    assert made["NodeAffinity"] == NodeAffinityArgs(added_affinity=None)


def test_default_resources() -> None:
    """Without a list of resources, cpu and memory have equal weights; a weight of 0 counts as 1."""
    fit = NodeResourcesFitArgs().scoring_strategy
    assert fit.type == "LeastAllocated"
    assert [(spec.name, spec.weight) for spec in fit.scored_resources()] == [("cpu", 1), ("memory", 1)]
    listed = read_args(FIT, NodeResourcesFitArgs, strategy("MostAllocated", resources=[{"name": "cpu", "weight": 0}]))
    assert [(spec.name, spec.weight) for spec in listed.scoring_strategy.scored_resources()] == [("cpu", 1)]
    assert NodeResourcesBalancedAllocationArgs().balanced_resources() == ("cpu", "memory")
    own = NodeResourcesBalancedAllocationArgs(resources=(BalancedResourceSpec(name="example.com/gpu"),))
    assert own.balanced_resources() == ("example.com/gpu",)


@table(
    "plugin, args",
    ("gangs-bounds", "Coscheduling", {"podGroupRejectPercentage": 100, "podGroupBackoffSeconds": 0}),
    ("gangs-zero-wait", "Coscheduling", {"permitWaitingTimeSeconds": 0, "kind": "CoschedulingArgs"}),
    ("preemption-percentage-0", "DefaultPreemption", {"minCandidateNodesPercentage": 0}),
    ("preemption-percentage-100", "DefaultPreemption", {"minCandidateNodesPercentage": 100}),
    ("preemption-absolute-0", "DefaultPreemption", {"minCandidateNodesAbsolute": 0}),
    ("null-is-unset", "DefaultPreemption", {"minCandidateNodesAbsolute": None}),
    ("affinity-0", "InterPodAffinity", {"hardPodAffinityWeight": 0}),
    ("affinity-100", "InterPodAffinity", {"hardPodAffinityWeight": 100}),
    ("fit-shape", FIT, shaped((0, 0), (50, 10), (100, 0))),
    ("fit-weight-100", FIT, strategy("MostAllocated", resources=[{"name": "cpu", "weight": 100}])),
    ("fit-ign", FIT, {"ignoredResources": ["example.com/a"], "ignoredResourceGroups": ["example.com"]}),
    ("balanced", BALANCED, {"resources": [{"name": "cpu", "weight": 1}, {"name": "memory"}]}),
    ("spread-list", SPREAD, constraints(constraint(), constraint(whenUnsatisfiable="ScheduleAnyway"))),
    ("spread-empty-type-is-unset", SPREAD, {"defaultingType": ""}),
    ("volumes-0", "VolumeBinding", {"bindTimeoutSeconds": 0}),
    ("affinity-required", "NodeAffinity", required(key="zone", operator="In", values=["a"])),
    ("weight-0-is-not-validated", "NodeAffinity", preferred(0, key="a b", operator="Like")),
    ("devices-shortest", "DynamicResources", {"filterTimeout": "0s", "bindingTimeout": "1s"}),
    ("with-apiversion-and-kind", FIT, {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{FIT}Args"}),
)
def test_valid_args(plugin: str, args: Args) -> None:
    """Args that kube-scheduler accepts are valid, including those at the bounds."""
    assert problems(plugin, args) == []


PERCENTAGE = "minCandidateNodesPercentage"
ABSOLUTE = "minCandidateNodesAbsolute"
KEY_PATH = "args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"


@table(
    "plugin, args, expected",
    ("wait", "Coscheduling", {"permitWaitingTimeSeconds": -1}, "args.permitWaitingTimeSeconds: must be"),
    ("backoff", "Coscheduling", {"podGroupBackoffSeconds": -1}, "args.podGroupBackoffSeconds: must be"),
    ("over", "Coscheduling", {"podGroupRejectPercentage": 101}, "args.podGroupRejectPercentage: must"),
    ("under", "Coscheduling", {"podGroupRejectPercentage": -1}, "args.podGroupRejectPercentage: must"),
    ("percentage-negative", "DefaultPreemption", {PERCENTAGE: -1}, f"args.{PERCENTAGE}: must be at least 0, not -1"),
    ("percentage-101", "DefaultPreemption", {PERCENTAGE: 101}, f"args.{PERCENTAGE}: must be at most 100"),
    ("absolute-negative", "DefaultPreemption", {ABSOLUTE: -1}, f"args.{ABSOLUTE}: must be at least 0"),
    ("text", "DefaultPreemption", {ABSOLUTE: "5"}, f'args.{ABSOLUTE}: must be a whole number, not "5"'),
    ("hard", "InterPodAffinity", {"hardPodAffinityWeight": -1}, "args.hardPodAffinityWeight: must be"),
    ("hard-101", "InterPodAffinity", {"hardPodAffinityWeight": 101}, "args.hardPodAffinityWeight: must"),
    ("typo", "InterPodAffinity", {"hardPodAffinityWeigth": 1}, 'did you mean "hardPodAffinityWeight"?'),
    ("fit-type", FIT, strategy("Least"), "args.scoringStrategy.type: must be one of LeastAllocated"),
    (
        "fit-weight-101",
        FIT,
        strategy("MostAllocated", resources=[{"name": "cpu", "weight": 101}]),
        "args.scoringStrategy.resources[0].weight: must be at most 100",
    ),
    (
        "fit-weight-negative",
        FIT,
        strategy("MostAllocated", resources=[{"name": "cpu", "weight": -1}]),
        "args.scoringStrategy.resources[0].weight: must be at least 1",
    ),
    ("fit-no-shape", FIT, strategy(), "args.scoringStrategy.requestedToCapacityRatio: is required"),
    (
        "fit-shape-without-its-type",
        FIT,
        strategy("LeastAllocated", requestedToCapacityRatio={"shape": [{"utilization": 0, "score": 0}]}),
        "args.scoringStrategy.requestedToCapacityRatio: is only valid with type",
    ),
    ("fit-empty-shape", FIT, shaped(), "requestedToCapacityRatio.shape: must have at least one point"),
    ("fit-shape-not-rising", FIT, shaped((50, 0), (50, 1)), "shape[1].utilization: must be greater"),
    ("fit-utilization-101", FIT, shaped((101, 0)), "shape[0].utilization: must be at most 100"),
    ("fit-utilization-negative", FIT, shaped((-1, 0)), "shape[0].utilization: must be at least 0"),
    ("fit-score-11", FIT, shaped((0, 11)), "shape[0].score: must be at most 10"),
    ("fit-score-negative", FIT, shaped((0, -1)), "shape[0].score: must be at least 0"),
    ("fit-ignored", FIT, {"ignoredResources": ["a b"]}, 'args.ignoredResources[0]: "a b" must have'),
    ("fit-group-slash", FIT, {"ignoredResourceGroups": ["a/b"]}, "args.ignoredResourceGroups[0]:"),
    ("fit-group-name", FIT, {"ignoredResourceGroups": ["a b"]}, "args.ignoredResourceGroups[0]:"),
    (
        "balanced-weight",
        BALANCED,
        {"resources": [{"name": "cpu", "weight": 2}]},
        "args.resources[0].weight: must be 1, not 2",
    ),
    ("balanced-repeated", BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "args.resources[1].name: "),
    ("spread-kind", SPREAD, constraints(constraint(), kind="System"), "args.defaultingType: must be List"),
    ("spread-no-kind", SPREAD, {"defaultingType": "Some"}, "args.defaultingType: must be one of System"),
    ("spread-skew", SPREAD, constraints(constraint(maxSkew=0)), "[0].maxSkew: must be greater than 0"),
    ("spread-key", SPREAD, constraints(constraint(topologyKey="")), "[0].topologyKey: must not be empty"),
    ("spread-bad-key", SPREAD, constraints(constraint(topologyKey="a b")), "[0].topologyKey: "),
    ("spread-when", SPREAD, constraints(constraint(whenUnsatisfiable=None)), "[0].whenUnsatisfiable: is"),
    ("spread-bad-when", SPREAD, constraints(constraint(whenUnsatisfiable="Wait")), "[0].whenUnsatisfiable: must be"),
    ("selector", SPREAD, constraints(constraint(labelSelector={})), "[0].labelSelector: must be left"),
    ("repeated", SPREAD, constraints(constraint(), constraint(maxSkew=2)), "defaultConstraints[1]: has"),
    ("volumes", "VolumeBinding", {"bindTimeoutSeconds": -1}, "args.bindTimeoutSeconds: must be at least"),
    (
        "volumes-shape",
        "VolumeBinding",
        {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]},
        "args.shape[1].utilization: must be greater",
    ),
    ("affinity-key", "NodeAffinity", required(key="a b", operator="Exists"), f"{KEY_PATH}.key: "),
    ("affinity-op", "NodeAffinity", required(key="a", operator="Like"), f"{KEY_PATH}.operator: must be"),
    ("affinity-preferred", "NodeAffinity", preferred(5, key="a", operator="In"), "[0].preference."),
    ("devices-filter", "DynamicResources", {"filterTimeout": "-1s"}, "args.filterTimeout: must be 0s"),
    ("devices-binding", "DynamicResources", {"bindingTimeout": "999ms"}, "args.bindingTimeout: must be"),
    ("devices-int", "DynamicResources", {"bindingTimeout": 5}, "args.bindingTimeout: must be a duration"),
    ("kind", FIT, {"kind": "InterPodAffinityArgs"}, f'args.kind: must be "{FIT}Args"'),
    ("version", FIT, {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "args.apiVersion: must be"),
)
def test_invalid_args(plugin: str, args: Args, expected: str) -> None:
    """Args that kube-scheduler rejects are reported once, with the field path."""
    found = problems(plugin, args)
    assert len(found) == 1
    assert expected in found[0]


def test_no_candidate_nodes() -> None:
    """A percentage of 0 with an absolute number of 0 is reported at both fields."""
    found = problems("DefaultPreemption", {PERCENTAGE: 0, ABSOLUTE: 0})
    assert [problem.partition(":")[0] for problem in found] == [f"args.{PERCENTAGE}", f"args.{ABSOLUTE}"]


def test_all_problems_at_once() -> None:
    """One error reports all invalid fields and violated rules of a document, each with its path."""
    found = problems(
        SPREAD,
        {
            "kind": "Other",
            "defaultingTyp": "List",
            "defaultConstraints": [constraint(maxSkew=0), constraint(labelSelector={}), constraint(labelSelector={})],
        },
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "args.kind",
        "args.defaultConstraints[0].maxSkew",
        "args.defaultingTyp",
        "args.defaultingType",
        "args.defaultConstraints[1].labelSelector",
        "args.defaultConstraints[2].labelSelector",
        "args.defaultConstraints[2]",
    ]


class OwnArgs(BaseModel):
    """Args of an out-of-tree plugin: a plain pydantic model."""

    limit: int


def test_args_of_another_plugin() -> None:
    """Any pydantic model can be a plugin's args; its kind is checked, its apiVersion is not."""
    args = {"apiVersion": "example.com/v1", "kind": "OwnArgs", "limit": 3}
    assert read_args("Own", OwnArgs, args) == OwnArgs(limit=3)
    assert problems_in(lambda: read_args("Own", OwnArgs, {"limit": "x", "kind": "A"}, "spec.args")) == [
        'spec.args.kind: must be "OwnArgs" or left out, not "A"',
        "spec.args.limit: Input should be a valid integer, unable to parse string as an integer",
    ]


def test_only_built_in_args_are_validated() -> None:
    """Args of plugins that are not built in are skipped."""
    entries = [("Own", {"x": 1}), ("VolumeBinding", {"bindTimeoutSeconds": -1}), ("NodeName", {"y": 2})]
    found = [problem.path for problem in in_tree_args_problems(entries, "profiles[0].pluginConfig")]
    assert found == ["profiles[0].pluginConfig[1].args.bindTimeoutSeconds"]
