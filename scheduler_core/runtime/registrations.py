"""The event registrations of a plugin, with the one addition that kube-scheduler v1.36.3 makes.

A plugin that registers for new nodes is also called for every change of a node's taints, unless it registers for these
itself (``scheduler.go``, ``buildQueueingHintMap``). In kube-scheduler that makes up for new nodes that early checks
hide from plugins. Bayplan hides none, but requeues a pod when kube-scheduler would.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.extension_points import Plugin

_TAINTS_CHANGED = EventRegistration(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT))


def registrations_of(plugin: Plugin) -> tuple[EventRegistration, ...]:
    """Return the registrations of the events that requeue pods that ``plugin`` rejected."""
    registered = tuple(plugin.events_to_register())
    node_actions = Action(0)
    for registration in registered:
        if registration.event.resource is Resource.NODE:
            node_actions |= registration.event.action
    if node_actions & Action.ADD and not node_actions & Action.UPDATE_NODE_TAINT:
        return (*registered, _TAINTS_CHANGED)
    return registered
