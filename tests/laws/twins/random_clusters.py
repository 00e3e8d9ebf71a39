"""Random nodes, profiles and PodGroups for the twin schedulers."""

from __future__ import annotations

from random import Random
from typing import Any

from scheduler_core.config.plugin_set_types import PluginConfig, Plugins
from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.framework.registry import resolve
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from scheduler_core.model.taints import Taint
from tests.laws.twins.opaque_plugins import AppLimitPerNode, FewPodsPerNode, PodCountFilter
from tests.laws.twins.random_pods import NAMESPACES, ZONES
from tests.support.builders import node
from tests.support.gangs import group
from tests.support.scheduling import plugin_set

_WEIGHTED = ("TaintToleration", "NodeAffinity", "ImageLocality", "NodeResourcesFit")
_FILTERS = tuple(entry.name for entry in resolve(Plugins(), default_plugins(), in_tree_registry())[0]["filter"])


def random_node(rng: Random, name: str) -> Node:
    """Return a random node; many plugins read some of its fields."""
    labels = {"kubernetes.io/hostname": name}
    if rng.random() < 0.9:
        labels["zone"] = labels["topology.kubernetes.io/zone"] = rng.choice(ZONES)
    if rng.random() < 0.5:
        labels[f"l{rng.randrange(6)}"] = str(rng.randrange(6))
    taints = []
    if rng.random() < 0.2:
        effect = rng.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        taints.append(Taint(f"t{rng.randrange(3)}", effect, rng.choice(("", "v"))))
    allocatable = {
        "cpu": rng.choice(("8", "16", "32", "3500m")),
        "memory": rng.choice(("16Gi", "32Gi", "64Gi", "17179869183")),
        "pods": rng.choice(("3", "30", "110")),
        "ephemeral-storage": "50Gi",
    }
    if rng.random() < 0.4:
        allocatable["ex.com/r0"] = str(rng.randrange(9))
    if rng.random() < 0.2:
        allocatable[f"ex.com/r{rng.randint(1, 30)}"] = str(rng.randint(1, 5))
    if rng.random() < 0.02:
        allocatable["cpu"] = "0"
    images = {f"img{rng.randrange(6)}:latest": rng.choice((30, 300, 2000)) << 20 for _ in range(rng.randrange(4))}
    return node(
        name,
        labels=labels,
        taints=taints,
        allocatable=allocatable,
        images=images,
        unschedulable=rng.random() < 0.05,
        features=["f1"] if rng.random() < 0.1 else [],
    )


def random_profile(rng: Random, name: str) -> ProfileConfig:
    """Return a profile with random scoring strategies, weights and third-party plugins in random order."""
    scores, disabled = [], []
    if rng.random() < 0.4:
        scores = [f"{plugin}={rng.randint(1, 9)}" for plugin in _WEIGHTED]
        disabled = [*_WEIGHTED, *(["PodTopologySpread"] if rng.random() < 0.3 else [])]
    if rng.random() < 0.2:
        scores.append(f"{FewPodsPerNode.name}={rng.randint(1, 5)}")
    pre_filters, filters = [], []
    if rng.random() < 0.25:
        filters.append(AppLimitPerNode.name)
        pre_filters.append(AppLimitPerNode.name)
    if rng.random() < 0.1:
        filters.append(PodCountFilter.name)
    order = plugin_set(*filters)
    if rng.random() < 0.4:
        shuffled = [*filters, *_FILTERS]
        rng.shuffle(shuffled)
        order = plugin_set(*shuffled, disabled=["*"])
    plugins = Plugins(pre_filter=plugin_set(*pre_filters), filter=order, score=plugin_set(*scores, disabled=disabled))
    percentage = rng.choice((0, 50)) if rng.random() < 0.05 else None
    config = tuple(PluginConfig(name=plugin, args=args) for plugin, args in _random_args(rng).items())
    # A generator of its own leaves the other choices of a seed as they are.
    delay = 20 if Random(f"{plugins} {config}").random() < 0.3 else 0
    return ProfileConfig(
        scheduler_name=name,
        plugins=plugins,
        plugin_config=config,
        percentage_of_nodes_to_score=percentage,
        preemption=PreemptionSettings(delay_seconds=delay),
    )


def _random_args(rng: Random) -> dict[str, dict[str, Any]]:
    args: dict[str, dict[str, Any]] = {"NodeResourcesFit": {"scoringStrategy": _random_strategy(rng)}}
    if rng.random() < 0.3:
        resources = ["cpu", "memory", *(["ex.com/r0"] if rng.random() < 0.5 else [])]
        args["NodeResourcesBalancedAllocation"] = {"resources": [{"name": each, "weight": 1} for each in resources]}
    if rng.random() < 0.3:
        args["InterPodAffinity"] = {
            "hardPodAffinityWeight": rng.randint(0, 100),
            "ignorePreferredTermsOfExistingPods": rng.random() < 0.5,
        }
    if rng.random() < 0.3:
        constraint = {
            "maxSkew": rng.randint(1, 3),
            "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
            "whenUnsatisfiable": rng.choice(("ScheduleAnyway", "DoNotSchedule")),
        }
        args["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": [constraint]}
    if rng.random() < 0.3:
        expression = {"key": "zone", "operator": "In", "values": [rng.choice(ZONES)]}
        term = {"weight": rng.randint(1, 100), "preference": {"matchExpressions": [expression]}}
        args["NodeAffinity"] = {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return args


def _random_strategy(rng: Random) -> dict[str, Any]:
    resources = [{"name": name, "weight": rng.randint(1, 5)} for name in ("cpu", "memory")]
    if rng.random() < 0.5:
        resources.append({"name": "ex.com/r0", "weight": rng.randint(1, 9)})
    strategy: dict[str, Any] = {
        "type": rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        "resources": resources,
    }
    if strategy["type"] == "RequestedToCapacityRatio":
        shape = [{"utilization": each, "score": rng.randint(0, 10)} for each in (0, 50, 100)]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return strategy


def random_group(rng: Random, name: str, size: int) -> PodGroup:
    """Return a random PodGroup for up to *size* members."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.3:
        fields["topology"] = GroupTopology("zone", (), rng.random() < 0.5)
    if rng.random() < 0.3:
        fields["schedule_timeout_seconds"] = float(rng.randint(3, 60))
    if rng.random() < 0.2:
        fields["min_resources"] = {"cpu": rng.randint(100, 8000)}
    if rng.random() < 0.3:
        fields["priority"] = rng.choice((0, 5, 50))
    fields["is_strict"] = rng.random() < 0.3
    return group(name, rng.randint(2, size), rng.choice(NAMESPACES), **fields)
