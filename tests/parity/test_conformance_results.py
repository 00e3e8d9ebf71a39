"""Tests of results in the conformance format."""

import json
from typing import Any

import numpy as np

from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.extension_points import PostFilterPreview, PostFilterResult, PreemptionCandidate
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.runtime.post_filtering import PostFilterOutcome
from scheduler_core.runtime.scoring import PluginScores
from scheduler_core.snapshot.interning import ResourceNames
from scheduler_core.snapshot.pod_info import PodInfo
from tests.parity.conformance.results import result_document, result_line
from tests.support.builders import pod
from tests.support.tables import table

NOT_RUN: dict[str, Any] = {
    "gated": None,
    "prefilter": None,
    "prefilterNodes": None,
    "nominatedOnly": False,
    "filter": {},
    "feasible": [],
    "scores": {},
    "totals": {},
    "best": [],
    "message": None,
    "postFilterCode": "",
    "postFilter": None,
    "preemptionMessage": None,
    "candidates": {},
    "clearedNominations": [],
}


def examination(**found: Any) -> Examination:
    return Examination(PodInfo(pod(), ResourceNames()), **found)


def named_pod(name: str) -> PodInfo:
    return PodInfo(pod(name), ResourceNames())


def scores(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@table(
    "found, fields",
    ("empty", examination(), {}),
    (
        "gated",
        examination(gate=Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("b", "a"), "SchedulingGates")),
        {"gated": {"code": "UnschedulableAndUnresolvable", "plugin": "SchedulingGates", "reasons": ["a", "b"]}},
    ),
    (
        "rejected as a whole",
        examination(
            pre_filter=Status(Code.UNSCHEDULABLE, ("no",), "P"), pre_filter_nodes=frozenset(), message="0/1 no."
        ),
        {"prefilter": {"status": "Unschedulable", "plugin": "P", "reasons": ["no"]}, "message": "0/1 no."},
    ),
    (
        "rejected by nodes",
        examination(
            pre_filter_nodes=frozenset({"b", "a"}),
            rejected={"b": Status(Code.UNSCHEDULABLE, ("y", "x"), "F")},
            message="0/1 no.",
        ),
        {
            "prefilterNodes": ["a", "b"],
            "filter": {"b": {"code": "Unschedulable", "plugin": "F", "reasons": ["x", "y"]}},
            "message": "0/1 no.",
        },
    ),
    (
        "scored",
        examination(
            feasible=("b", "a"),
            scores={"S": PluginScores(scores(7, 3), scores(100, 42), scores(200, 84))},
            totals=scores(200, 84),
            best=("b",),
            nominated_only=True,
        ),
        {
            "nominatedOnly": True,
            "feasible": ["a", "b"],
            "scores": {"S": {"b": {"raw": 7, "weighted": 200}, "a": {"raw": 3, "weighted": 84}}},
            "totals": {"b": 200, "a": 84},
            "best": ["b"],
        },
    ),
    ("not scored", examination(feasible=("a",), best=("a",)), {"feasible": ["a"], "best": ["a"]}),
    (
        "preempting",
        examination(
            message="0/1 no. preempting",
            post_filter=PostFilterOutcome(Status(Code.SUCCESS, ("preempting",)), "a"),
            preemption=PostFilterPreview(
                PostFilterResult(SUCCESS, "a"),
                (
                    PreemptionCandidate("a", (named_pod("y"), named_pod("x")), 1),
                    PreemptionCandidate("b", (named_pod("z"),)),
                ),
                (named_pod("y"), named_pod("x")),
                (named_pod("w"),),
            ),
        ),
        {
            "message": "0/1 no. preempting",
            "postFilterCode": "Success",
            "postFilter": {"nominatedNode": "a", "victims": ["default/x", "default/y"]},
            "preemptionMessage": "preempting",
            "candidates": {
                "a": {"victims": ["default/y", "default/x"], "pdbViolations": 1},
                "b": {"victims": ["default/z"], "pdbViolations": 0},
            },
            "clearedNominations": ["default/w"],
        },
    ),
    (
        "not preempting",
        examination(message="0/1 no. x", post_filter=PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("x",)), "")),
        {"message": "0/1 no. x", "postFilterCode": "Unschedulable", "preemptionMessage": "x"},
    ),
    ("error", examination(error="no luck", message="no luck"), {"error": "no luck", "message": "no luck"}),
)
def test_result_document(found: Examination, fields: dict[str, Any]) -> None:
    """Each part of an examination has its field, and parts that were not reached are null or empty."""
    assert result_document("c", found) == {"name": "c", **NOT_RUN, **fields}


def test_a_result_is_one_line() -> None:
    """A result is one line of JSON."""
    line = result_line("c", examination())
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"name": "c", **NOT_RUN}
