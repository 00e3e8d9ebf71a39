"""A place on a node has become free: who may want it?

Owns the event's object. Plugins' hints ask where the pod was that went, but a pod that was only assumed does not carry
its node in its spec, so it is put there. Follows kube-scheduler v1.36.3 (``handleBindingCycleError``).
"""

from __future__ import annotations

import msgspec

from scheduler_core.cycle.context import CycleContext
from scheduler_core.framework.cluster_events import ASSIGNED_POD_DELETE
from scheduler_core.model.pod import Pod


def tell_departure(context: CycleContext, pod: Pod, node_name: str, but: str = "") -> None:
    """Wake the pods that the place of ``pod`` on ``node_name`` may help, but the one of UID ``but``."""
    context.queue.on_event(ASSIGNED_POD_DELETE, pod if pod.spec.node_name else on_node(node_name, pod), None, but=but)
    if context.reservations:
        context.reservations.departed(node_name or pod.spec.node_name)


def tell_unused_promise(context: CycleContext, pod: Pod, promised: str, node_name: str) -> None:
    """A pod has got a node: one that it was promised instead is free for those that kept off it.

    Those are pods of no higher priority. kube-scheduler tells nobody here, so that they wait there for something else.

    Args:
        context: The shared parts.
        pod: The pod.
        promised: The node that it was promised, "" for none.
        node_name: The node that it has got.
    """
    if promised not in ("", node_name):
        highest = pod.spec.priority or 0
        context.queue.on_event(
            ASSIGNED_POD_DELETE, on_node(promised, pod), None, but=pod.metadata.uid, max_priority=highest
        )


def on_node(node_name: str, pod: Pod) -> Pod:
    """The pod as it is once it is bound to a node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node_name))
