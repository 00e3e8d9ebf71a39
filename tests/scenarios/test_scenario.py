"""Tests of scenario files, and of the comparison of two outcomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hack.controlplane.api_client import status_of
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
