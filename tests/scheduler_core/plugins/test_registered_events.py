"""Events that the default plugins register, with their queueing hints: only those that can change their results."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import Action, Resource
from tests.support.scheduling import default_rig

ADD, DELETE, UPDATE, LABEL = Action.ADD, Action.DELETE, Action.UPDATE, Action.UPDATE_NODE_LABEL
ADD_UPDATE = ADD | UPDATE
OWN, BOUND, NODE = Resource.TARGET_POD, Resource.ASSIGNED_POD, Resource.NODE
CLAIM, VOLUME, CLASS = Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME, Resource.STORAGE_CLASS
_TAINTS = [
    (NODE, ADD | Action.UPDATE_NODE_TAINT, "after_node_change"),
    (OWN, Action.UPDATE_POD_TOLERATION, "after_toleration_change"),
]
REGISTERED: dict[str, list[tuple[Resource, Action, str]]] = {
    "DefaultBinder": [],
    # Its hint returns Skip, as other plugins decide.
    "DefaultPreemption": [(BOUND, DELETE, "after_pod_deletion")],
    "DynamicResources": [
        (NODE, ADD | LABEL | Action.UPDATE_NODE_ALLOCATABLE, ""),
        (Resource.RESOURCE_CLAIM, Action.ALL, "after_claim_change"),
        (OWN, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, "after_pod_update"),
        (Resource.DEVICE_CLASS, ADD_UPDATE, ""),
        (Resource.RESOURCE_SLICE, ADD_UPDATE, ""),
    ],
    "ImageLocality": [],
    "InterPodAffinity": [
        (BOUND, ADD | DELETE | Action.UPDATE_POD_LABEL, "after_pod_change"),
        (OWN, Action.UPDATE_POD_LABEL, "after_pod_change"),
        (NODE, ADD | LABEL, "after_node_change"),
    ],
    "NodeAffinity": [(NODE, ADD | LABEL, "after_node_change")],
    "NodeDeclaredFeatures": [
        (NODE, ADD | Action.UPDATE_NODE_DECLARED_FEATURE, "after_node_change"),
        (OWN, UPDATE, "after_pod_update"),
    ],
    "NodeName": [(NODE, ADD, "")],
    "NodePorts": [(BOUND, DELETE, "after_pod_deletion"), (NODE, ADD, "")],
    "NodeResourcesBalancedAllocation": [],
    "NodeResourcesFit": [
        (BOUND, DELETE | Action.UPDATE_POD_SCALE_DOWN, "after_pod_change"),
        (OWN, Action.UPDATE_POD_SCALE_DOWN, "after_pod_change"),
        (BOUND, Action.UPDATE_POD_SCALE_UP, "after_pod_growth"),
        (NODE, ADD | Action.UPDATE_NODE_ALLOCATABLE, "after_node_change"),
        (Resource.DEVICE_CLASS, ADD_UPDATE, "after_class_change"),
    ],
    "NodeUnschedulable": _TAINTS,
    "NodeVolumeLimits": [
        (Resource.CSI_NODE, ADD, ""),
        (Resource.CSI_NODE, UPDATE, "after_csi_node_update"),
        (BOUND, DELETE, "after_pod_deletion"),
        (CLAIM, ADD, "after_claim_creation"),
        (Resource.VOLUME_ATTACHMENT, DELETE, "after_attachment_deletion"),
    ],
    "PodTopologySpread": [
        (BOUND, ADD | DELETE | Action.UPDATE_POD_LABEL, "after_pod_change"),
        (OWN, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION, "after_pod_change"),
        (NODE, ADD | DELETE | LABEL | Action.UPDATE_NODE_TAINT, "after_node_change"),
    ],
    "PrioritySort": [],
    "SchedulingGates": [(OWN, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, "after_gates_eliminated")],
    "TaintToleration": _TAINTS,
    "VolumeBinding": [
        (CLASS, ADD_UPDATE, "after_class_change"),
        (CLAIM, ADD_UPDATE, "after_claim_change"),
        (VOLUME, ADD_UPDATE, ""),
        (NODE, ADD | LABEL, ""),
        (Resource.CSI_NODE, ADD_UPDATE, "after_csi_node_change"),
        (Resource.CSI_DRIVER, UPDATE, "after_driver_update"),
        (Resource.CSI_STORAGE_CAPACITY, ADD_UPDATE, "after_capacity_change"),
    ],
    "VolumeRestrictions": [
        (BOUND, DELETE, "after_pod_deletion"),
        (NODE, ADD, ""),
        (CLAIM, ADD, "after_claim_creation"),
    ],
    "VolumeZone": [
        (CLASS, ADD, "after_class_creation"),
        (NODE, ADD | LABEL, ""),
        (CLAIM, ADD_UPDATE, "after_claim_change"),
        (VOLUME, ADD_UPDATE, "after_volume_change"),
    ],
}
"""Kind of the object, what happens to it, and the name of the hint function; "" for none, which requeues always."""


def test_every_default_plugin_has_a_row() -> None:
    """A plugin that is new in the default profile has its events here."""
    (instance,) = default_rig().context.profiles
    assert REGISTERED.keys() == instance.plugins.keys()


@pytest.mark.parametrize("name", REGISTERED)
def test_registered_events(name: str) -> None:
    """Exactly these events requeue pods that the plugin has rejected, if the hint agrees."""
    (instance,) = default_rig().context.profiles
    plugin = instance.plugins[name]
    registrations = plugin.events_to_register()
    assert all(each.hint is None or each.hint.__module__.startswith(type(plugin).__module__) for each in registrations)
    found = [(each.event.resource, each.event.action, getattr(each.hint, "__name__", "")) for each in registrations]
    assert found == REGISTERED[name]
