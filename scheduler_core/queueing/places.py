"""The places of the queue, with what is counted of them.

Owns where each pod is: a pod knows its place, and only here it is changed, so that it is in one. Counts are kept as
pods move, since whoever shows them must not walk the queue. Must not know why a pod moves.

The counts follow kube-scheduler v1.36.3 (``scheduler_queue_incoming_pods_total``, ``scheduler_unschedulable_pods``),
but that a pod which is deleted while it is active or backs off is no longer counted as unschedulable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.queueing.heap import PodHeap

# Bound to names, because looking a member up in an enum is slow.
_IN_FLIGHT, _NOWHERE = Place.IN_FLIGHT, Place.NOWHERE
_ORDERED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_WAITING = (*_ORDERED, Place.UNSCHEDULABLE, Place.GATED)
_COUNTED_AS = ("active", "backoff", "backoff", "unschedulable", "unschedulable")
"""What the metric of incoming pods calls the places where pods wait; gated ones are among the unschedulable."""


class _PodSet(dict[str, QueuedPod]):
    """Pods by UID where no order matters, with the methods of a heap."""

    __slots__ = ()

    def remove(self, uid: str) -> QueuedPod | None:
        return self.pop(uid, None)

    def all(self) -> Iterable[QueuedPod]:
        return self.values()


class QueueCounts(Struct):
    """How many pods of one profile are where."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0

    @property
    def pending(self) -> int:
        """All of them."""
        return self.active + self.backoff + self.unschedulable + self.gated


class Places:
    """Every pod that the queue knows, by place and by UID.

    Attributes:
        incoming: Pods that came into a queue, by the event's label and "active", "backoff" or "unschedulable".
    """

    def __init__(self) -> None:
        self.incoming: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._pods: dict[str, QueuedPod] = {}
        self._heaps = tuple(PodHeap() for _ in _ORDERED)
        self._sets = tuple(_PodSet() for _ in Place)
        self._flying = self._sets[_IN_FLIGHT]
        self._stores: tuple[PodHeap | _PodSet, ...] = (*self._heaps, *self._sets[len(_ORDERED) :])
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(Place))
        self._blamed: dict[tuple[str, str], int] = {}

    # -- moving -------------------------------------------------------------------------------------------------

    def welcome(self, pod: QueuedPod) -> None:
        """A pod is new; it is to be put somewhere."""
        self._pods[pod.uid] = pod

    def drop(self, pod: QueuedPod) -> None:
        """A pod leaves the queue."""
        self.take(pod)
        del self._pods[pod.uid]
        if pod.profile in self._counts and not any(self._counts[pod.profile]):
            # Pods may name any profile.
            del self._counts[pod.profile]

    def rank(self, pod: QueuedPod, place: Place, key: Any) -> None:
        """Put a pod that is nowhere into a queue that is ordered by ``key``, lowest first."""
        self._heaps[place].push(key, pod)
        pod.place = place
        self._counts[pod.profile][place] += 1

    def hold(self, pod: QueuedPod, place: Place) -> None:
        """Put a pod that is nowhere, and of which no attempt begins, where no order matters."""
        self._sets[place][pod.uid] = pod
        pod.place = place
        self._counts[pod.profile][place] += 1

    def take(self, pod: QueuedPod) -> None:
        """Take a pod out of its place, to be put elsewhere; nothing if it is nowhere."""
        place = pod.place
        if place is _IN_FLIGHT:
            del self._flying[pod.uid]
            pod.place = _NOWHERE
        elif place is not _NOWHERE:
            self._stores[place].remove(pod.uid)
            self._leave(pod, place)

    def fly(self, pod: QueuedPod) -> None:
        """An attempt of a pod that is nowhere begins."""
        self._flying[pod.uid] = pod
        pod.place = _IN_FLIGHT

    def take_first(self, place: Place) -> QueuedPod | None:
        """Take out the pod that is first in an ordered queue; None when it is empty."""
        pod = self._heaps[place].pop()
        if pod is not None:
            self._leave(pod, place)
        return pod

    def _leave(self, pod: QueuedPod, place: Place) -> None:
        pod.place = _NOWHERE
        self._counts[pod.profile][place] -= 1

    # -- counting -----------------------------------------------------------------------------------------------

    def count_incoming(self, label: str, place: Place) -> None:
        """A pod came to a place where pods wait, by the event of this label."""
        self.incoming[label, _COUNTED_AS[place]] += 1

    def blame(self, pod: QueuedPod, plugins: Iterable[str]) -> None:
        """These plugins are why a pod waits."""
        for plugin in plugins:
            key = plugin, pod.profile
            self._blamed[key] = self._blamed.get(key, 0) + 1

    def absolve(self, pod: QueuedPod) -> None:
        """Nobody is to blame any more, since the pod is tried again or gone."""
        for plugin in pod.rejected_by:
            self._blamed[plugin, pod.profile] -= 1

    def forget_profile(self, profile: str) -> None:
        """Drop the zeros of plugins of a profile that is not live any more."""
        for key in [key for key, count in self._blamed.items() if key[1] == profile and not count]:
            del self._blamed[key]

    @property
    def unschedulable_by(self) -> dict[tuple[str, str], int]:
        """How many waiting pods a plugin rejected, by plugin and profile; 0 for those that once did."""
        return dict(sorted(self._blamed.items()))

    def counts(self) -> dict[str, QueueCounts]:
        """Counts by profile; a profile without waiting pods is left out."""
        found: dict[str, QueueCounts] = {}
        for profile, counts in self._counts.items():
            active, backoff, errors, unschedulable, gated = (counts[place] for place in _WAITING)
            of_profile = QueueCounts(active, backoff + errors, unschedulable, gated)
            if of_profile.pending:
                found[profile] = of_profile
        return found

    # -- looking ------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> QueuedPod | None:
        """The pod of this UID, None if the queue does not know it."""
        return self._pods.get(uid)

    def size(self, place: Place) -> int:
        """How many pods are there."""
        return len(self._stores[place])

    def pods(self, *places: Place) -> Iterator[QueuedPod]:
        """The pods of some places, in order of their coming there; move none while iterating."""
        for place in places:
            yield from self._stores[place].all()

    def lowest_key(self, place: Place) -> Any:
        """The key of the pod that is first in an ordered queue; None when it is empty."""
        return self._heaps[place].lowest_key()

    def waiting(self) -> Iterator[QueuedPod]:
        """Every pod that waits for a live profile."""
        return self.pods(*_WAITING)

    def waiting_count(self) -> int:
        """How many pods wait for a live profile."""
        return sum(map(self.size, _WAITING))
