"""Pods that a plugin wants tried as soon as the attempt that it works on has got further.

Owns the list, which lives in the cycle state: a plugin adds to it at any extension point, the cycle hands it to the
queue when the scheduling cycle has succeeded and again when the pod is bound, and an attempt that fails activates
nobody. ``Handle.activate`` is for plugins that cannot wait so long.

Follows kube-scheduler v1.36.3 (``framework.PodsToActivate``; ``schedule_one.go``).
"""

from __future__ import annotations

from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.snapshot.pod_info import PodInfo


class PodsToActivate:
    """Pods by UID, in the order in which they were named."""

    __slots__ = ("_pods",)

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}

    def add(self, pod: PodInfo) -> None:
        """Name a pod; twice is once."""
        self._pods[pod.uid] = pod

    def take(self) -> tuple[str, ...]:
        """The UIDs of the pods that were named since this was last asked."""
        uids = tuple(self._pods)
        self._pods.clear()
        return uids

    def clone(self) -> PodsToActivate:
        """Itself: a what-if names pods for the attempt that it is part of."""
        return self


_KEY: StateKey[PodsToActivate] = StateKey("cycle/podsToActivate")


def pods_to_activate(state: CycleState) -> PodsToActivate:
    """The list of an attempt, for plugins to add to."""
    found = state.get(_KEY)
    if found is None:
        found = PodsToActivate()
        state.write(_KEY, found)
    return found


def take_pods_to_activate(state: CycleState) -> tuple[str, ...]:
    """What plugins have put into the list of an attempt since this was last asked, as UIDs for the queue."""
    found = state.get(_KEY)
    return () if found is None else found.take()
