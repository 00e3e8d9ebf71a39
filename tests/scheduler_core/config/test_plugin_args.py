"""Args of the built-in plugins: defaults, and each rule of kube-scheduler's validation."""

from __future__ import annotations

from typing import Any

import pytest
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


GOOD = [
    pytest.param("Coscheduling", {"podGroupRejectPercentage": 100, "podGroupBackoffSeconds": 0}, id="gangs-bounds"),
    pytest.param("Coscheduling", {"permitWaitingTimeSeconds": 0, "kind": "CoschedulingArgs"}, id="gangs-zero-wait"),
    pytest.param("DefaultPreemption", {"minCandidateNodesPercentage": 0}, id="preemption-percentage-0"),
    pytest.param("DefaultPreemption", {"minCandidateNodesPercentage": 100}, id="preemption-percentage-100"),
    pytest.param("DefaultPreemption", {"minCandidateNodesAbsolute": 0}, id="preemption-absolute-0"),
    pytest.param("DefaultPreemption", {"minCandidateNodesAbsolute": None}, id="null-is-unset"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 0}, id="affinity-0"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 100}, id="affinity-100"),
    pytest.param(FIT, shaped((0, 0), (50, 10), (100, 0)), id="fit-shape"),
    pytest.param(FIT, strategy("MostAllocated", resources=[{"name": "cpu", "weight": 100}]), id="fit-weight-100"),
    pytest.param(FIT, {"ignoredResources": ["example.com/a"], "ignoredResourceGroups": ["example.com"]}, id="fit-ign"),
    pytest.param(BALANCED, {"resources": [{"name": "cpu", "weight": 1}, {"name": "memory"}]}, id="balanced"),
    pytest.param(SPREAD, constraints(constraint(), constraint(whenUnsatisfiable="ScheduleAnyway")), id="spread-list"),
    pytest.param(SPREAD, {"defaultingType": ""}, id="spread-empty-type-is-unset"),
    pytest.param("VolumeBinding", {"bindTimeoutSeconds": 0}, id="volumes-0"),
    pytest.param("NodeAffinity", required(key="zone", operator="In", values=["a"]), id="affinity-required"),
    pytest.param("NodeAffinity", preferred(0, key="a b", operator="Like"), id="weight-0-is-not-validated"),
    pytest.param("DynamicResources", {"filterTimeout": "0s", "bindingTimeout": "1s"}, id="devices-shortest"),
    pytest.param(
        FIT, {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": f"{FIT}Args"}, id="with-apiversion-and-kind"
    ),
]


@pytest.mark.parametrize(("plugin", "args"), GOOD)
def test_valid_args(plugin: str, args: Args) -> None:
    """Args that kube-scheduler accepts are valid, including those at the bounds."""
    assert problems(plugin, args) == []


PERCENTAGE = "minCandidateNodesPercentage"
ABSOLUTE = "minCandidateNodesAbsolute"
KEY_PATH = "args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
BAD = [
    pytest.param("Coscheduling", {"permitWaitingTimeSeconds": -1}, "args.permitWaitingTimeSeconds: must be", id="wait"),
    pytest.param("Coscheduling", {"podGroupBackoffSeconds": -1}, "args.podGroupBackoffSeconds: must be", id="backoff"),
    pytest.param("Coscheduling", {"podGroupRejectPercentage": 101}, "args.podGroupRejectPercentage: must", id="over"),
    pytest.param("Coscheduling", {"podGroupRejectPercentage": -1}, "args.podGroupRejectPercentage: must", id="under"),
    pytest.param(
        "DefaultPreemption",
        {PERCENTAGE: -1},
        f"args.{PERCENTAGE}: must be at least 0, not -1",
        id="percentage-negative",
    ),
    pytest.param(
        "DefaultPreemption", {PERCENTAGE: 101}, f"args.{PERCENTAGE}: must be at most 100", id="percentage-101"
    ),
    pytest.param("DefaultPreemption", {ABSOLUTE: -1}, f"args.{ABSOLUTE}: must be at least 0", id="absolute-negative"),
    pytest.param("DefaultPreemption", {ABSOLUTE: "5"}, f'args.{ABSOLUTE}: must be a whole number, not "5"', id="text"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeight": -1}, "args.hardPodAffinityWeight: must be", id="hard"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 101}, "args.hardPodAffinityWeight: must", id="hard-101"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeigth": 1}, 'did you mean "hardPodAffinityWeight"?', id="typo"),
    pytest.param(FIT, strategy("Least"), "args.scoringStrategy.type: must be one of LeastAllocated", id="fit-type"),
    pytest.param(
        FIT,
        strategy("MostAllocated", resources=[{"name": "cpu", "weight": 101}]),
        "args.scoringStrategy.resources[0].weight: must be at most 100",
        id="fit-weight-101",
    ),
    pytest.param(
        FIT,
        strategy("MostAllocated", resources=[{"name": "cpu", "weight": -1}]),
        "args.scoringStrategy.resources[0].weight: must be at least 1",
        id="fit-weight-negative",
    ),
    pytest.param(FIT, strategy(), "args.scoringStrategy.requestedToCapacityRatio: is required", id="fit-no-shape"),
    pytest.param(
        FIT,
        strategy("LeastAllocated", requestedToCapacityRatio={"shape": [{"utilization": 0, "score": 0}]}),
        "args.scoringStrategy.requestedToCapacityRatio: is only valid with type",
        id="fit-shape-without-its-type",
    ),
    pytest.param(FIT, shaped(), "requestedToCapacityRatio.shape: must have at least one point", id="fit-empty-shape"),
    pytest.param(FIT, shaped((50, 0), (50, 1)), "shape[1].utilization: must be greater", id="fit-shape-not-rising"),
    pytest.param(FIT, shaped((101, 0)), "shape[0].utilization: must be at most 100", id="fit-utilization-101"),
    pytest.param(FIT, shaped((-1, 0)), "shape[0].utilization: must be at least 0", id="fit-utilization-negative"),
    pytest.param(FIT, shaped((0, 11)), "shape[0].score: must be at most 10", id="fit-score-11"),
    pytest.param(FIT, shaped((0, -1)), "shape[0].score: must be at least 0", id="fit-score-negative"),
    pytest.param(FIT, {"ignoredResources": ["a b"]}, 'args.ignoredResources[0]: "a b" must have', id="fit-ignored"),
    pytest.param(FIT, {"ignoredResourceGroups": ["a/b"]}, "args.ignoredResourceGroups[0]:", id="fit-group-slash"),
    pytest.param(FIT, {"ignoredResourceGroups": ["a b"]}, "args.ignoredResourceGroups[0]:", id="fit-group-name"),
    pytest.param(
        BALANCED,
        {"resources": [{"name": "cpu", "weight": 2}]},
        "args.resources[0].weight: must be 1, not 2",
        id="balanced-weight",
    ),
    pytest.param(
        BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "args.resources[1].name: ", id="balanced-repeated"
    ),
    pytest.param(
        SPREAD, constraints(constraint(), kind="System"), "args.defaultingType: must be List", id="spread-kind"
    ),
    pytest.param(SPREAD, {"defaultingType": "Some"}, "args.defaultingType: must be one of System", id="spread-no-kind"),
    pytest.param(SPREAD, constraints(constraint(maxSkew=0)), "[0].maxSkew: must be greater than 0", id="spread-skew"),
    pytest.param(
        SPREAD, constraints(constraint(topologyKey="")), "[0].topologyKey: must not be empty", id="spread-key"
    ),
    pytest.param(SPREAD, constraints(constraint(topologyKey="a b")), "[0].topologyKey: ", id="spread-bad-key"),
    pytest.param(
        SPREAD, constraints(constraint(whenUnsatisfiable=None)), "[0].whenUnsatisfiable: is", id="spread-when"
    ),
    pytest.param(
        SPREAD,
        constraints(constraint(whenUnsatisfiable="Wait")),
        "[0].whenUnsatisfiable: must be",
        id="spread-bad-when",
    ),
    pytest.param(SPREAD, constraints(constraint(labelSelector={})), "[0].labelSelector: must be left", id="selector"),
    pytest.param(SPREAD, constraints(constraint(), constraint(maxSkew=2)), "defaultConstraints[1]: has", id="repeated"),
    pytest.param(
        "VolumeBinding", {"bindTimeoutSeconds": -1}, "args.bindTimeoutSeconds: must be at least", id="volumes"
    ),
    pytest.param(
        "VolumeBinding",
        {"shape": [{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]},
        "args.shape[1].utilization: must be greater",
        id="volumes-shape",
    ),
    pytest.param("NodeAffinity", required(key="a b", operator="Exists"), f"{KEY_PATH}.key: ", id="affinity-key"),
    pytest.param("NodeAffinity", required(key="a", operator="Like"), f"{KEY_PATH}.operator: must be", id="affinity-op"),
    pytest.param("NodeAffinity", preferred(5, key="a", operator="In"), "[0].preference.", id="affinity-preferred"),
    pytest.param("DynamicResources", {"filterTimeout": "-1s"}, "args.filterTimeout: must be 0s", id="devices-filter"),
    pytest.param("DynamicResources", {"bindingTimeout": "999ms"}, "args.bindingTimeout: must be", id="devices-binding"),
    pytest.param(
        "DynamicResources", {"bindingTimeout": 5}, "args.bindingTimeout: must be a duration", id="devices-int"
    ),
    pytest.param(FIT, {"kind": "InterPodAffinityArgs"}, f'args.kind: must be "{FIT}Args"', id="kind"),
    pytest.param(FIT, {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "args.apiVersion: must be", id="version"),
]


@pytest.mark.parametrize(("plugin", "args", "expected"), BAD)
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
