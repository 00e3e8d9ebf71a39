"""Numbers of waiting pods by what they wait for, as their conditions report it; autoscalers act on the reason.

Single pods are counted by their place, gangs by the result of their last attempt, so that a scrape iterates over gangs,
gated pods and nominations, but not over the other pods of the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter

from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.sub_queues import Places

SCHEDULER_ERROR = "SchedulerError"
"""Reason of the conditions of pods whose attempt met an error."""
NO_NODE_HELPS = "NoNodeHelps"
"""Reason of the conditions of members of a gang that new nodes cannot help; kube-scheduler has no such reason."""


class WaitingFor(StrEnum):
    """What a pod waits for."""

    ATTEMPT = "attempt"
    """It is attempted now or next."""
    ROOM = "room"
    """It is Unschedulable: room on a node, or a new node."""
    PREEMPTION = "preemption"
    """The end of victims on its nominated node."""
    OTHER_THAN_NODES = "other_than_nodes"
    """Its gang does not fit, and no new node helps."""
    ERROR = "error"
    """The end of its backoff after an error."""
    QUORUM = "quorum"
    """Further members of its gang."""
    GATED_MEMBER = "gated_member"
    """A gated member of its gang."""
    GATE = "gate"
    """A PreEnqueue plugin gates it, or its PodGroup is not known."""


_OF_PLACE = {
    Place.ACTIVE: WaitingFor.ATTEMPT,
    Place.IN_FLIGHT: WaitingFor.ATTEMPT,
    Place.BACKOFF: WaitingFor.ROOM,
    Place.UNSCHEDULABLE: WaitingFor.ROOM,
    Place.ERROR_BACKOFF: WaitingFor.ROOM,
}
_OF_REASON = {NO_NODE_HELPS: WaitingFor.OTHER_THAN_NODES, SCHEDULER_ERROR: WaitingFor.ERROR}


def waiting_causes(places: Places, gangs: Gangs, nominated: Iterable[str]) -> Counter[tuple[WaitingFor, str]]:
    """Return the number of waiting pods by what they wait for, without those whose profile is not live.

    Args:
        nominated: UIDs of the pods with a nominated node.

    Returns:
        Numbers by cause and the plugin that gates the pods; the plugin is "" for other causes.
    """
    found = Counter[tuple[WaitingFor, str]]()
    found.update({(each, ""): 0 for each in WaitingFor if each is not WaitingFor.GATE})
    for place, cause in _OF_PLACE.items():
        found[cause, ""] += places.size(place)
    # Without any node, pods have this backoff, too.
    errors = sum(
        _reason(pod) == SCHEDULER_ERROR for pod in places.pods(Place.ERROR_BACKOFF) if type(pod) is not QueuedGang
    )
    found[WaitingFor.ROOM, ""] -= errors
    found[WaitingFor.ERROR, ""] += errors
    for plugin, count in Counter(map(attrgetter("gated_by"), places.gated.values())).items():
        found[WaitingFor.GATE, plugin] += count
    for gang in gangs.units():
        entry = None if gang.entry is None else _OF_PLACE.get(gang.entry.place)
        if entry is not None:
            # The entry is in its place as one pod.
            found[entry, ""] -= 1
        if gang.waiting and (gang.entry is None or gang.entry.place is not Place.PARKED):
            found[_of_gang(gang), ""] += len(gang.waiting)
    for uid in nominated:
        pod = places.find(uid)
        if pod is None:
            continue
        gang_of_pod = gangs.of_uid(uid) if pod.place is Place.GROUPED else None
        waits_for = _OF_PLACE.get(pod.place) if gang_of_pod is None else _of_gang(gang_of_pod.unit)
        if pod.place is Place.ERROR_BACKOFF and _reason(pod) == SCHEDULER_ERROR:
            # Counted as an error above: an error of the scheduler itself keeps the nomination.
            continue
        if waits_for is WaitingFor.ROOM:
            found[WaitingFor.ROOM, ""] -= 1
            found[WaitingFor.PREEMPTION, ""] += 1
    return found


def _of_gang(gang: Gang) -> WaitingFor:
    cause = None if gang.entry is None else _OF_PLACE.get(gang.entry.place)
    if cause is None:
        return WaitingFor.GATED_MEMBER if gang.is_held else WaitingFor.QUORUM
    if cause is WaitingFor.ROOM and gang.waiting:
        # All members have the condition of the last attempt.
        return _OF_REASON.get(_reason(next(iter(gang.waiting.values()))), cause)
    return cause


def _reason(pod: QueuedPod) -> str:
    """Return the reason of a pod's condition, which another process may have written."""
    written = pod.reported_condition
    return pod.info.pod.unscheduled_reason if written is None else written.reason
