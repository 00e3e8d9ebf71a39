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
    if not pod.spec.node_name:
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        pod = msgspec.structs.replace(pod, spec=spec)
    context.queue.on_event(ASSIGNED_POD_DELETE, pod, None, but=but)
