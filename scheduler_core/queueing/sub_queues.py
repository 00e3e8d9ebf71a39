"""The places of the queue, with their counts.

Only this module changes the place of a pod, so a pod is in exactly one. Counts are updated on every move, so that
metrics need not iterate over the queue.

The counts follow kube-scheduler v1.37.1 (``scheduler_queue_incoming_pods_total``,
``scheduler_queue_incoming_entities_total``, ``scheduler_unschedulable_pods``), except that a pod deleted while it is
active or in backoff no longer counts as unschedulable.
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
_NONE: frozenset[str] = frozenset()
_ORDERED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_WAITING = (*_ORDERED, Place.UNSCHEDULABLE, Place.GATED)
_COUNTED_AS = ("active", "backoff", "backoff", "unschedulable", "unschedulable")
"""Names of these places in the metric of incoming pods; gated pods count as unschedulable."""


class _PodSet(dict[str, QueuedPod]):
    """Unordered pods by UID, with the methods of a heap."""

    __slots__ = ()

    def remove(self, uid: str) -> QueuedPod | None:
        return self.pop(uid, None)

    def all(self) -> Iterable[QueuedPod]:
        return self.values()


class QueueCounts(Struct):
    """Number of pods of one profile by place."""

    active: int = 0
    backoff: int = 0
    unschedulable: int = 0
    gated: int = 0

    @property
    def pending(self) -> int:
        """Sum of all places."""
        return self.active + self.backoff + self.unschedulable + self.gated


class Places:
    """All pods of the queue, by place and by UID.

    Attributes:
        incoming: Pods that came into a queue, by the event's label and "active", "backoff" or "unschedulable".
        incoming_entities: The same for pods without a gang ("pod") and gangs ("podgroup"), the third part of the key.
    """

    def __init__(self) -> None:
        self.incoming: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.incoming_entities: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._pods: dict[str, QueuedPod] = {}
        self._heaps = tuple(PodHeap() for _ in _ORDERED)
        self._sets = tuple(_PodSet() for _ in Place)
        self._in_flight = self._sets[_IN_FLIGHT]
        self._stores: tuple[PodHeap | _PodSet, ...] = (*self._heaps, *self._sets[len(_ORDERED) :])
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(Place))
        self._rejections: dict[tuple[str, str], int] = {}

    # -- moving -------------------------------------------------------------------------------------------------

    def register(self, pod: QueuedPod) -> None:
        """Add a new pod, which is in no place yet."""
        self._pods[pod.uid] = pod

    def drop(self, pod: QueuedPod) -> None:
        """Remove a pod from the queue; its rejections no longer count."""
        self.take(pod)
        if pod.counted_rejections:
            self._count_rejections(pod, _NONE)
        del self._pods[pod.uid]
        if pod.profile in self._counts and not any(self._counts[pod.profile]):
            # Pods may name any profile.
            del self._counts[pod.profile]

    def rank(self, pod: QueuedPod, place: Place, key: Any) -> None:
        """Add a pod that is in no place to an ordered queue, lowest ``key`` first."""
        self._heaps[place].push(key, pod)
        pod.place = place
        self._counts[pod.profile][place] += 1

    def put(self, pod: QueuedPod, place: Place) -> None:
        """Add a pod that is in no place to an unordered place, except in flight."""
        self._sets[place][pod.uid] = pod
        pod.place = place
        self._counts[pod.profile][place] += 1

    def take(self, pod: QueuedPod) -> None:
        """Remove a pod from its place before it is moved; no effect if it is in no place."""
        place = pod.place
        if place is _IN_FLIGHT:
            del self._in_flight[pod.uid]
            pod.place = _NOWHERE
        elif place is not _NOWHERE:
            self._stores[place].remove(pod.uid)
            self._count_left(pod, place)

    def begin_attempt(self, pod: QueuedPod) -> None:
        """Mark a pod that is in no place as in flight."""
        self._in_flight[pod.uid] = pod
        pod.place = _IN_FLIGHT

    def take_first(self, place: Place) -> QueuedPod | None:
        """Remove and return the first pod of an ordered queue; None if it is empty."""
        pod = self._heaps[place].pop()
        if pod is not None:
            self._count_left(pod, place)
        return pod

    def _count_left(self, pod: QueuedPod, place: Place) -> None:
        pod.place = _NOWHERE
        self._counts[pod.profile][place] -= 1

    # -- counting -----------------------------------------------------------------------------------------------

    def count_incoming(self, pod: QueuedPod, label: str, place: Place) -> None:
        """Count a pod or gang that an event moved to a place where pods wait."""
        queue = _COUNTED_AS[place]
        self.incoming[label, queue] += pod.size
        self.incoming_entities[label, queue, pod.entity] += 1

    def count_rejections(self, pod: QueuedPod) -> None:
        """Count the plugins that rejected a waiting pod, until its rejections are cleared or it is dropped."""
        # A mutable set would change what is counted when the pod is rejected by another plugin.
        self._count_rejections(pod, frozenset(pod.rejected_by))

    def clear_rejections(self, pod: QueuedPod) -> None:
        """Clear the plugins that rejected a pod, because it is tried again."""
        pod.rejected_by = pod.pending_on = _NONE
        self._count_rejections(pod, _NONE)

    def _count_rejections(self, pod: QueuedPod, plugins: frozenset[str]) -> None:
        # What a pod counts for is stored with the pod, so that a pod cannot leave the queue and still count.
        counted, pod.counted_rejections = pod.counted_rejections, plugins
        if counted == plugins:
            return
        for plugin in counted - plugins:
            self._rejections[plugin, pod.profile] -= 1
        for plugin in plugins - counted:
            key = plugin, pod.profile
            self._rejections[key] = self._rejections.get(key, 0) + 1

    def drop_profile(self, profile: str) -> None:
        """Drop the zero counts of a profile that is not live any more."""
        for key in [key for key, count in self._rejections.items() if key[1] == profile and not count]:
            del self._rejections[key]

    @property
    def unschedulable_by(self) -> dict[tuple[str, str], int]:
        """Number of waiting pods that a plugin rejected, by plugin and profile; 0 if it rejected pods before."""
        return dict(sorted(self._rejections.items()))

    def counts(self) -> dict[str, QueueCounts]:
        """Return counts by profile, without profiles that have no waiting pods."""
        found: dict[str, QueueCounts] = {}
        for profile, counts in self._counts.items():
            active, backoff, errors, unschedulable, gated = (counts[place] for place in _WAITING)
            of_profile = QueueCounts(active, backoff + errors, unschedulable, gated)
            if of_profile.pending:
                found[profile] = of_profile
        return found

    # -- looking ------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> QueuedPod | None:
        """Return the pod of a UID; None if it is not in the queue."""
        return self._pods.get(uid)

    def size(self, place: Place) -> int:
        """Return the number of pods in a place."""
        return len(self._stores[place])

    def pods(self, *places: Place) -> Iterator[QueuedPod]:
        """Yield the pods of some places, in order of arrival; move none while iterating."""
        for place in places:
            yield from self._stores[place].all()

    def lowest_key(self, place: Place) -> Any:
        """Return the lowest key of an ordered queue; None if it is empty."""
        return self._heaps[place].lowest_key()

    def waiting(self) -> Iterator[QueuedPod]:
        """Return all pods that wait and whose profile is live."""
        return self.pods(*_WAITING)

    def waiting_count(self) -> int:
        """Return the number of pods that wait and whose profile is live."""
        return sum(map(self.size, _WAITING))
