"""Pods that a plugin activates when the current attempt makes progress.

The list is in the cycle state and a plugin may add to it at any extension point. The pods are activated when the
scheduling cycle succeeds and again when the pod is bound; a failed attempt activates none. Use ``Handle.activate`` to
activate pods immediately.

Follows kube-scheduler v1.37.1 (``framework.PodsToActivate``; ``schedule_one.go``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True, eq=False)
class PodsToActivate:
    """Pods by UID, in the order in which they were added."""

    _pods: dict[str, PodInfo] = field(default_factory=dict)

    def add(self, pod: PodInfo) -> None:
        """Add a pod; adding it again has no effect."""
        self._pods[pod.uid] = pod

    def take(self) -> tuple[str, ...]:
        """Return the UIDs of the pods that were added since the last call."""
        uids = tuple(self._pods)
        self._pods.clear()
        return uids


def pods_to_activate(state: CycleState) -> PodsToActivate:
    """Return the list of an attempt, for plugins to add to."""
    if state.to_activate is None:
        state.to_activate = PodsToActivate()
    return state.to_activate
