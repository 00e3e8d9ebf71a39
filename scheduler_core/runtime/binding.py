"""Reserve and Permit, and the points of the binding cycle: PreBindPreFlight, PreBind, Bind and PostBind.

Exceptions of plugins become statuses, so that the binding cycle unwinds the pod instead of ending its task silently.
"""

from __future__ import annotations

import asyncio
import logging

from scheduler_core.errors import BoundElsewhereError, SchedulerCoreError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitResult, ReservePlugin
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error
from scheduler_core.framework.waiting_pods import PodInPreBind
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

MAX_TIMEOUT_SECONDS = 15 * 60.0


def run_permit(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str
) -> tuple[Status, dict[str, float]]:
    """Return Success, a rejection or an error; or Wait, with the timeout in seconds of each plugin that waits."""
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


async def run_pre_binds(instance: FrameworkInstance, state: CycleState, held: PodInPreBind) -> Status:
    """Run PreBind until a plugin does not succeed, or the pod is cancelled; its PreBind is over then."""
    status = await _run(instance, state, held)
    held.finish()
    # A plugin may have completed although the pod was cancelled.
    return error(held.reason) if status.is_success and held.reason is not None else status


async def _run(instance: FrameworkInstance, state: CycleState, held: PodInPreBind) -> Status:
    recorder = state.recorder
    for plugin in instance.pre_bind:
        if plugin.name in state.skip_pre_bind:
            continue
        try:
            answer = await plugin.pre_bind(state, held.pod, held.node_name)
            status = checked(answer, Status, plugin.name, "preBind")
        except asyncio.CancelledError:
            if held.reason is None or not held.uncancel():
                raise
            status = error(held.reason)
        except Exception as fault:
            return raised(plugin.name, "preBind", held.pod, fault)
        recorder.plugin_left((plugin.name, status.code, recorder.now()))
        if not status.is_success:
            return refused(status, plugin.name, "preBind")
        if held.reason is not None:
            break
    return SUCCESS


class UnclearBindError(SchedulerCoreError):
    """A Bind plugin raised, possibly after it had bound the pod."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def run_pre_bind_pre_flights(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Return Success if a plugin has work to do before the bind, Skip if none has, else an error."""
    any_prepares = False
    left, now = state.recorder.plugin_left, state.recorder.now
    for plugin in instance.pre_bind:
        try:
            status = plugin.pre_bind_pre_flight(state, pod, node_name)
            if type(status) is not Status:
                status = checked(status, Status, plugin.name, "preBindPreFlight")
        except Exception as fault:
            return raised(plugin.name, "preBindPreFlight", pod, fault)
        left((plugin.name, status.code, now()))
        if status.is_skip:
            state.skip_pre_bind.add(plugin.name)
        elif status.is_success:
            any_prepares = True
        else:
            # A rejection is not allowed here, so it becomes an error too.
            return refused(Status(Code.ERROR, status.reasons), plugin.name, "preBindPreFlight")
    return SUCCESS if any_prepares else SKIP


async def run_binds(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Bind plugins until one does not skip.

    Raises:
        BoundElsewhereError: The pod is already bound to another node.
        WriteTimeoutError: It is unknown whether the pod was bound.
        UnclearBindError: A plugin raised, possibly after it had bound the pod.
    """
    recorder = state.recorder
    for plugin in instance.bind:
        try:
            status = await plugin.bind(state, pod, node_name)
            if type(status) is not Status:
                status = checked(status, Status, plugin.name, "bind")
            recorder.plugin_left((plugin.name, status.code, recorder.now()))
            if status.is_success:
                return status
            if not status.is_skip:
                return refused(status, plugin.name, "bind")
        except (BoundElsewhereError, WriteTimeoutError):
            raise
        except Exception as fault:
            raise UnclearBindError(raised(plugin.name, "bind", pod, fault)) from fault
    return error("every Bind plugin returned Skip; enable DefaultBinder as the last one")


def run_post_binds(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run PostBind; exceptions are only logged, because the pod is bound already."""
    recorder = state.recorder
    for plugin in instance.post_bind:
        try:
            plugin.post_bind(state, pod, node_name)
            recorder.plugin_left((plugin.name, Code.SUCCESS, recorder.now()))
        except Exception:
            log.exception(
                "plugin %s raised at postBind for pod %s",
                plugin.name,
                pod.key,
                extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
            )
