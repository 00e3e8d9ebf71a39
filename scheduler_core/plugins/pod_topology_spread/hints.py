"""Queueing hints of PodTopologySpread: which events may help a pod that it rejected.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/podtopologyspread/plugin.go``.
"""

from __future__ import annotations

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.pod_topology_spread.constraints import Constraints, SpreadConstraint, has_all_keys


def after_pod_change(pod: Pod, constraints: Constraints, old: Pod | None, new: Pod | None) -> Hint:
    """Queue if a matching pod was added or deleted, or a pod started or stopped to match.

    New tolerations of the pod itself help if a constraint honors taints.
    """
    if not (_is_involved(pod, old) and _is_involved(pod, new)):
        return Hint.SKIP
    if old is None or new is None:
        other = old or new
        helps = other is None or any(_selects(constraint, other) for constraint in constraints)
        return Hint.QUEUE if helps else Hint.SKIP
    is_own = new.metadata.uid == pod.metadata.uid
    if is_own and new.spec.tolerations != old.spec.tolerations and any(one.honors_taints for one in constraints):
        return Hint.QUEUE
    changes = any(_selects(constraint, old) is not _selects(constraint, new) for constraint in constraints)
    return Hint.QUEUE if changes else Hint.SKIP


def after_node_change(constraints: Constraints, old: Node | None, new: Node | None) -> Hint:
    """Queue if a node with all keys was added or deleted, or changed its domains or taints."""
    had = old is not None and has_all_keys(old.metadata.labels, constraints)
    has = new is not None and has_all_keys(new.metadata.labels, constraints)
    if old is None or new is None:
        return Hint.QUEUE if had or has else Hint.SKIP
    if had is not has:
        return Hint.QUEUE
    if has and (_domains(old, constraints) != _domains(new, constraints) or old.spec.taints != new.spec.taints):
        return Hint.QUEUE
    return Hint.SKIP


def _is_involved(pod: Pod, other: Pod | None) -> bool:
    """Return whether another pod, if given, can count for this pod: it is scheduled or nominated, in its namespace."""
    if other is None or other.metadata.uid == pod.metadata.uid:
        return True
    has_place = bool(other.spec.node_name or other.status.nominated_node_name)
    return has_place and other.metadata.namespace == pod.metadata.namespace


def _selects(constraint: SpreadConstraint, pod: Pod) -> bool:
    return constraint.selector.matches(pod.metadata.labels)


def _domains(node: Node, constraints: Constraints) -> list[str]:
    return [node.metadata.labels.get(constraint.topology_key, "") for constraint in constraints]
