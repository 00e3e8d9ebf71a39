"""Reserve, and Unreserve in reverse order.

Unreserve runs for every plugin: the exception of one is logged and does not prevent the others.
"""

from __future__ import annotations

import logging

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.result_checks import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)


def run_reserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve until a plugin does not succeed and return its status; the caller runs Unreserve."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in instance.reserve:
        try:
            status = checked(plugin.reserve(state, pod, node_name), Status, plugin.name, "reserve")
        except Exception as fault:
            return raised(plugin.name, "reserve", pod, fault)
        left((plugin.name, status.code, now()))
        if not status.is_success:
            return refused(status, plugin.name, "reserve")
    return SUCCESS


def run_unreserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of all plugins in reverse order."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in reversed(instance.reserve):
        try:
            plugin.unreserve(state, pod, node_name)
        except Exception:
            log.exception(
                "plugin %s raised at unreserve for pod %s; its reservation may leak",
                plugin.name,
                pod.key,
                extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
            )
        left((plugin.name, Code.SUCCESS, now()))
