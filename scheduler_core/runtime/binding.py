"""PreBindPreFlight, PreBind, Bind and PostBind: the points of the binding cycle.

Exceptions of plugins become statuses, so that the binding cycle unwinds the pod instead of ending its task silently.
"""

from __future__ import annotations

import asyncio
import logging

from scheduler_core.errors import BoundElsewhereError, SchedulerCoreError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error
from scheduler_core.framework.waiting_pods import PodInPreBind
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo


async def run_pre_binds(instance: FrameworkInstance, state: CycleState, held: PodInPreBind) -> Status:
    """Run PreBind until a plugin does not succeed, or the pod is cancelled.

    Args:
        state: The state of the attempt; plugins whose pre-flight returned Skip are not called.
        held: The pod; its PreBind is over afterwards.
    """
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


log = logging.getLogger(__name__)


class UnclearBindError(SchedulerCoreError):
    """A Bind plugin raised, possibly after it had bound the pod."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def run_pre_bind_pre_flights(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run PreBindPreFlight to find out which plugins have work to do before the bind.

    Returns:
        Success if any plugin has, Skip if none has; else an error with its plugin (a rejection is an error here).
    """
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
