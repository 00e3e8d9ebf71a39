"""Reserve and Permit; :mod:`scheduler_core.framework.waiting_pods` has the pods that wait at Permit."""

from __future__ import annotations

import logging

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitResult, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo

MAX_TIMEOUT_SECONDS = 15 * 60.0


def run_permit(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str
) -> tuple[Status, dict[str, float]]:
    """Run Permit.

    Returns:
        Success; or a rejection or an error with its plugin; or Wait, with the timeout in seconds of each such plugin.
    """
    waits: dict[str, float] = {}
    recorder = state.recorder
    for plugin in instance.permit:
        try:
            result = checked(plugin.permit(state, pod, node_name), PermitResult, plugin.name, "permit")
            seconds = min(MAX_TIMEOUT_SECONDS, float(result.timeout_seconds))
        except Exception as fault:
            return raised(plugin.name, "permit", pod, fault), {}
        status = result.status
        recorder.plugin_left((plugin.name, status.code, recorder.now()))
        if status.code is Code.WAIT:
            waits[plugin.name] = seconds
        elif not status.is_success:
            return refused(status, plugin.name, "permit"), {}
    return (Status(Code.WAIT), waits) if waits else (SUCCESS, {})


log = logging.getLogger(__name__)


def run_reserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve until a plugin does not succeed and return its status; the caller runs Unreserve."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in instance.reserve:
        try:
            status = plugin.reserve(state, pod, node_name)
            if type(status) is not Status:
                status = checked(status, Status, plugin.name, "reserve")
        except Exception as fault:
            return raised(plugin.name, "reserve", pod, fault)
        left((plugin.name, status.code, now()))
        if not status.is_success:
            return refused(status, plugin.name, "reserve")
    return SUCCESS


def run_unreserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of all plugins in reverse order; a built-in one that raises is called once more."""
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in reversed(instance.reserve):
        if not _is_unreserved(plugin, state, pod, node_name) and plugin.name in instance.built_in:
            _is_unreserved(plugin, state, pod, node_name)
        left((plugin.name, Code.SUCCESS, now()))


def _is_unreserved(plugin: ReservePlugin, state: CycleState, pod: PodInfo, node_name: str) -> bool:
    try:
        plugin.unreserve(state, pod, node_name)
    except Exception:  # logged; the reservations of the other plugins must be undone all the same
        log.exception(
            "plugin %s raised at unreserve for pod %s; its reservation may leak",
            plugin.name,
            pod.key,
            extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
        )
        return False
    return True
