"""Read access to the queue for status, metrics and explanations.

Iteration is not in queue order. The members of a gang are listed in the place of the gang's entry; members without a
quorum count as gated.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.queueing.event_wakeups import EventWakeups
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.in_flight_events import InFlightEvents
from scheduler_core.queueing.sub_queues import Places, QueueCounts

_GATED = Place.GATED.label
_QUEUES = ("active", "backoff", "unschedulable", "gated")
_COUNTED_AS = {Place.ERROR_BACKOFF.label: "backoff", Place.IN_FLIGHT.label: "active"}


class QueueReadings:
    """The contents of the scheduling queue, for reading.

    Args:
        gangs: All gangs.
        places: The places of the pods.
        in_flight: The attempts whose events are recorded.
        wakeups: Evaluates events for waiting pods.
    """

    def __init__(self, gangs: Gangs, places: Places, in_flight: InFlightEvents, wakeups: EventWakeups) -> None:
        self._gangs = gangs
        self._places = places
        self._in_flight = in_flight
        self._wakeups = wakeups

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield all pods that wait and whose profile is live, without those in flight."""
        for pod in self._places.waiting():
            if type(pod) is not QueuedGang:
                yield pod
        yield from self._places.pods(Place.GROUPED)

    def __len__(self) -> int:
        return self._places.waiting_count() + sum(map(_members_more, self._gangs.units()))

    def places(self) -> Iterator[tuple[str, QueuedPod]]:
        """Yield every pod with the name of its place, such as ``errorBackoff``; move none while iterating."""
        for place in Place:
            if place is not Place.NOWHERE:
                for pod in self._places.pods(place):
                    if place is Place.GROUPED:
                        yield self._place_of_gang(pod), pod
                    elif type(pod) is not QueuedGang:
                        yield place.label, pod

    def _place_of_gang(self, pod: QueuedPod) -> str:
        gang = None if pod.group is None else self._gangs.get(pod.group)
        entry = None if gang is None else gang.unit.entry
        return _GATED if entry is None or entry.place is Place.NOWHERE else entry.place.label

    @property
    def parked_count(self) -> int:
        """Number of pods whose profile is not live."""
        return self._places.size(Place.PARKED)

    @property
    def is_idle(self) -> bool:
        """Whether no pod can be tried before a backoff ends or an event occurs."""
        if self._wakeups.has_pending:
            return False
        return not any(map(self._places.size, (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)))

    @property
    def in_flight_count(self) -> int:
        """Number of pods in flight."""
        return self._places.size(Place.IN_FLIGHT)

    def counts(self) -> dict[str, QueueCounts]:
        """Return counts by profile."""
        counts = self._places.counts()
        for gang in self._gangs.units():
            if gang.waiting:
                first = next(iter(gang.waiting.values()))
                of_profile = counts.setdefault(first.profile, QueueCounts())
                place = self._place_of_gang(first)
                name = _COUNTED_AS.get(place, place)
                setattr(of_profile, name, getattr(of_profile, name) + _members_more(gang))
        return counts

    def entities(self) -> dict[tuple[str, str], int]:
        """Return the number of queued pods without a gang and of queued gangs, by queue and "pod" or "podgroup"."""
        found = {(queue, kind.entity): 0 for queue in _QUEUES for kind in (QueuedPod, QueuedGang)}
        for counts in self._places.counts().values():
            for queue in _QUEUES:
                found[queue, QueuedPod.entity] += getattr(counts, queue)
        for gang in self._gangs.units():
            place = None if gang.entry is None else gang.entry.place
            queue = "" if place is None else _COUNTED_AS.get(place.label, place.label)
            if queue in _QUEUES and place is not Place.IN_FLIGHT:
                found[queue, QueuedPod.entity] -= 1
                found[queue, QueuedGang.entity] += 1
        return found

    @property
    def incoming(self) -> dict[tuple[str, str], int]:
        """Pods that entered a queue, by event label and "active", "backoff" or "unschedulable"."""
        return self._places.incoming

    @property
    def incoming_entities(self) -> dict[tuple[str, str, str], int]:
        """The same for pods without a gang ("pod") and for gangs ("podgroup"), the third part of the key."""
        return self._places.incoming_entities

    @property
    def unschedulable_by(self) -> dict[tuple[str, str], int]:
        """Number of waiting pods that a plugin rejected, by plugin and profile."""
        return self._places.unschedulable_by

    def in_flight_events(self) -> dict[str, int]:
        """Return the number of events recorded for in-flight pods by label, and of these pods as ``PodPopped``."""
        return self._in_flight.counts()


def _members_more(gang: Gang) -> int:
    """Return the number of waiting members, less 1 if an entry in the queue counts already."""
    entry = gang.entry
    is_counted = entry is not None and entry.place not in (Place.NOWHERE, Place.IN_FLIGHT, Place.PARKED)
    return len(gang.waiting) - is_counted
