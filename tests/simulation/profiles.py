"""Profiles of the simulation, each in several revisions.

Every revision enables the filters that :mod:`tests.simulation.plain_fit` implements.
"""

from __future__ import annotations

from functools import lru_cache

from scheduler_core.config.gang_owners import GangSettings, owner_instance
from scheduler_core.config.plugin_set_types import Plugin, PluginConfig, Plugins, PluginSet
from scheduler_core.config.profile_config import Extender, PreemptionSettings, ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of

_LIMITED = frozenset((6, 8, 12, 16, 17, 20, 24, 26, 30, 34, 38, 43, 44))
PROFILES = ("default-scheduler", "batch")
REVISIONS = ("default", "label-gate", "most-allocated", "short-backoff", "extender")
INVALID_REVISION = "invalid"
_VOLUMES = PluginConfig(name="VolumeBinding", args={"bindTimeoutSeconds": 20})
_MOST_ALLOCATED = PluginConfig(
    name="NodeResourcesFit",
    args={"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
)
GANGS = validate(
    GangSettings, {"fromOwners": [{"kind": kind} for kind in ("Job", "JobSet", "LeaderWorkerSet", "KueuePodGroup")]}
)
"""Gangs by owner of the profiles, in the runs that have owners."""
_RULES = GANGS.rules


@lru_cache(maxsize=1)
def defaults() -> Plugins:
    """Return the default plugins and the simulation's plugins."""
    built_in = default_plugins().multi_point.enabled
    return Plugins(
        multi_point=PluginSet(enabled=(*built_in, Plugin(name="FaultInjector"), Plugin(name="ReservationRecorder")))
    )


@lru_cache(maxsize=64)
def config_of(name: str, revision: str, preemption: PreemptionSettings, *, has_owners: bool = False) -> ProfileConfig:
    """Return a revision of a profile.

    Args:
        revision: One of :data:`REVISIONS`, or :data:`INVALID_REVISION`, which cannot be built.
        preemption: Settings of preemption.
        has_owners: Whether the pods of an owner are a gang.
    """
    gangs = GANGS if has_owners else GangSettings()
    return _revision(name, revision).model_copy(update={"preemption": preemption, "gangs": gangs})


def gang_key(pod: Pod) -> GroupKey | None:
    """Return the group that a pod names, or that of its owner; None for none."""
    key = group_key_of(pod)
    if key is not None or not (pod.metadata.owner_references or pod.metadata.labels):
        return key
    found = owner_instance(pod, _RULES)
    return None if found is None else found.key


def _revision(name: str, revision: str) -> ProfileConfig:
    if revision == "label-gate":
        gated = Plugins(pre_enqueue=PluginSet(enabled=(Plugin(name="LabelGate"),)))
        return ProfileConfig(scheduler_name=name, plugins=gated, plugin_config=(_VOLUMES,))
    if revision == "most-allocated":
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES, _MOST_ALLOCATED))
    if revision == "short-backoff":
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,), pod_max_backoff_seconds=2)
    if revision == "extender":
        extender = Extender(
            url_prefix="http://extender",
            filter_verb="filter",
            prioritize_verb="prioritize",
            preempt_verb="preempt",
            weight=1,
            node_cache_capable=True,
        )
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,), extenders=(extender,))
    if revision == INVALID_REVISION:
        missing = Plugins(filter=PluginSet(enabled=(Plugin(name="Missing"),)))
        return ProfileConfig(scheduler_name=name, plugins=missing)
    return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,))


def preemption_settings(seed: int) -> PreemptionSettings:
    """Return the settings of preemption: in some runs profiles wait for a new node first, or preempt for devices."""
    # Not in the runs with devices that found fixed or planted bugs, which would decide otherwise.
    frees_devices = seed % 19 in (3, 4, 5, 6, 11, 12, 13)
    limits = limits_victims(seed)
    return PreemptionSettings(
        delay_seconds=3 if seed % 29 in (4, 27) else 0,
        devices=frees_devices,
        never_violate_disruption_budgets=limits,
        max_victims=2 if limits and seed % 3 == 0 else None,
    )


def limits_victims(seed: int) -> bool:
    """Return whether profiles never violate disruption budgets, which exist for all apps then."""
    # Not in the runs that found fixed or planted bugs.
    return seed % 46 in _LIMITED


def resizes_late(seed: int) -> bool:
    """Return whether the kubelet makes in-place resizes seconds after the change of the pod."""
    return limits_victims(seed)
