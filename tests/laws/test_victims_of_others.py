"""A preemption costs no more because of fields of the possible victims that the preemptor does not read.

The author of one pod, or of PodDisruptionBudgets, would otherwise delay all pods that preempt on the same node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import pytest

from scheduler_core.model.affinity import Affinity, LabelSelector, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import GcePersistentDisk, Pod, RbdVolume, Volume
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from tests.support.affinities import anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, default_rig
from tests.support.storage import mounts

NODES = 4
VICTIMS = 20
SLICE_STEPS = 100
MOST_CALLS_OF_A_SLICE = 13_000
"""As many calls for a step as tests/laws/test_long_searches.py allows."""

NO_AFFINITY = Affinity()
Fill = Callable[[Rig, int], None]


def _running(made: Rig, volumes: Callable[[str], tuple[Volume, ...]], affinity: Affinity = NO_AFFINITY) -> None:
    for number in range(NODES * VICTIMS):
        name = f"v{number}"
        made.add(
            pod(
                name,
                labels={"app": "a"},
                node_name=f"n{number % NODES}",
                requests={"cpu": "1"},
                volumes=volumes(name),
                affinity=affinity,
            )
        )


def _claims(made: Rig, size: int) -> None:
    _running(made, lambda name: mounts(*(f"{name}-{each}" for each in range(size))))


def _disks(made: Rig, size: int) -> None:
    _running(
        made, lambda name: tuple(Volume(f"d{each}", gce=GcePersistentDisk(f"{name}-{each}")) for each in range(size))
    )


def _monitors(made: Rig, size: int) -> None:
    _running(made, lambda _: (Volume("d", rbd=RbdVolume(tuple(f"m{each}" for each in range(size)), "image")),))


def _budgets(made: Rig, size: int) -> None:
    _running(made, lambda _: ())
    # Only the last one does not match.
    terms = (*(Requirement(f"k{each}", "NotIn", ("v",)) for each in range(size)), Requirement("z", "Exists"))
    for each in range(size):
        spec = PodDisruptionBudgetSpec(LabelSelector({}, terms))
        made.columns.disruption_budgets.assign(PodDisruptionBudget(ObjectMeta(f"b{each}", "default"), spec))


def _terms(made: Rig, size: int) -> None:
    terms = (term("b", f"zone{each}") for each in range(2 * size))
    _running(made, lambda _: (), affinity=anti_affinity_to(*terms))


FILLS = [pytest.param(fill, id=fill.__name__.strip("_")) for fill in (_claims, _disks, _monitors, _budgets)]


@dataclass
class Calls:
    """Counts calls in total and in the longest slice."""

    total: int = 0
    largest: int = 0
    _slice: int = 0

    def end_slice(self) -> None:
        """Begin another slice."""
        self.largest, self._slice = max(self.largest, self._slice), 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count calls."""

        def note(_: FrameType, event: str, __: object) -> None:
            if event in ("call", "c_call"):
                self.total += 1
                self._slice += 1

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.end_slice()


def _full(fill: Fill, size: int) -> Rig:
    made = default_rig(*(node(f"n{each}", allocatable={"cpu": f"{VICTIMS}", "pods": "110"}) for each in range(NODES)))
    fill(made, size)
    return made


def _attempt(made: Rig, preemptor: Pod) -> Calls:
    """Return the calls of the attempt of a pod that preempts."""
    calls, steps = Calls(), made.columns.devices.hardware.steps
    steps.slice_steps = SLICE_STEPS
    made.add(preemptor)
    steps.on_slice_end = calls.end_slice
    try:
        with steps.live_attempt(), calls.counting():
            assert made.decide() is None
    finally:
        steps.on_slice_end = None
    assert made.queue.nominator.node_of(preemptor.metadata.uid)
    return calls


def _preemptor(name: str, *volumes: Volume) -> Pod:
    # With a host port the dry run changes the columns, instead of sums.
    return pod(name, priority=10, requests={"cpu": "1"}, ports=(8080,), volumes=volumes)


@pytest.mark.parametrize("fill", FILLS)
def test_calls_do_not_grow_with_what_the_preemptor_does_not_read(fill: Fill) -> None:
    """Further attempts take as many calls if the victims have eight times as many volumes or budgets."""
    counts = []
    for size in (10, 80):
        made = _full(fill, size)
        for each in range(NODES):
            calls = _attempt(made, _preemptor(f"p{each}"))
        counts.append(calls.total)
    assert counts[1] <= counts[0] * 1.25, counts


@pytest.mark.parametrize("fill", [*FILLS, pytest.param(_terms, id="terms")])
def test_slices_of_a_preemptor_with_volumes_are_short(fill: Fill) -> None:
    """What the preemptor does read is computed in slices."""
    for size in (2, 120):  # the first attempt of a process imports modules
        calls = _attempt(_full(fill, size), _preemptor("p", Volume("disk", gce=GcePersistentDisk("own"))))
    assert calls.largest <= MOST_CALLS_OF_A_SLICE
