"""Differences that persist when a scenario is repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.scenarios.repetition import Difference, persistent_difference, renamed
from tests.scenarios.scenario_runner import Outcome, PodOutcome

POD = PodOutcome("", "", ("False", "Unschedulable", "in one-7"), ("", ""))
EMPTY = Outcome({}, (), (), ())
REFUSED = Outcome({"p": POD}, (), (("p", "Warning", "FailedScheduling", "Scheduling", "compared", "in one-7"),), ())
ON_A = replace(REFUSED, pods={"p": replace(POD, node="a")})
ON_B = replace(REFUSED, pods={"p": replace(POD, node="b")})
SILENT = replace(REFUSED, events=())
OTHER_NOTE = replace(REFUSED, events=(("p", "Warning", "FailedScheduling", "Scheduling", "compared", "other"),))
BOTH_NOTES = replace(REFUSED, events=(*REFUSED.events, *OTHER_NOTE.events))
MERGED = replace(REFUSED, repeated=frozenset({("p", "FailedScheduling")}))


@pytest.mark.parametrize(
    ("reference", "ours", "differs"),
    [
        pytest.param([ON_A], [ON_A], False, id="same"),
        pytest.param([ON_A], [ON_B], True, id="other-node"),
        pytest.param([ON_A, ON_A], [ON_B, ON_A], False, id="other-node-once"),
        pytest.param([ON_A, ON_A], [ON_B, ON_B], True, id="other-node-each-time"),
        pytest.param([REFUSED], [SILENT], True, id="event-missing"),
        pytest.param([REFUSED, SILENT], [SILENT, SILENT], False, id="event-missing-that-may-be"),
        pytest.param([REFUSED], [BOTH_NOTES], True, id="event-too-much"),
        pytest.param([REFUSED, REFUSED], [BOTH_NOTES, REFUSED], False, id="event-too-much-once"),
        pytest.param([MERGED], [BOTH_NOTES], False, id="note-lost-by-merging"),
        pytest.param([MERGED], [OTHER_NOTE], True, id="note-that-merging-kept"),
    ],
)
def test_only_what_lasts_counts(reference: list[Outcome], ours: list[Outcome], differs: bool) -> None:
    """Random outcomes of either side are no difference; a merged event hides later notes, not its own."""
    found = persistent_difference([[EMPTY, one] for one in reference], [[EMPTY, one] for one in ours])
    assert (found is not None) is differs


def test_the_first_step_is_reported() -> None:
    """Later differences follow from the first one."""
    found = persistent_difference([[EMPTY, ON_A, REFUSED]], [[EMPTY, ON_B, SILENT]])
    assert isinstance(found, Difference)
    assert found.step == 1
    assert any("'b'" in line for line in found.what)


def test_a_repetition_has_the_name_of_the_scenario() -> None:
    """In messages and notes, where namespace and volumes are named."""
    (reading,) = renamed([REFUSED], "one-7", "one")
    assert reading.pods["p"].scheduled[2] == "in one"
    assert reading.events[0][5] == "in one"
