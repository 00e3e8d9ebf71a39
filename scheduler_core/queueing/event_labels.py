"""What kube-scheduler's metrics call an event.

Owns the words only. They tell pods with a node from those without, which plugins do not register apart, so that a
label is known only when the event's object is. Follows kube-scheduler v1.36.3 (``framework/events.go``) and
``ClusterEvent.Label`` of ``k8s.io/kube-scheduler`` v0.36.3.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.pod import Pod


def label_of(event: ClusterEvent, old: object | None, new: object | None) -> str:
    """The label of an event that happened.

    Args:
        event: What.
        old: Its object before, None if it was added.
        new: Its object after, None if it was deleted.
    """
    if event.label or event.resource is Resource.DECLARED_KIND:
        return event.name
    kind: str = event.resource.value
    if event.resource is Resource.POD:
        pod = old if new is None else new
        kind = ("AssignedPod" if pod.spec.node_name else "UnschedulablePod") if isinstance(pod, Pod) else kind
    if event.action is Action.UPDATE_OTHER:
        return f"{kind}Update"
    return kind + "".join(word.capitalize() for word in (event.action.name or "").split("_"))
