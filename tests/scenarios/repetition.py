"""Finds differences between two schedulers that persist when a drawn scenario is run again.

A single difference may be chance: one of several equal nodes is chosen at random, and a retry sees only the events that
have happened by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.scenarios.scenario_runner import Outcome

Run = Sequence[Outcome]
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


def persistent_difference(reference: Sequence[Run], ours: Sequence[Run]) -> Difference | None:
    """Find the first step at which no run of one scheduler equals any run of the other.

    Event notes are compared separately: a note counts when all runs of one scheduler have it and no run of the other
    does. A note that only Bayplan has does not count if kube-scheduler merged events of that pod and reason, because a
    merged event keeps the first note only.

    Args:
        reference: What kube-scheduler did, each time.
        ours: What Bayplan did, each time.

    Returns:
        The step; None if there is none.
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


def _always(readings: Sequence[Outcome]) -> set[tuple[str, ...]]:
    return set.intersection(*(set(one.events) for one in readings))


def _ever(readings: Sequence[Outcome]) -> set[tuple[str, ...]]:
    return {event for one in readings for event in one.events}


def renamed(course: Run, old: str, new: str) -> list[Outcome]:
    """Return a run as it would be under another name of its scenario: messages contain namespace and volume names.

    Args:
        course: What was done.
        old: Name of the scenario that was run.
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
