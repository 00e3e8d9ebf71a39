"""Reports of invalid waiting pods: a field is unreadable, or the pod exceeds a limit of the scheduler.

They are logged at once. The condition and event follow when a live profile has the pod's scheduler name, because pods
of other schedulers must not be written to. A standby has no live profiles, so it writes nothing::

    invalid ──its profile is live, now or later──▶ reported ──spec or problem changes──▶ invalid
        └──corrected, bound or deleted──▶ dropped ◀──┘
"""

from __future__ import annotations

import logging

from msgspec import Struct

from scheduler_core.cycle.failure_handler import Failure, failed_scheduling, patch_status
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ClusterWriter
from scheduler_core.runtime.profile_swap import ProfileTable

log = logging.getLogger(__name__)


class _InvalidPod(Struct):
    pod: Pod
    problem: str
    is_reported: bool = False


class InvalidPods:
    """Reports invalid pods, once for each version of a pod.

    Args:
        profiles: The live profiles.
        writer: Writer of conditions and events.
    """

    def __init__(self, profiles: ProfileTable, writer: ClusterWriter) -> None:
        self._profiles = profiles
        self._writer = writer
        self.by_uid: dict[str, _InvalidPod] = {}

    def __len__(self) -> int:
        return len(self.by_uid)

    def add(self, pod: Pod, problem: str) -> None:
        """Add an invalid waiting pod and report it.

        Args:
            pod: The pod as last seen.
            problem: What is wrong with it.
        """
        uid = pod.metadata.uid
        known = self.by_uid.get(uid)
        if known is not None and (known.problem, known.pod.spec) == (problem, pod.spec):
            # Only its status changed, for example by the report itself; later writes need the latest version.
            known.pod = pod
            return
        self.by_uid[uid] = invalid = _InvalidPod(pod, problem)
        log.error("pod %s cannot be scheduled: %s; correct the pod", pod.key, problem, extra={"pod": pod.key})
        if pod.spec.scheduler_name in self._profiles:
            self._report(invalid)

    def remove(self, uid: str) -> None:
        """Drop a pod that was corrected, bound or deleted."""
        self.by_uid.pop(uid, None)

    def profile_changed(self, name: str) -> None:
        """Report the pods of a profile that became live, unless they were reported before."""
        if name not in self._profiles:
            return
        for invalid in self.by_uid.values():
            if invalid.pod.spec.scheduler_name == name and not invalid.is_reported:
                self._report(invalid)

    def _report(self, invalid: _InvalidPod) -> None:
        invalid.is_reported = True
        pod = invalid.pod
        message = f"the pod cannot be scheduled: {invalid.problem}. Correct its manifest and create the pod again"
        self._writer.record(failed_scheduling(pod, message, pod.spec.scheduler_name))
        patch_status(self._writer, pod, Failure(message, is_error=True, nominated_node=None))
