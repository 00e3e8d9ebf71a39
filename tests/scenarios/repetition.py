"""Finds differences between two schedulers that persist when a random scenario is run again.

A difference in one run may be chance: a scheduler picks one of several nodes with equal scores at random, and a retry
depends on the events that have arrived by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.scenarios.scenario_runner import Outcome

Run = Sequence[Outcome]
"""Outcome of each step on one scheduler."""


@dataclass(frozen=True, slots=True)
class Difference:
    """First step at which two schedulers differ in every run.

    Attributes:
        step: Index of the step.
        what: Descriptions of the differences.
    """

    step: int
    what: tuple[str, ...]


def persistent_difference(reference: Sequence[Run], ours: Sequence[Run]) -> Difference | None:
    """Find the first step at which no run of one scheduler equals any run of the other.

    Events are compared separately: an event counts as a difference if all runs of one scheduler have it and no run of
    the other does. An event that only Bayplan has does not count if kube-scheduler merged events of that pod and
    reason, because a merged event keeps only the first note.

    Args:
        reference: Runs of kube-scheduler.
        ours: Runs of Bayplan.

    Returns:
        The difference at that step; None if there is none.
    """
    for step in range(len(reference[0])):
        its, mine = [run[step] for run in reference], [run[step] for run in ours]
        if not any(one.pods == other.pods and one.gone == other.gone for one in its for other in mine):
            return Difference(step, tuple(its[0].differences(mine[0])))
        only_its = _always(its) - _ever(mine)
        repeated = frozenset().union(*(one.repeated for one in its))
        only_mine = {event for event in _always(mine) - _ever(its) if (event[0], event[2]) not in repeated}
        if only_its or only_mine:
            what = [f"event only in the first: {event}" for event in sorted(only_its)]
            return Difference(step, (*what, *(f"event only in the second: {event}" for event in sorted(only_mine))))
    return None


def _always(outcomes: Sequence[Outcome]) -> set[tuple[str, ...]]:
    return set.intersection(*(set(one.events) for one in outcomes))


def _ever(outcomes: Sequence[Outcome]) -> set[tuple[str, ...]]:
    return {event for one in outcomes for event in one.events}


def renamed(run: Run, old: str, new: str) -> list[Outcome]:
    """Return a run with another scenario name in its messages, which contain names of the namespace and of volumes.

    Args:
        new: Name that replaces it.
    """

    def replaced(of: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(text.replace(old, new) for text in of)

    found = []
    for outcome in run:
        pods = {}
        for name, pod in outcome.pods.items():
            status, reason, message = pod.scheduled
            pods[name] = replace(pod, scheduled=(status, reason, message.replace(old, new)))
        found.append(replace(outcome, pods=pods, events=tuple(sorted(replaced(event) for event in outcome.events))))
    return found
