"""NodeDeclaredFeatures: requires that the node declares the kubelet features that the pod's spec needs.

The needed features are inferred from the spec alone, by one table entry per feature. A node that does not declare a
feature does not have it, whatever its version.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/nodedeclaredfeatures/nodedeclaredfeatures.go`` and
``k8s.io/component-helpers`` v0.37.1, ``nodedeclaredfeatures/features``. Features that only concern updates of running
pods are left out. No feature has a last version yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    CONTINUE,
    Codes,
    FilterPlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SKIP, unresolvable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, PodSpec
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"

_SKIPPED = PreFilterResult(SKIP)


def _restarts_all_containers(spec: PodSpec) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    )


_NEEDED_BY: Mapping[str, Callable[[PodSpec], bool]] = {
    RESTART_ALL_CONTAINERS: _restarts_all_containers,
    USER_NAMESPACES_HOST_NETWORK: lambda spec: spec.host_network and spec.host_users is False,
}
"""Features that a pod may need, with the condition on its spec."""


def required_features(pod: Pod) -> tuple[str, ...]:
    return tuple(feature for feature, is_needed in _NEEDED_BY.items() if is_needed(pod.spec))


def after_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the node was added, or its declared features changed."""
    if not isinstance(new, Node) or not isinstance(old, Node):
        return Hint.QUEUE
    return Hint.SKIP if old.status.declared_features == new.status.declared_features else Hint.QUEUE


def after_pod_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if the update is of this pod and changes the features that it needs."""
    if not isinstance(new, Pod) or not isinstance(old, Pod):
        return Hint.QUEUE
    if new.metadata.uid != pod.metadata.uid or required_features(old) == required_features(new):
        return Hint.SKIP
    return Hint.QUEUE


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Rules out nodes that do not declare a feature that the pod needs."""

    name = "NodeDeclaredFeatures"
    handles_resizes = False
    reasons = (unresolvable("node(s) didn't match Pod's required features"),)
    reuse = Reuse(filter=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    events = (
        EventRegistration(
            ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE), after_node_change
        ),
        EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE), after_pod_update),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._version = -1
        self._declared: dict[str, NDArray[np.bool_]] = {}

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return CONTINUE if required_features(pod.pod) else _SKIPPED

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Reject rows without a needed feature; None if no feature is needed."""
        features = required_features(pod.pod)
        if not features:
            return None
        lacking = np.zeros(nodes.size, dtype=np.bool_)
        for feature in features:
            lacking |= ~self._declaring(feature, nodes)
        return lacking[rows].astype(np.int16)

    def _declaring(self, feature: str, nodes: NodeColumns) -> NDArray[np.bool_]:
        """Return the rows whose node declares a feature, bool[row]; cached until a Node object changes."""
        if self._version != nodes.version:
            self._version = nodes.version
            self._declared.clear()
        declaring = self._declared.get(feature)
        if declaring is None:
            declaring = self._declared[feature] = np.fromiter(
                (node is not None and feature in node.status.declared_features for node in nodes.nodes),
                dtype=np.bool_,
                count=nodes.size,
            )
        return declaring
