"""What a plugin's wishes to be told of events come to in a profile.

Owns the one addition that kube-scheduler v1.36.3 makes to them (``scheduler.go``, ``buildQueueingHintMap``). It must
not know what becomes of an event.

The addition: a plugin that wants to know of new nodes is retried on every change of a node's taints, too, unless it
registered for these itself. There it makes up for new nodes that old checks withheld from plugins. Bayplan withholds
none, but a pod is to be tried again when kube-scheduler would try it.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.extension_points import Plugin

_TAINTS_CHANGED = EventRegistration(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT))


def registrations_of(plugin: Plugin) -> tuple[EventRegistration, ...]:
    """What wakes the pods that ``plugin`` rejected."""
    registered = tuple(plugin.events_to_register())
    node_actions = Action(0)
    for registration in registered:
        if registration.event.resource is Resource.NODE:
            node_actions |= registration.event.action
    if node_actions & Action.ADD and not node_actions & Action.UPDATE_NODE_TAINT:
        return (*registered, _TAINTS_CHANGED)
    return registered
