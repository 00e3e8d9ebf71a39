"""The built-in plugins and the default profile.

Nothing else imports plugins, so a new plugin is one line here. Order and weights follow kube-scheduler v1.37.1
(``apis/config/v1/default_plugins.go``).
"""

from __future__ import annotations

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.framework.registry import Registry
from scheduler_core.plugins.coscheduling import Coscheduling
from scheduler_core.plugins.default_binder import DefaultBinder
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.plugins.deferred_pod_scheduling import DeferredPodScheduling
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.plugins.image_locality import ImageLocality
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.plugins.node_affinity import NodeAffinity
from scheduler_core.plugins.node_declared_features import NodeDeclaredFeatures
from scheduler_core.plugins.node_name import NodeName
from scheduler_core.plugins.node_ports import NodePorts
from scheduler_core.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.node_unschedulable import NodeUnschedulable
from scheduler_core.plugins.node_volume_limits import NodeVolumeLimits
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from scheduler_core.plugins.priority_sort import PrioritySort
from scheduler_core.plugins.scheduling_gates import SchedulingGates
from scheduler_core.plugins.taint_toleration import TaintToleration
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.plugins.volume_restrictions import VolumeRestrictions
from scheduler_core.plugins.volume_zone import VolumeZone

_DEFAULTS: tuple[tuple[type[Plugin], int | None], ...] = (
    (SchedulingGates, None),
    (PrioritySort, None),
    (NodeName, None),
    (NodeUnschedulable, None),
    (TaintToleration, 3),
    (NodeAffinity, 2),
    (NodePorts, None),
    (NodeResourcesFit, 1),
    (VolumeRestrictions, None),
    (NodeVolumeLimits, None),
    (VolumeBinding, None),
    (VolumeZone, None),
    (PodTopologySpread, 2),
    (InterPodAffinity, 2),
    (DynamicResources, 2),
    (DefaultPreemption, None),
    (NodeResourcesBalancedAllocation, 1),
    (ImageLocality, 1),
    (DefaultBinder, None),
    (NodeDeclaredFeatures, None),
)

_ON_DEMAND: tuple[type[Plugin], ...] = (Coscheduling, DeferredPodScheduling)
"""Plugins that a profile must enable by name."""


def in_tree_registry() -> Registry:
    return Registry((*(plugin for plugin, _ in _DEFAULTS), *_ON_DEMAND))


def default_plugins(*, deferred_resizes: bool = False) -> Plugins:
    """Return the default set: the built-in plugins except those on demand, under multiPoint, with their weights.

    Args:
        deferred_resizes: Whether running pods whose resize is deferred are scheduled. Then DeferredPodScheduling
            precedes NodeResourcesFit, so that it is the plugin that rejects where both do.
    """
    enabled = [PluginEntry(name=plugin.name, weight=weight) for plugin, weight in _DEFAULTS]
    if deferred_resizes:
        names = [entry.name for entry in enabled]
        enabled.insert(names.index(NodeResourcesFit.name), PluginEntry(name=DeferredPodScheduling.name))
    return Plugins(multi_point=PluginSet(enabled=tuple(enabled)))
