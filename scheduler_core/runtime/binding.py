"""PreBindPreFlight, Bind and PostBind: points of the binding cycle; PreBind is in :mod:`.pre_binding`.

Exceptions of plugins become statuses, so that the binding cycle unwinds the pod instead of ending its task silently.
"""

from __future__ import annotations

import logging

from scheduler_core.errors import BoundElsewhereError, SchedulerCoreError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.result_checks import checked, raised, refused
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)


class UnclearBindError(SchedulerCoreError):
    """A Bind plugin raised, possibly after it had bound the pod.

    Args:
        status: The exception as a status.
    """

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
