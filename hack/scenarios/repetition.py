"""Differences between two schedulers that last when a drawn scenario is played again.

Owns what counts as chance. It must not play. Why a difference is not simply believed: a node among equals is drawn by
lot, and a retry sees as much of the world as had happened by then; what no repetition brings forth is neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hack.scenarios.stage import Reading

Course = Sequence[Reading]
"""What one scheduler did, step by step."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A step at which two schedulers never agree.

    Attributes:
        step: Which; all before it agree.
        what: In what they differ.
    """

    step: int
    what: tuple[str, ...]


def lasting_difference(reference: Sequence[Course], ours: Sequence[Course]) -> Difference | None:
    """Find the first step at which no course of one is like any course of the other.

    Notes of events are compared apart from the rest: one counts when all courses of one scheduler have it and no course
    of the other does. One that only Bayplan has does not count where kube-scheduler merged events of that pod and
    reason, since a merged event keeps the first note only.

    Args:
        reference: What kube-scheduler did, each time.
        ours: What Bayplan did, each time.

    Returns:
        The step; None when there is none.
    """
    for step in range(len(reference[0])):
        its, mine = [course[step] for course in reference], [course[step] for course in ours]
        if not any(one.pods == other.pods and one.gone == other.gone for one in its for other in mine):
            return Difference(step, tuple(its[0].differences(mine[0])))
        only_its = _always(its) - _ever(mine)
        repeated = frozenset().union(*(one.repeated for one in its))
        only_mine = {event for event in _always(mine) - _ever(its) if (event[0], event[2]) not in repeated}
        if only_its or only_mine:
            what = [f"event only in the first: {event}" for event in sorted(only_its)]
            return Difference(step, (*what, *(f"event only in the second: {event}" for event in sorted(only_mine))))
    return None


def _always(readings: Sequence[Reading]) -> set[tuple[str, ...]]:
    return set.intersection(*(set(one.events) for one in readings))


def _ever(readings: Sequence[Reading]) -> set[tuple[str, ...]]:
    return {event for one in readings for event in one.events}


def renamed(course: Course, old: str, new: str) -> list[Reading]:
    """Give a course as it would be under another name of its scenario: messages mention namespace and volumes.

    Args:
        course: What was done.
        old: Name of the scenario that was played.
        new: The name to write instead.
    """

    def texts(of: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.replace(old, new) for text in of)

    found = []
    for reading in course:
        pods = {}
        for name, pod in reading.pods.items():
            status, reason, message = pod.scheduled
            pods[name] = replace(pod, scheduled=(status, reason, message.replace(old, new)))
        found.append(replace(reading, pods=pods, events=tuple(sorted(texts(event) for event in reading.events))))
    return found
