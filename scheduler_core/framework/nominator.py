"""Nominated nodes of pods.

A nominated pod counts on its node while pods of the same or lower priority are filtered there, so that they do not use
the room that preemption made for it. A member of a gang counts by the priority of its group, because the group preempts
by that priority and needs it to keep its nodes; a pod's status has no priority, so this also holds after a restart.

A nomination exists in memory before the watch shows it in the pod's status; this module merges the two. Until the watch
has shown the last nomination that was written here, that one counts, and versions of the pod with earlier ones are
stale. kube-scheduler trusts the status, so a late watch undoes a nomination there.

Follows kube-scheduler v1.37.1, ``backend/queue/nominator.go``.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo

_MOST_UNSEEN = 8
"""Most written nominations of one pod that are stored until the watch shows the last one."""


class NominatedPods:
    """Nominations by node: pods for which preemption makes room there.

    Args:
        group_priority: Returns the priority of the group of a pod by the pod's UID; None if the pod's own counts.

    Attributes:
        version: Incremented when a nomination is made or withdrawn.
        made_at: The version with which each pod was nominated; only for reading.
        node_by_uid: The node to which each pod is nominated, hidden or not; only for reading.
        unseen_by_uid: The nominations written for each pod that the watch has not shown; only for reading.
    """

    __slots__ = ("_by_node", "_group_priority", "_hidden", "made_at", "node_by_uid", "unseen_by_uid", "version")

    def __init__(self, group_priority: Callable[[str], int | None] = lambda _: None) -> None:
        self.version = 0
        self._group_priority = group_priority
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self.node_by_uid: dict[str, str] = {}
        self.made_at: dict[str, int] = {}
        self._hidden: Counter[str] = Counter()
        self.unseen_by_uid: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self.node_by_uid)

    def nominated_pods(self, node_name: str) -> Iterable[PodInfo]:
        """Return the pods that are nominated to a node and not hidden, in the order of the nominations."""
        pods = self._by_node.get(node_name, {})
        if not self._hidden:
            return tuple(pods.values())
        return tuple(pod for uid, pod in pods.items() if uid not in self._hidden)

    def nodes(self) -> Iterable[str]:
        """Return the nodes to which any pod is nominated that is not hidden."""
        if not self._hidden:
            return tuple(self._by_node)
        return tuple(name for name, pods in self._by_node.items() if not pods.keys() <= self._hidden.keys())

    def node_of(self, uid: str) -> str:
        """Return the node to which a pod is nominated, hidden or not; "" for none."""
        return self.node_by_uid.get(uid, "")

    def nomination_of(self, uid: str) -> PodInfo | None:
        """The nominated pod of this UID with the priority by which it counts; None if it is not nominated."""
        node_name = self.node_by_uid.get(uid)
        return None if node_name is None else self._by_node[node_name][uid]

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a pod to a node; an earlier nomination of the pod is replaced."""
        self.withdraw(pod.uid)
        priority = self._group_priority(pod.uid)
        if priority is not None and priority != pod.priority:
            pod = copy.copy(pod)
            pod.priority = priority
        self.version += 1
        self.node_by_uid[pod.uid] = node_name
        self.made_at[pod.uid] = self.version
        self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def withdraw(self, uid: str) -> None:
        node_name = self.node_by_uid.pop(uid, None)
        if node_name is None:
            return
        self.version += 1
        del self.made_at[uid]
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]

    @contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """Hide the nominations of some pods for a block, nominations made inside it included.

        The block may await: nominations that are made or withdrawn meanwhile, of whatever pod, outlast it.
        """
        hidden = tuple(uids)
        self._hidden.update(hidden)
        try:
            yield
        finally:
            self._hidden -= Counter(hidden)

    @contextmanager
    def hypothetical(self) -> Iterator[None]:
        """Take back all changes of nominations that a block makes; it must not await."""
        version, nodes, made_at = self.version, dict(self.node_by_uid), dict(self.made_at)
        by_node = {name: dict(pods) for name, pods in self._by_node.items()}
        try:
            yield
        finally:
            self.version, self.node_by_uid, self.made_at, self._by_node = version, nodes, made_at, by_node

    def remove(self, uid: str) -> None:
        """Withdraw the nomination of a pod that has left the queue, and drop what is stored about it."""
        if uid in self.unseen_by_uid:
            del self.unseen_by_uid[uid]
        if uid in self.node_by_uid:
            self.withdraw(uid)

    def is_unseen(self, uid: str) -> bool:
        """Return whether the watch has not shown the last nomination that was written for a pod."""
        return uid in self.unseen_by_uid

    def written(self, uid: str, node_name: str) -> None:
        """Record that a nomination is written to a pod's status; "" for one that is cleared."""
        unseen = self.unseen_by_uid.setdefault(uid, [])
        if unseen and unseen[-1] == node_name:
            return  # it would displace an earlier one that the watch may still show
        unseen.append(node_name)
        del unseen[:-_MOST_UNSEEN]

    def decide(self, pod: PodInfo, node_name: str | None) -> None:
        """Set the nomination of a pod: ``node_name``, none (""), or the last one that was written or read (None).

        A pod that runs on a node, and waits there for a resize, has no nomination.
        """
        if pod.pod.spec.node_name:
            node_name = ""
        if node_name is None:
            unseen = self.unseen_by_uid.get(pod.uid)
            node_name = pod.pod.status.nominated_node_name if unseen is None else unseen[-1]
        if node_name:
            self.nominate(pod, node_name)
        elif pod.uid in self.node_by_uid:
            self.withdraw(pod.uid)

    def update(self, old: Pod, pod: PodInfo) -> None:
        """Take the nomination of an updated pod from its status, unless the status is stale or has never had one."""
        node_name = self.node_of(pod.uid)
        before, now = old.status.nominated_node_name, pod.pod.status.nominated_node_name
        if self._is_stale(pod.uid, now, is_changed=now != before) or (node_name and not before and not now):
            if node_name:
                self.nominate(pod, node_name)
        else:
            self.decide(pod, None)

    def _is_stale(self, uid: str, now: str, *, is_changed: bool) -> bool:
        """Return whether a status shows an earlier nomination than the last one that was written.

        Writes may be merged or dropped before they are sent, so an unchanged status that shows the last nomination
        proves nothing, but drops one of the earlier ones.
        """
        unseen = self.unseen_by_uid.get(uid)
        if unseen is None:
            return False
        if now == unseen[-1]:
            if is_changed or len(unseen) == 1:
                del self.unseen_by_uid[uid]
                return False
            del unseen[0]
            return True
        if not is_changed:
            return True
        if now in unseen:
            del unseen[: unseen.index(now) + 1]
            return True
        # Another client has changed the nomination since.
        del self.unseen_by_uid[uid]
        return False
