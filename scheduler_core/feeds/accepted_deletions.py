"""Deletions of pods that the API server has accepted and that the watch has not shown yet."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import PodDeletion


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

    Attributes:
        by_uid: The deletions.
    """

    __slots__ = ("by_uid",)

    def __init__(self) -> None:
        self.by_uid: dict[str, _Deletion] = {}

    def accept(self, deletion: PodDeletion, at: datetime) -> None:
        """Record the successful response to a deletion.

        Args:
            deletion: The deletion of a pod that the cache has without a deletion timestamp.
            at: The time of the response.
        """
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
        """Drop the deletion of a pod that is gone."""
        self.by_uid.pop(uid, None)
