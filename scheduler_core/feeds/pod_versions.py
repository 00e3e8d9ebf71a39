"""Versions of pods: deletions that the watch does not show yet, pods that cannot be scheduled, and read versions.

Invalid waiting pods are logged at once. The condition and event follow when a live profile has the pod's scheduler
name, because pods of other schedulers must not be written to. A standby has no live profiles, so it writes nothing::

    invalid ──its profile is live, now or later──▶ reported ──spec or problem changes──▶ invalid
        └──corrected, bound or deleted──▶ dropped ◀──┘
"""

from __future__ import annotations

import logging
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.failure_handler import Failure, failed_scheduling, patch_status
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import ClusterWriter, PodDeletion
from scheduler_core.runtime.profile_table import ProfileTable


class _Deletion(Struct, frozen=True):
    at: datetime
    condition: PodCondition | None


class AcceptedDeletions:
    """Deletions by UID of the pod, until the watch shows them.

    The watch may still deliver versions of the pod from before the deletion. They are completed with the deletion
    instead of being compared by resourceVersion: a deletion timestamp is never removed, so a version without one is
    older than the response.

    The watch still has to deliver each of these pods with its deletion timestamp, or its deletion. The structure is
    bounded by that.
    """

    __slots__ = ("by_uid",)

    def __init__(self) -> None:
        self.by_uid: dict[str, _Deletion] = {}

    def accept(self, deletion: PodDeletion, at: datetime) -> None:
        self.by_uid[deletion.uid] = _Deletion(at, deletion.condition)

    def completed(self, pod: Pod) -> Pod:
        """Return a version of a pod that the watch or a read delivered, with the deletion that it does not show yet."""
        found = self.by_uid.get(pod.metadata.uid)
        if found is None:
            return pod
        if pod.metadata.deletion_timestamp is not None:
            del self.by_uid[pod.metadata.uid]
            return pod
        status = pod.status
        if found.condition is not None:
            others = [each for each in status.conditions if each.type != found.condition.type]
            status = replace(status, conditions=(*others, found.condition))
        return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=found.at), status=status)

    def ended(self, uid: str) -> None:
        self.by_uid.pop(uid, None)


log = logging.getLogger(__name__)


class _InvalidPod(Struct):
    pod: Pod
    problem: str
    is_reported: bool = False


class InvalidPods:
    """Reports invalid pods, once for each version of a pod."""

    def __init__(self, profiles: ProfileTable, writer: ClusterWriter) -> None:
        self._profiles = profiles
        self._writer = writer
        self.by_uid: dict[str, _InvalidPod] = {}

    def __len__(self) -> int:
        return len(self.by_uid)

    def add(self, pod: Pod, problem: str) -> None:
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


class ReadPods:
    """Pods that were read, until the watch has caught up, by UID.

    A read can overtake the watch: the watch then delivers older states of the same pod, and none of them may undo what
    the read established. Only facts that never change on the API server are compared (the pod has a node, is being
    deleted, has ended, is gone), not resource versions: they are enough to reject an older state, and they hold in
    every version.

    The watch still has to deliver each of these pods in the state that was read, or its deletion. The structure is
    bounded by that: it never holds more entries than the watch's own cache of pods.

    Attributes:
        by_uid: The pods as read, None for one that is gone; only for reading.
    """

    __slots__ = ("by_uid",)

    def __init__(self) -> None:
        self.by_uid: dict[str, Pod | None] = {}

    def __len__(self) -> int:
        return len(self.by_uid)

    def record(self, uid: str, pod: Pod | None) -> None:
        """Record what a read of a pod that the watch has delivered returned; None if the pod is gone."""
        if pod is None or any(_facts(pod)):
            self.by_uid[uid] = pod

    def is_overtaken(self, pod: Pod) -> bool:
        """Return whether a state of a pod is older than its last read; the read is dropped when it is not."""
        uid = pod.metadata.uid
        if uid not in self.by_uid:
            return False
        read = self.by_uid[uid]
        if read is None or _is_older(pod, read):
            return True
        del self.by_uid[uid]
        return False

    def deleted(self, uid: str) -> None:
        """Drop the read of a pod whose deletion was delivered."""
        self.by_uid.pop(uid, None)


def _facts(pod: Pod) -> tuple[bool, bool, bool]:
    return bool(pod.spec.node_name), pod.is_terminal, pod.metadata.deletion_timestamp is not None


def _is_older(pod: Pod, read: Pod) -> bool:
    return any(was and not is_now for was, is_now in zip(_facts(read), _facts(pod), strict=True))
