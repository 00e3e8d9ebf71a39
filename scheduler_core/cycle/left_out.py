"""Waiting pods that are left out: something in them cannot be read, or is more than is judged.

Owns what is told of them, and to whom: the log at once, the pod's owner as soon as a live profile serves the pod's
scheduler name. Must not judge pods. Why the profile is waited for: pods of other schedulers are not ours to write to,
and a process that does not lead has no live profiles, so that nothing is written, or queued to be written, there::

    left out ──its profile is live, now or later──▶ told ──spec or problem is another──▶ left out
        └──taken after all, bound or gone──▶ forgotten ◀──┘
"""

from __future__ import annotations

import logging

from msgspec import Struct

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.failure import Failure, patch_status, reference_to
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Event

log = logging.getLogger(__name__)


class _LeftOut(Struct):
    pod: Pod
    problem: str
    is_told: bool = False


class LeftOutPods:
    """Tells of pods that are left out, once for each version of one.

    Args:
        context: The shared parts.
    """

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._pods: dict[str, _LeftOut] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def leave_out(self, pod: Pod, problem: str) -> None:
        """A waiting pod, as it is now, cannot be taken.

        Args:
            pod: The pod.
            problem: What is wrong with it.
        """
        uid = pod.metadata.uid
        known = self._pods.get(uid)
        if known is not None and (known.problem, known.pod.spec) == (problem, pod.spec):
            # Such as the very condition that was written; the latest is kept for what is written later.
            known.pod = pod
            return
        self._pods[uid] = left_out = _LeftOut(pod, problem)
        log.error("pod %s is left out: %s; correct the pod", pod.key, problem, extra={"pod": pod.key})
        if pod.spec.scheduler_name in self._context.profiles:
            self._tell(left_out)

    def forget(self, uid: str) -> None:
        """A pod is taken after all, has a node, or is gone."""
        self._pods.pop(uid, None)

    def profile_changed(self, name: str) -> None:
        """A scheduler name is served, perhaps for the first time: its pods' owners are told what they were not."""
        if name not in self._context.profiles:
            return
        for left_out in self._pods.values():
            if left_out.pod.spec.scheduler_name == name and not left_out.is_told:
                self._tell(left_out)

    def _tell(self, left_out: _LeftOut) -> None:
        left_out.is_told = True
        pod = left_out.pod
        message = f"the pod is left out: {left_out.problem}. Correct its manifest and create it anew"
        event = Event(
            reference_to(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            message,
            reporting_controller=pod.spec.scheduler_name,
        )
        self._context.writer.record(event)
        patch_status(self._context, pod, Failure(message, is_error=True, nominated_node=None))
