"""Tests of scenario files, of the comparison of two outcomes, and of the search for differences that persist."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hack.controlplane.api_client import status_of
from tests.scenarios.repetition import Difference, persistent_difference, renamed
from tests.scenarios.scenario import SCHEDULER_NAME, read_scenario
from tests.scenarios.scenario_runner import Outcome, PodOutcome
from tests.support.tables import table

POD = PodOutcome("", "", ("False", "Unschedulable", "0/1 nodes are available"), ("", ""))
OUTCOME = Outcome({"p": POD}, (), (("p", "Warning", "FailedScheduling", "Scheduling", "compared", "0/1"),), ())


def test_short_forms_are_expanded(tmp_path: Path) -> None:
    """Nodes and pods in short form become complete manifests, and pods name the compared scheduler."""
    path = tmp_path / "one.yaml"
    path.write_text("description: x\nsteps: [{nodes: {a: {cpu: '2'}}, pods: {p: {cpu: '1'}}, wait: {bound: [p]}}]\n")
    scenario = read_scenario(path)
    (step,) = scenario.steps
    node, pod = step.creates
    assert (scenario.name, status_of(node)["allocatable"]["cpu"]) == ("one", "2")
    assert (pod["metadata"]["namespace"], pod["spec"]["schedulerName"]) == ("one", SCHEDULER_NAME)
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    assert step.waits == {"bound": ("p",)}


@table("step", ("a step", "{pod: {}}"), ("a state", "{wait: {runs: [p]}}"))
def test_unknown_fields_are_rejected(tmp_path: Path, step: str) -> None:
    """An unknown step or pod state raises an error."""
    path = tmp_path / "bad.yaml"
    path.write_text(f"description: x\nsteps: [{step}]\n")
    with pytest.raises(ValueError, match="unknown fields"):
        read_scenario(path)


@table(
    "other",
    ("bound", replace(OUTCOME, pods={"p": replace(POD, node="a")})),
    ("nominated", replace(OUTCOME, pods={"p": replace(POD, nominated="a")})),
    ("message", replace(OUTCOME, pods={"p": replace(POD, scheduled=("False", "Unschedulable", "0/2"))})),
    ("preemption victim", replace(OUTCOME, pods={"p": replace(POD, disrupted=("x", "y"))})),
    ("gone", replace(OUTCOME, pods={}, gone=("p",))),
    ("one event less", replace(OUTCOME, events=())),
    ("one event more", replace(OUTCOME, events=(*OUTCOME.events, ("p", "Normal", "x", "", "", "")))),
)
def test_every_difference_is_found(other: Outcome) -> None:
    """Every field of an outcome is compared."""
    assert OUTCOME.differences(OUTCOME) == []
    assert OUTCOME.differences(other)


# -- differences that persist when a scenario is repeated --------------------------------------------------------------


REPEATED_POD = PodOutcome("", "", ("False", "Unschedulable", "in one-7"), ("", ""))
EMPTY = Outcome({}, (), (), ())
REJECTED = Outcome(
    {"p": REPEATED_POD}, (), (("p", "Warning", "FailedScheduling", "Scheduling", "compared", "in one-7"),), ()
)
ON_A = replace(REJECTED, pods={"p": replace(REPEATED_POD, node="a")})
ON_B = replace(REJECTED, pods={"p": replace(REPEATED_POD, node="b")})
WITHOUT_EVENT = replace(REJECTED, events=())
OTHER_NOTE = replace(REJECTED, events=(("p", "Warning", "FailedScheduling", "Scheduling", "compared", "other"),))
BOTH_NOTES = replace(REJECTED, events=(*REJECTED.events, *OTHER_NOTE.events))
MERGED = replace(REJECTED, repeated=frozenset({("p", "FailedScheduling")}))


@table(
    "reference, ours, differs",
    ("same", [ON_A], [ON_A], False),
    ("other-node", [ON_A], [ON_B], True),
    ("other-node-once", [ON_A, ON_A], [ON_B, ON_A], False),
    ("other-node-each-time", [ON_A, ON_A], [ON_B, ON_B], True),
    ("event-missing", [REJECTED], [WITHOUT_EVENT], True),
    ("event-missing-in-one-reference-run", [REJECTED, WITHOUT_EVENT], [WITHOUT_EVENT, WITHOUT_EVENT], False),
    ("additional-event", [REJECTED], [BOTH_NOTES], True),
    ("additional-event-once", [REJECTED, REJECTED], [BOTH_NOTES, REJECTED], False),
    ("note-lost-by-merging", [MERGED], [BOTH_NOTES], False),
    ("note-that-merging-retained", [MERGED], [OTHER_NOTE], True),
)
def test_only_persistent_differences_count(reference: list[Outcome], ours: list[Outcome], differs: bool) -> None:
    """An outcome that both schedulers have in some run is no difference; a merged event hides later notes only."""
    found = persistent_difference([[EMPTY, one] for one in reference], [[EMPTY, one] for one in ours])
    assert (found is not None) is differs


def test_the_first_step_is_reported() -> None:
    """The reported step is the first one that differs."""
    found = persistent_difference([[EMPTY, ON_A, REJECTED]], [[EMPTY, ON_B, WITHOUT_EVENT]])
    assert isinstance(found, Difference)
    assert found.step == 1
    assert any("'b'" in line for line in found.what)


def test_a_run_is_renamed_to_its_scenario() -> None:
    """Messages and notes contain the name of the scenario instead of the name of the repetition."""
    (outcome,) = renamed([REJECTED], "one-7", "one")
    assert outcome.pods["p"].scheduled[2] == "in one"
    assert outcome.events[0][5] == "in one"
