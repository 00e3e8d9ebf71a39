"""Reserve, and Unreserve in reverse.

Owns the order only. Unreserve always runs through: a plugin that fails to give back is logged and does not keep the
others from giving back theirs.
"""

from __future__ import annotations

import logging

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.runtime.answers import checked, raised, refused
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)
_RESERVE, _UNRESERVE = Point.RESERVE, Point.UNRESERVE


def run_reserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve until a plugin does not succeed; its status comes back with its name. Unreserve is the caller's."""
    lap, now = state.times.lap, state.times.now
    lap(_RESERVE)
    for plugin in instance.reserve:
        try:
            status = checked(plugin.reserve(state, pod, node_name), Status, plugin.name, "reserve")
        except Exception as fault:
            return raised(plugin.name, "reserve", pod, fault)
        lap(now())
        if not status.is_success:
            state.times.answered(status.code)
            return refused(status, plugin.name, "reserve")
    return SUCCESS


def run_unreserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of every plugin, last first."""
    lap, now = state.times.lap, state.times.now
    lap(_UNRESERVE)
    for plugin in reversed(instance.reserve):
        try:
            plugin.unreserve(state, pod, node_name)
        except Exception:
            log.exception(
                "plugin %s raised at unreserve for pod %s; what it held may leak",
                plugin.name,
                pod.key,
                extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
            )
        lap(now())
