"""Tests of explanations of gangs as text, JSON and YAML."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml
from bayplan.explanation.documents import (
    Explanation,
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    LastAttempt,
    MemberCounts,
    MemberNode,
    Verdict,
)
from bayplan.explanation.rendering import RENDERERS, read_gang_explanation
from msgspec.structs import replace

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.explain.findings import KeptOff, Lack, NextMember, NodeLacks, PlaceFit, Unblocking, Victim
from scheduler_core.framework.extension_points import Shortage
from tests.support.tables import table

OLD, OLDER, ENDING = Victim("ml", "old", 1), Victim("ml", "older", 0), Victim("ml", "ending", 0)
UNSCHEDULABLE = GangExplanation(
    namespace="ml",
    name="train",
    api="bayplan.dev",
    scheduler_name="pack",
    verdict=GangVerdict.UNSCHEDULABLE,
    headline="gang ml/train does not fit: there are nodes for 3 of the 4 members that must be placed together",
    phase="Scheduling",
    members=MemberCounts(5, 1, 4, 0, 0, 0, 4, 4),
    places=(
        PlaceFit(
            "zone=a",
            3,
            4,
            is_tried=True,
            next_member=NextMember(
                "ml/train-3",
                "0/2 nodes are available: 2 Insufficient cpu.",
                (NodeLacks("a", (Lack("Fit", ("Insufficient cpu",), True, (Shortage("cpu", 2000, 500),)),)),),
                (Unblocking("pod ml/old deleted from node a", "AssignedPodDelete", ("Fit",), "a"),),
            ),
        ),
        PlaceFit("zone=b", 1, 4, is_tried=False, next_member=NextMember("ml/train-1", "0/2 nodes are available: ...")),
    ),
    preemption=GangPreemption((OLDER, OLD), ("a", "b"), (ENDING,), 1, "zone=a", None),
    reservation=GangReservation("zone=a", ("a", "b"), ("ml/old",)),
    kept_off=(KeptOff("ml/big", ("c", "d")),),
    last_attempt=LastAttempt("Unschedulable", "3 of the 4 fit", "2026-11-21T10:00:00Z"),
    notices=("services cannot be listed",),
)
PREEMPTION = (
    "would evict ml/older (priority 0), ml/old (priority 1) from a, b; all members then fit in zone=a; "
    "PodDisruptionBudget violations: 1; would also wait for terminating pods ml/ending (priority 0)"
)
FITS = GangExplanation(
    namespace="ml",
    name="train",
    api="bayplan.dev",
    scheduler_name="pack",
    verdict=GangVerdict.FITS,
    headline="gang ml/train fits in zone=a: there are nodes for all 3 members that must be placed together",
    phase="Scheduling",
    members=MemberCounts(3, 0, 3, 0, 0, 0, 3, 3),
    domain="zone=a",
    placement=(MemberNode("ml/train-0", "b"), MemberNode("ml/train-1", "a"), MemberNode("ml/train-2", "b")),
)


def test_members_of_another_api() -> None:
    """The title of the members has the API, with its version if there is a PodGroup."""
    native = replace(UNSCHEDULABLE, api="scheduling.k8s.io", api_version="scheduling.k8s.io/v1beta1")
    assert RENDERERS["table"](native).splitlines()[2] == "Members of gang ml/train of scheduling.k8s.io/v1beta1"
    missing = replace(native, api_version=None)
    assert RENDERERS["table"](missing).splitlines()[2] == "Members of gang ml/train of scheduling.k8s.io"


def test_text_of_an_infeasible_gang() -> None:
    """The text has members, domains, nearest misses, events, preemption, reservations and last attempt, in order."""
    assert RENDERERS["table"](UNSCHEDULABLE).splitlines() == [
        "Gang ml/train does not fit: there are nodes for 3 of the 4 members that must be placed together",
        "",
        "Members of gang ml/train",
        "EXIST  GATED  WAITING  PLACED  SUCCEEDED  FAILED  MINIMUM  NEEDED",
        "5      1      4        0       0          0       4        4",
        "",
        "Domains where it does not fit, nearest first",
        "DOMAIN  FIT     NEXT MEMBER  REASON",
        "zone=a  3 of 4  ml/train-3   0/2 nodes are available: 2 Insufficient cpu.",
        "zone=b  1 of 4  ml/train-1   0/2 nodes are available: ...",
        "",
        "Nearest misses of ml/train-3 in zone=a, with the members before it placed",
        "NODE  PLUGIN  LACKS",
        "a     Fit     needs 2 cpu, 500m free",
        "",
        "Events that would make room for ml/train-3 in zone=a",
        "EVENT                           RESULT     QUEUEING HINT OF",
        "pod ml/old deleted from node a  fits on a  Fit",
        "",
        f"Preemption  {PREEMPTION}",
        "",
        "Reservation  zone=a (a, b), waiting for these pods to terminate: ml/old",
        "",
        "Excluded nodes  c, d (reserved for gang ml/big)",
        "",
        "Last attempt  Unschedulable at 2026-11-21T10:00:00Z: 3 of the 4 fit",
        "",
        "Note: services cannot be listed",
    ]


def test_text_of_a_feasible_gang() -> None:
    """The text has the placement by node."""
    assert RENDERERS["table"](FITS).splitlines() == [
        "Gang ml/train fits in zone=a: there are nodes for all 3 members that must be placed together",
        "",
        "Members of gang ml/train",
        "EXIST  GATED  WAITING  PLACED  SUCCEEDED  FAILED  MINIMUM  NEEDED",
        "3      0      3        0       0          0       3        3",
        "",
        "Placement",
        "NODE  MEMBERS",
        "a     1        ml/train-1",
        "b     2        ml/train-0, ml/train-2",
    ]


def test_a_member_is_shown_with_its_gang() -> None:
    """The text of a member has the pod's headline before its gang."""
    explanation = Explanation(
        namespace="ml",
        name="train-0",
        scheduler_name="pack",
        verdict=Verdict.FITS,
        headline="pod ml/train-0 would be scheduled to node b with its gang",
        node="b",
        gang=FITS,
    )
    text = RENDERERS["table"](explanation).splitlines()
    assert text[:3] == ["Pod ml/train-0 would be scheduled to node b with its gang", "", "Members of gang ml/train"]
    assert text[-1] == "b     2        ml/train-0, ml/train-2"


@table(
    "plan, expected",
    (
        "no victims",
        GangPreemption((), (), (), 0, None, "no pod of lower priority runs where the gang could go"),
        "Preemption  no pod of lower priority runs where the gang could go",
    ),
    (
        "terminating pods only",
        GangPreemption((), (), (ENDING,), 0, None, None),
        "Preemption  would evict no pods but wait for terminating pods ml/ending (priority 0)",
    ),
    (
        "any domain",
        GangPreemption((OLD,), ("a",), (), 0, None, None),
        "Preemption  would evict ml/old (priority 1) from a; all members then fit",
    ),
)
def test_preemption_as_text(plan: GangPreemption, expected: str) -> None:
    """The dry run of preemption is described in one sentence."""
    assert expected in RENDERERS["table"](msgspec.structs.replace(UNSCHEDULABLE, preemption=plan)).splitlines()


@table("explanation", ("unschedulable", UNSCHEDULABLE), ("fits", FITS))
def test_json_and_yaml_are_equal(explanation: GangExplanation) -> None:
    """JSON and YAML contain the same document, which decodes to the same explanation."""
    document = json.loads(RENDERERS["json"](explanation))
    assert document == yaml.safe_load(RENDERERS["yaml"](explanation)) == json.loads(msgspec.json.encode(explanation))
    assert read_gang_explanation(msgspec.json.encode(explanation)) == explanation
    assert document["members"]["minMember"] == explanation.members.min_member


def test_another_response_is_an_error() -> None:
    """A response that is not an explanation of a gang is an error."""
    with pytest.raises(ServerUnavailableError, match="is not an explanation of a gang"):
        read_gang_explanation(b'{"a": 1}')
