"""Pods whose PreBind runs, and how one of them is stopped in favour of another pod.

Owns who is between Permit and Bind, and who was stopped there::

    (Permit passed) ──hold──▶ RUNNING ──finish──▶ FINISHED: the bind goes out, cancel answers no
                                 └──cancel──▶ CANCELLED: PreBind is interrupted, the attempt ends in an error

Must not know what PreBind does. A pod that is stopped before its bind runs nowhere yet, so preemption need not delete
it. Its task is interrupted rather than asked, since it may wait minutes for a volume.

Follows kube-scheduler v1.36.3 (``framework/runtime/pods_in_prebind_map.go``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.runtime.answers import checked, raised, refused
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo


class PreBindingPod:
    """A pod whose PreBind runs in the current task; see :class:`scheduler_core.framework.handle.PodInPreBind`."""

    def __init__(self, pod: PodInfo, node_name: str) -> None:
        self.pod = pod
        self.node_name = node_name
        self._task = asyncio.current_task()
        self._reason: str | None = None
        self._is_taken_back = False
        self._is_finished = False

    def cancel(self, reason: str) -> bool:
        """Stop PreBind, which ends the attempt in an error; whether that was in time."""
        if self._is_finished:
            return False
        if self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel(reason)
        return True

    @property
    def reason(self) -> str | None:
        """Why the pod was stopped; None if it was not."""
        return self._reason

    def finish(self) -> None:
        """PreBind is over, however it ended: from now on the pod cannot be stopped."""
        self._is_finished = True
        self.take_back()

    def take_back(self) -> bool:
        """End the interruption of the task by :meth:`cancel`, so that it can go on to unwind the attempt.

        Returns:
            Whether the task is free to; False when somebody else ends it too, or alone.
        """
        if self._reason is None or self._task is None:
            return False
        if self._is_taken_back:
            return not self._task.cancelling()
        self._is_taken_back = True
        return not self._task.uncancel()


class PodsInPreBind:
    """All pods whose PreBind runs; see :class:`scheduler_core.framework.handle.PodsInPreBind`."""

    def __init__(self) -> None:
        self._pods: dict[str, PreBindingPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PreBindingPod]:
        return iter(list(self._pods.values()))

    def get(self, uid: str) -> PreBindingPod | None:
        """The pod of this UID; None if its PreBind does not run."""
        return self._pods.get(uid)

    @contextmanager
    def hold(self, pod: PodInfo, node_name: str) -> Iterator[PreBindingPod]:
        """A pod whose PreBind runs within the block, in the current task."""
        held = self._pods[pod.uid] = PreBindingPod(pod, node_name)
        try:
            yield held
        finally:
            self._pods.pop(pod.uid, None)


async def run_pre_binds(instance: FrameworkInstance, state: CycleState, held: PreBindingPod) -> Status:
    """Run PreBind until a plugin does not succeed, or the pod is stopped.

    Args:
        instance: The profile's revision.
        state: The attempt's; plugins that its pre-flight left out are skipped.
        held: The pod, whose PreBind is over afterwards.
    """
    status = await _run(instance, state, held)
    held.finish()
    # A plugin may have come to its end in spite of it.
    return error(held.reason) if status.is_success and held.reason is not None else status


async def _run(instance: FrameworkInstance, state: CycleState, held: PreBindingPod) -> Status:
    times = state.times
    times.lap(Point.PRE_BIND)
    for plugin in instance.pre_bind:
        if plugin.name in state.skip_pre_bind:
            continue
        try:
            answer = await plugin.pre_bind(state, held.pod, held.node_name)
            status = checked(answer, Status, plugin.name, "preBind")
        except asyncio.CancelledError:
            if held.reason is None or not held.take_back():
                raise
            status = error(held.reason)
        except Exception as fault:
            return raised(plugin.name, "preBind", held.pod, fault)
        times.lap(times.now())
        if not status.is_success:
            times.answered(status.code)
            return refused(status, plugin.name, "preBind")
        if held.reason is not None:
            break
    return SUCCESS
