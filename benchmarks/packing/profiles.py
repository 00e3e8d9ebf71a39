"""The profiles that are compared: the policies of the example plugin GpuShares, and scores of Bayplan alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayplan_example_plugins.gpu_shares import GpuShares
from bayplan_example_plugins.gpu_shares.args import GpuSharesArgs, Policy, TypicalPod

PUBLISHED = {
    Policy.RANDOM.value: 86.3,
    Policy.DOT_PRODUCT.value: 90.6,
    Policy.CLUSTERING.value: 91.7,
    Policy.PACKING.value: 91.8,
    Policy.BEST_FIT.value: 92.9,
    Policy.FRAGMENTATION.value: 95.2,
}
"""Allocated GPUs in percent by policy: Weng et al. (USENIX ATC 2023), default trace, 100 % arrived load."""

_SPREAD, _MOST_ALLOCATED = "default", "most-allocated"
PROFILES = (_SPREAD, _MOST_ALLOCATED, *PUBLISHED)


def profile(name: str, expected: Sequence[TypicalPod]) -> Mapping[str, Any]:
    """Return the spec of a SchedulerProfile.

    Args:
        name: One of :data:`PROFILES`.

    Returns:
        ``default``: the default scores of Bayplan. ``most-allocated``: NodeResourcesFit alone, MostAllocated over CPU,
        memory and GPUs. In both, GpuShares filters and assigns GPUs. Else the score of GpuShares alone.
    """
    policy = Policy.UNSCORED if name in (_SPREAD, _MOST_ALLOCATED) else Policy(name)
    args = GpuSharesArgs(policy=policy, workload=tuple(expected) if policy is Policy.FRAGMENTATION else ())
    plugins: dict[str, Any] = {"multiPoint": {"enabled": [{"name": GpuShares.name}]}}
    configs = [{"name": GpuShares.name, "args": args.document()}]
    if name == _MOST_ALLOCATED:
        resources = [{"name": each, "weight": 1} for each in ("cpu", "memory", args.resource)]
        strategy = {"type": "MostAllocated", "resources": resources}
        configs.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    if name != _SPREAD:
        scored = "NodeResourcesFit" if name == _MOST_ALLOCATED else GpuShares.name
        plugins["score"] = {"enabled": [{"name": scored}], "disabled": [{"name": "*"}]}
    return {"plugins": plugins, "pluginConfig": configs}
