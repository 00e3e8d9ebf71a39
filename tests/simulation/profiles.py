"""The profiles of the simulation, each in several revisions.

Every revision enables the filters that :mod:`tests.simulation.plain_fit` implements.
"""

from __future__ import annotations

from functools import lru_cache

from scheduler_core.config.extender_config import Extender
from scheduler_core.config.plugin_set_types import Plugin, PluginConfig, Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.in_tree import default_plugins

PROFILES = ("default-scheduler", "batch")
REVISIONS = ("plain", "doors", "packing", "hasty", "extended")
BAD_REVISION = "bad"

_VOLUMES = PluginConfig(name="VolumeBinding", args={"bindTimeoutSeconds": 20})
_PACKING = PluginConfig(
    name="NodeResourcesFit",
    args={"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
)


@lru_cache(maxsize=1)
def defaults() -> Plugins:
    """Return the default plugins, and those that record and fail."""
    built_in = default_plugins().multi_point.enabled
    return Plugins(multi_point=PluginSet(enabled=(*built_in, Plugin(name="Turnstile"), Plugin(name="Ledger"))))


@lru_cache(maxsize=64)
def config_of(name: str, revision: str) -> ProfileConfig:
    """Return a revision of a profile.

    Args:
        name: The scheduler name.
        revision: One of :data:`REVISIONS`, or :data:`BAD_REVISION`, which cannot be built.
    """
    if revision == "doors":
        doors = Plugins(pre_enqueue=PluginSet(enabled=(Plugin(name="Doorman"),)))
        return ProfileConfig(scheduler_name=name, plugins=doors, plugin_config=(_VOLUMES,))
    if revision == "packing":
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES, _PACKING))
    if revision == "hasty":
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,), pod_max_backoff_seconds=2)
    if revision == "extended":
        extender = Extender(
            url_prefix="http://extender",
            filter_verb="filter",
            prioritize_verb="prioritize",
            preempt_verb="preempt",
            weight=1,
            node_cache_capable=True,
        )
        return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,), extenders=(extender,))
    if revision == BAD_REVISION:
        missing = Plugins(filter=PluginSet(enabled=(Plugin(name="Mislaid"),)))
        return ProfileConfig(scheduler_name=name, plugins=missing)
    return ProfileConfig(scheduler_name=name, plugin_config=(_VOLUMES,))
