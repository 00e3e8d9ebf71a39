"""The places of the queue, with their counts; and comparable forms of the keys of third-party QueueSort plugins.

A key may be any value, and an exception in the middle of a heap operation would lose pods. So each part of a key is
stored with the rank of its kind. The order is total, and it is that of the plugin wherever the values compare.

Only this module changes the place of a pod, so a pod is in exactly one.

The counts follow kube-scheduler v1.37.1 (``scheduler_queue_incoming_pods_total``,
``scheduler_queue_incoming_entities_total``, ``scheduler_unschedulable_pods``), except that a pod deleted while it is
active or in backoff no longer counts as unschedulable.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec import Struct

from scheduler_core.framework.queued_pod import Place, QueuedPod

# Parts of one kind are ordered as the plugin's values are, and parts of different kinds, such as a label's value and
# None for a missing label, by these ranks. Missing and unordered values (None, NaN) come last, so they move no pod
# forward.
_NUMBER, _TEXT, _BYTES, _TUPLE, _LIST, _NAIVE_TIME, _TIME, _OTHER, _NO_PART, _UNORDERED = range(10)
_ODD = (_NO_PART, _UNORDERED)
_NUMBERS = (int, float, Decimal, Fraction, np.integer, np.floating)
_KIND_NAMES = {_NO_PART: "None", _UNORDERED: "NaN"}

Part = tuple[Any, ...]
"""Rank of a value's kind, then the value in comparable form."""


class _Guarded:
    """A value of another type: a comparison that raises makes it equal to the other value."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Guarded) and _holds(lambda: self.value == other.value, otherwise=True)

    def __lt__(self, other: _Guarded) -> bool:
        return _holds(lambda: self.value < other.value, otherwise=False)  # type: ignore[operator]  # may be ordered

    __hash__ = None  # type: ignore[assignment]  # equality is not an equivalence


def _holds(compare: Callable[[], object], *, otherwise: bool) -> bool:
    try:
        return bool(compare())
    except Exception:
        return otherwise


class SortKeys:
    """The keys of one QueueSort plugin.

    Attributes:
        reference: The key with which later keys are compared to find those that do not compare; None before the first.
    """

    __slots__ = ("reference",)

    def __init__(self) -> None:
        self.reference: Part | None = None

    def comparable(self, key: object) -> tuple[Part, str]:
        """Return a key in comparable form, and why the plugin's own key does not compare with others, "" if it does."""
        part = _part(key, 0)
        problem = _unordered(part)
        if self.reference is None:
            self.reference = part
        elif not problem:
            problem, is_odd = _conflict(part, self.reference)
            if problem and not is_odd:
                # The key seen first was the odd one.
                self.reference = part
        return part, problem


_MOST_LEVELS = 8


def _part(value: object, level: int) -> Part:
    kind = type(value)
    if value is None:
        return (_NO_PART,)
    if isinstance(value, _NUMBERS) and _is_ordered_as(kind, _NUMBERS):
        # NumPy's integers do not compare with every number.
        value = value.item() if isinstance(value, np.generic) else value
        return (_NUMBER, value) if _holds(lambda: value == value, otherwise=False) else (_UNORDERED,)  # noqa: PLR0124 - finds NaN
    if isinstance(value, str) and _is_ordered_as(kind, (str,)):
        return _TEXT, str.__str__(value)
    if isinstance(value, bytes) and _is_ordered_as(kind, (bytes,)):
        return _BYTES, bytes(value)
    if isinstance(value, datetime):
        return _NAIVE_TIME if value.tzinfo is None else _TIME, value
    if isinstance(value, tuple | list) and _is_ordered_as(kind, (tuple, list)) and level < _MOST_LEVELS:
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple(_part(each, level + 1) for each in value)
    return _OTHER, f"{kind.__module__}.{kind.__qualname__}", _Guarded(value)


def _is_ordered_as(kind: type, kinds: tuple[type, ...]) -> bool:
    """Return whether a type inherits its order from one of some types, or is a number of NumPy."""
    if issubclass(kind, np.generic):
        return True
    return any(
        getattr(kind, "__lt__", None) is getattr(each, "__lt__", None) for each in kinds if issubclass(kind, each)
    )


def _unordered(part: Part) -> str:
    if part[0] == _UNORDERED:
        return "it contains NaN"
    if part[0] in (_TUPLE, _LIST):
        return next((problem for each in part[1] if (problem := _unordered(each))), "")
    return ""


def _conflict(part: Part, other: Part) -> tuple[str, bool]:
    """Return how a key and another one do not compare, "" if they do; and whether the first one is the odd one."""
    rank = part[0]
    if rank != other[0] or (rank == _OTHER and part[1] != other[1]):
        text = f"it contains {_name(part)} where another pod's key contains {_name(other)}"
        return text, not (other[0] in _ODD and rank not in _ODD)
    if rank in (_TUPLE, _LIST):
        for mine, its in zip(part[1], other[1], strict=False):
            found = _conflict(mine, its)
            if found[0]:
                return found
    if rank == _OTHER:
        mine, its = part[2].value, other[2].value
        if not _holds(lambda: (mine < its, True)[1], otherwise=False):
            return f"comparing it with another pod's key raises: both contain {_name(part)}", True
    return "", False


def _name(part: Part) -> str:
    rank = part[0]
    if rank in _KIND_NAMES:
        return _KIND_NAMES[rank]
    if rank == _OTHER:
        return str(part[1]).removeprefix("builtins.")
    if rank in (_TUPLE, _LIST):
        return "a tuple" if rank == _TUPLE else "a list"
    return type(part[1]).__name__


# Bound to names, because looking a member up in an enum is slow.
_IN_FLIGHT, _NOWHERE = Place.IN_FLIGHT, Place.NOWHERE
_NONE: frozenset[str] = frozenset()
_ORDERED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_WAITING = (*_ORDERED, Place.UNSCHEDULABLE, Place.GATED)
_COUNTED_AS = ("active", "backoff", "backoff", "unschedulable", "unschedulable")
"""Names of these places in the metric of incoming pods; gated pods count as unschedulable."""


_Entry = tuple[Any, int, QueuedPod]


class PodHeap:
    """Heap of pods by key, lowest first; equal keys in order of arrival. The key is fixed when a pod is added."""

    __slots__ = ("_count", "_entries", "_first", "_heap")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._count = self._first = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[QueuedPod]:
        return (entry[2] for entry in self._entries.values())

    def all(self) -> Iterator[QueuedPod]:
        """Return all pods, in order of arrival."""
        return iter(self)

    def push(self, key: Any, pod: QueuedPod) -> None:
        """Add a pod; one of the same UID is replaced."""
        self._count += 1
        entry = (key, self._count, pod)
        heapq.heappush(self._heap, entry)
        self._entries[pod.uid] = entry
        # A removed entry stays in the heap until it reaches the top, or until removed entries outnumber the others.
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [each for each in self._entries.values() if each[1] > self._first]
            heapq.heapify(self._heap)

    def drop_order(self) -> None:
        """Drop the keys of all pods: a pod is found by its UID, but is not the first one until it is added again."""
        self._heap, self._first = [], self._count

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove and return a pod by its UID; None if it is not in the heap."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        if not self._entries:
            # Only removed entries are left; their keys may not be comparable with later ones.
            self._heap.clear()
        return entry[2]

    def lowest_key(self) -> Any:
        """Return the lowest key; None if the heap is empty."""
        heap = self._heap
        while heap and self._entries.get(heap[0][2].uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> QueuedPod | None:
        """Remove and return the pod with the lowest key; None if the heap is empty."""
        heap = self._heap
        while heap:
            entry = heapq.heappop(heap)
            pod = entry[2]
            if self._entries.get(pod.uid) is entry:
                del self._entries[pod.uid]
                return pod
        return None


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
        return self.active + self.backoff + self.unschedulable + self.gated


class Places:
    """All pods of the queue, by place and by UID.

    Attributes:
        incoming: Pods that came into a queue, by the event's label and "active", "backoff" or "unschedulable".
        by_uid: All pods; only for reading.
        unschedulable, gated: The pods in these places; only for reading.
        incoming_entities: The same for pods without a gang ("pod") and gangs ("podgroup"), the third part of the key.
    """

    def __init__(self) -> None:
        self.incoming: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.incoming_entities: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.by_uid: dict[str, QueuedPod] = {}
        self._heaps = tuple(PodHeap() for _ in _ORDERED)
        self._sets = tuple(_PodSet() for _ in Place)
        self._in_flight = self._sets[_IN_FLIGHT]
        self.unschedulable: Mapping[str, QueuedPod] = self._sets[Place.UNSCHEDULABLE]
        self.gated: Mapping[str, QueuedPod] = self._sets[Place.GATED]
        self._stores: tuple[PodHeap | _PodSet, ...] = (*self._heaps, *self._sets[len(_ORDERED) :])
        # Updated on every move, so that metrics need not iterate over the queue.
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(Place))
        self._rejections: dict[tuple[str, str], int] = {}

    # -- moving -------------------------------------------------------------------------------------------------

    def register(self, pod: QueuedPod) -> None:
        """Add a new pod, which is in no place yet."""
        self.by_uid[pod.uid] = pod

    def drop(self, pod: QueuedPod) -> None:
        """Remove a pod from the queue; its rejections no longer count."""
        if pod.place is _IN_FLIGHT:
            del self._in_flight[pod.uid]
            pod.place = _NOWHERE
        else:
            self.take(pod)
        if pod.counted_rejections:
            self._count_rejections(pod, _NONE)
        del self.by_uid[pod.uid]
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
            pod.place = _NOWHERE
            self._counts[pod.profile][place] -= 1

    def begin_attempt(self, pod: QueuedPod) -> None:
        self._in_flight[pod.uid] = pod
        pod.place = _IN_FLIGHT

    def take_first(self, place: Place) -> QueuedPod | None:
        """Remove and return the first pod of an ordered queue; None if it is empty."""
        pod = self._heaps[place].pop()
        if pod is not None:
            pod.place = _NOWHERE
            self._counts[pod.profile][place] -= 1
        return pod

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

    def parked_counts(self) -> dict[str, int]:
        return {profile: counts[Place.PARKED] for profile, counts in self._counts.items() if counts[Place.PARKED]}

    # -- looking ------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> QueuedPod | None:
        return self.by_uid.get(uid)

    def size(self, place: Place) -> int:
        return len(self._stores[place])

    def pods(self, *places: Place) -> Iterator[QueuedPod]:
        """Yield the pods of some places, in order of arrival; move none while iterating."""
        for place in places:
            yield from self._stores[place].all()

    def drop_order(self) -> None:
        """Drop the order of the queues that the QueueSort plugin orders, until each pod is added again."""
        self._heaps[Place.ACTIVE].drop_order()
        self._heaps[Place.BACKOFF].drop_order()

    def lowest_key(self, place: Place) -> Any:
        """Return the lowest key of an ordered queue; None if it is empty."""
        return self._heaps[place].lowest_key()

    def waiting(self) -> Iterator[QueuedPod]:
        """Return all pods that wait and whose profile is live."""
        return self.pods(*_WAITING)

    def waiting_count(self) -> int:
        """Return the number of pods that wait and whose profile is live."""
        return sum(map(self.size, _WAITING))
