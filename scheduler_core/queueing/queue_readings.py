"""What the queue tells of itself: who waits where, and how many.

Owns the readings and changes nothing. Must not be used where the order of pods matters. A gang is told as its members,
each in the place of the entry that stands for them; whose quorum is missing counts as gated.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.queueing.gang import Gang
from scheduler_core.queueing.gangs import Gangs
from scheduler_core.queueing.in_flight import InFlight
from scheduler_core.queueing.places import Places, QueueCounts

_GATED = Place.GATED.label
_COUNTED_AS = {Place.ERROR_BACKOFF.label: "backoff", Place.IN_FLIGHT.label: "active"}


class QueueReadings:
    """The part of the queue that is read by status, metrics and explanation.

    Attributes:
        gangs: All gangs, those that wait and those that are placed.
    """

    gangs: Gangs
    _places: Places
    _in_flight: InFlight

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[QueuedPod]:
        """Every pod that waits for a live profile; those in flight and those parked are left out."""
        for pod in self._places.waiting():
            if type(pod) is not QueuedGang:
                yield pod
        yield from self._places.pods(Place.GROUPED)

    def __len__(self) -> int:
        return self._places.waiting_count() + sum(map(_members_more, self.gangs))

    def places(self) -> Iterator[tuple[str, QueuedPod]]:
        """Every pod with the name of its place, such as ``errorBackoff``, place by place; move none while iterating."""
        for place in Place:
            if place is not Place.NOWHERE:
                for pod in self._places.pods(place):
                    if place is Place.GROUPED:
                        yield self._place_of_gang(pod), pod
                    elif type(pod) is not QueuedGang:
                        yield place.label, pod

    def _place_of_gang(self, pod: QueuedPod) -> str:
        gang = None if pod.group is None else self.gangs.get(pod.group)
        entry = None if gang is None else gang.entry
        return _GATED if entry is None or entry.place is Place.NOWHERE else entry.place.label

    @property
    def parked_count(self) -> int:
        """Pods whose profile is not live."""
        return self._places.size(Place.PARKED)

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be tried before time passes or something happens."""
        return not any(map(self._places.size, (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)))

    @property
    def in_flight_count(self) -> int:
        """Attempts under way."""
        return self._places.size(Place.IN_FLIGHT)

    def counts(self) -> dict[str, QueueCounts]:
        """Counts by profile."""
        counts = self._places.counts()
        for gang in self.gangs:
            if gang.waiting:
                first = next(iter(gang.waiting.values()))
                of_profile = counts.setdefault(first.profile, QueueCounts())
                place = self._place_of_gang(first)
                name = _COUNTED_AS.get(place, place)
                setattr(of_profile, name, getattr(of_profile, name) + _members_more(gang))
        return counts

    @property
    def incoming(self) -> dict[tuple[str, str], int]:
        """Pods that came into a queue, by the event's label and "active", "backoff" or "unschedulable"."""
        return self._places.incoming

    @property
    def unschedulable_by(self) -> dict[tuple[str, str], int]:
        """How many waiting pods a plugin rejected, by plugin and profile."""
        return self._places.unschedulable_by

    def in_flight_events(self) -> dict[str, int]:
        """Events kept for attempts under way, by label, and these attempts as ``PodPopped``."""
        return self._in_flight.counts()


def _members_more(gang: Gang) -> int:
    """How many more members wait than entries stand for them."""
    entry = gang.entry
    is_counted = entry is not None and entry.place not in (Place.NOWHERE, Place.IN_FLIGHT, Place.PARKED)
    return len(gang.waiting) - is_counted
