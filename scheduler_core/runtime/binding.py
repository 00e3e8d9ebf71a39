"""PreBindPreFlight, Bind and PostBind: points of the binding cycle; PreBind stands in :mod:`.pre_binding`.

Owns their order and the translation of faults into statuses: whatever a plugin raises here must unwind a pod and
never end a task unseen.
"""

from __future__ import annotations

import logging

from scheduler_core.errors import BoundElsewhereError, WriteTimeoutError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error
from scheduler_core.runtime.answers import checked, raised, refused
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)
_PRE_BIND_PRE_FLIGHT, _BIND, _POST_BIND = Point.PRE_BIND_PRE_FLIGHT, Point.BIND, Point.POST_BIND


def run_pre_bind_pre_flights(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Ask who has something to do before the bind.

    Returns:
        Success if anyone has, Skip if nobody; an error with its plugin (a rejection is not allowed here and is one).
    """
    anyone = False
    lap, now = state.times.lap, state.times.now
    lap(_PRE_BIND_PRE_FLIGHT)
    for plugin in instance.pre_bind:
        try:
            answer = plugin.pre_bind_pre_flight(state, pod, node_name)
            status = checked(answer, Status, plugin.name, "preBindPreFlight")
        except Exception as fault:
            return raised(plugin.name, "preBindPreFlight", pod, fault)
        lap(now())
        if status.is_skip:
            state.skip_pre_bind.add(plugin.name)
        elif status.is_success:
            anyone = True
        else:
            state.times.answered(status.code)
            # A rejection is not allowed here, so it becomes an error, too.
            return refused(Status(Code.ERROR, status.reasons), plugin.name, "preBindPreFlight")
    return SUCCESS if anyone else SKIP


async def run_binds(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Bind until a plugin does not skip.

    Raises:
        BoundElsewhereError: Someone else has bound the pod to another node.
        WriteTimeoutError: Whether the pod was bound is unknown.
    """
    times = state.times
    times.lap(_BIND)
    for plugin in instance.bind:
        try:
            status = checked(await plugin.bind(state, pod, node_name), Status, plugin.name, "bind")
        except (BoundElsewhereError, WriteTimeoutError):
            raise
        except Exception as fault:
            return raised(plugin.name, "bind", pod, fault)
        times.lap(times.now())
        if status.is_success:
            return status
        times.answered(status.code)
        if not status.is_skip:
            return refused(status, plugin.name, "bind")
    return error("every Bind plugin left the pod to the next; enable DefaultBinder last")


def run_post_binds(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run PostBind; a plugin that raises is logged, since the pod is bound whatever it says."""
    times = state.times
    times.lap(_POST_BIND)
    for plugin in instance.post_bind:
        try:
            plugin.post_bind(state, pod, node_name)
        except Exception:
            log.exception(
                "plugin %s raised at postBind for pod %s",
                plugin.name,
                pod.key,
                extra={"pod": pod.key, "plugin": plugin.name, "node": node_name},
            )
        times.lap(times.now())
