"""The report of drains of gangs."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.gangs import summary, wrong
from benchmarks.gangs_drain import GangBacklog, GangDrain
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from tests.support.tables import table

ONE = GangDrain(
    BAYPLAN, GangBacklog(10, 5, 3), 15, [], 1.0, 0.3, 100.0, 5, 2.0, 1.0, 7.0, 1, first_cpu_seconds=0.15, first_bound=5
)


def other(**changed: object) -> GangDrain:
    """Return ONE with changed fields."""
    return dataclasses.replace(ONE, **changed)  # type: ignore[arg-type] # fields by name


def test_medians_and_ratios() -> None:
    """Each side has its median; a backlog that one scheduler has drained has no ratios; backlogs are separate rows."""
    drains = [ONE, other(repetition=2, seconds=3.0), other(scheduler=KUBE_SCHEDULER, seconds=5.0, attempt_ms=None)]
    both, alone = summary([*drains, other(backlog=GangBacklog(10, 6, 3))])
    assert both["ratios"]["pods/s"] == pytest.approx(10.0 / 3.0)
    assert both["rates"] == {BAYPLAN: [15.0, 5.0], KUBE_SCHEDULER: [3.0]}
    assert (alone["backlog"].gangs, alone["ratios"]) == (6, {})


@table(
    "drained, words",
    ("whole", ONE, []),
    ("in-part", other(partial=["gang-1"]), ["only some members are on nodes of gang-1"]),
    ("pods-without-gang", other(attempts=0), ["15 pods were bound and no gang was attempted"]),
    ("none-bound", other(attempts=0, bound=0), []),
)
def test_problems_are_in_the_text(drained: GangDrain, words: list[str]) -> None:
    """Partly bound gangs, and pods that were bound without an attempt of a gang, are reported."""
    output = wrong([drained])
    assert len(output) == len(words)
    assert all(each in sentence for each, sentence in zip(words, output, strict=True))
