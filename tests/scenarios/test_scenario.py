"""Scenario files, and the comparison of two readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.scenarios.scenario import SCHEDULER_NAME, read_scenario
from tests.scenarios.scenario_runner import Outcome, PodOutcome

POD = PodOutcome("", "", ("False", "Unschedulable", "0/1 nodes are available"), ("", ""))
READING = Outcome({"p": POD}, (), (("p", "Warning", "FailedScheduling", "Scheduling", "compared", "0/1"),), ())


def test_short_forms_stand_for_whole_manifests(tmp_path: Path) -> None:
    """A node and a pod of few words are complete, and the pod is for the scheduler under comparison."""
    path = tmp_path / "one.yaml"
    path.write_text("description: x\nsteps: [{nodes: {a: {cpu: '2'}}, pods: {p: {cpu: '1'}}, wait: {bound: [p]}}]\n")
    scenario = read_scenario(path)
    (step,) = scenario.steps
    node, pod = step.creates
    assert (scenario.name, node["status"]["allocatable"]["cpu"]) == ("one", "2")
    assert (pod["metadata"]["namespace"], pod["spec"]["schedulerName"]) == ("one", SCHEDULER_NAME)
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    assert step.waits == {"bound": ("p",)}


@pytest.mark.parametrize(
    "step", [pytest.param("{pod: {}}", id="a step"), pytest.param("{wait: {runs: [p]}}", id="a state")]
)
def test_unknown_words_are_refused(tmp_path: Path, step: str) -> None:
    """A slip in a file is not passed over in silence."""
    path = tmp_path / "bad.yaml"
    path.write_text(f"description: x\nsteps: [{step}]\n")
    with pytest.raises(ValueError, match="unknown words"):
        read_scenario(path)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(READING, pods={"p": replace(POD, node="a")}), id="bound"),
        pytest.param(replace(READING, pods={"p": replace(POD, nominated="a")}), id="nominated"),
        pytest.param(
            replace(READING, pods={"p": replace(POD, scheduled=("False", "Unschedulable", "0/2"))}), id="message"
        ),
        pytest.param(replace(READING, pods={"p": replace(POD, disrupted=("x", "y"))}), id="a victim"),
        pytest.param(replace(READING, pods={}, gone=("p",)), id="gone"),
        pytest.param(replace(READING, events=()), id="an event less"),
        pytest.param(replace(READING, events=(*READING.events, ("p", "Normal", "x", "", "", ""))), id="one more"),
    ],
)
def test_every_difference_is_found(other: Outcome) -> None:
    """Whatever a reading holds counts."""
    assert READING.differences(READING) == []
    assert READING.differences(other)
