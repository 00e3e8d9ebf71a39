"""Reads of pods that overtake the watch."""

from __future__ import annotations

from scheduler_core.model.pod import Pod


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
    """What is never taken back."""
    return bool(pod.spec.node_name), pod.is_terminal, pod.metadata.deletion_timestamp is not None


def _is_older(pod: Pod, read: Pod) -> bool:
    return any(was and not is_now for was, is_now in zip(_facts(read), _facts(pod), strict=True))
