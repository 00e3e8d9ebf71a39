"""Explanations of gangs as people and programs read them."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml
from bayplan.explanation import rendering
from bayplan.explanation.gang_model import (
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    KeptOff,
    LastAttempt,
    MemberCounts,
    MemberNode,
    NextMember,
    PlaceFit,
)
from bayplan.explanation.gang_rendering import RENDERERS, as_text, read_gang_explanation
from bayplan.explanation.model import Explanation, Verdict
from bayplan.explanation.parts import Amount, Lack, NodeLacks, Unblocking, Victim

from scheduler_core.errors import ServerUnavailableError

OLD, OLDER, ENDING = Victim("ml", "old", 1), Victim("ml", "older", 0), Victim("ml", "ending", 0)
NOWHERE = GangExplanation(
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
                (NodeLacks("a", (Lack("Fit", ("Insufficient cpu",), True, (Amount("cpu", 2000, 500),)),)),),
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
    "would evict ml/older (priority 0), ml/old (priority 1) from a, b, after which all fit in zone=a, against 1 "
    "PodDisruptionBudget protection; it would also wait for ml/ending (priority 0), which end already"
)
SOMEWHERE = GangExplanation(
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


def test_a_gang_that_does_not_fit() -> None:
    """Members, domains, what the nearest lacks and what would help, evictions, reservations: in that order."""
    assert as_text(NOWHERE).splitlines() == [
        "Gang ml/train does not fit: there are nodes for 3 of the 4 members that must be placed together",
        "",
        "Members of gang ml/train",
        "EXIST  GATED  WAITING  PLACED  SUCCEEDED  FAILED  MINIMUM  NEEDED NOW",
        "5      1      4        0       0          0       4        4",
        "",
        "Where it does not fit, nearest first",
        "DOMAIN  FIT     NEXT MEMBER  WHY NOT",
        "zone=a  3 of 4  ml/train-3   0/2 nodes are available: 2 Insufficient cpu.",
        "zone=b  1 of 4  ml/train-1   0/2 nodes are available: ...",
        "",
        "Nearest misses of ml/train-3 in zone=a, the others in place",
        "NODE  PLUGIN  LACKS",
        "a     Fit     needs 2 cpu, 500m free",
        "",
        "What would make room for ml/train-3 in zone=a",
        "EVENT                           THEN       BY THE HINT OF",
        "pod ml/old deleted from node a  fits on a  Fit",
        "",
        f"Preemption  {PREEMPTION}",
        "",
        "Reservation  zone=a (a, b) is kept for it until these end: ml/old",
        "",
        "Kept off  c, d, reserved for gang ml/big",
        "",
        "Last attempt  Unschedulable at 2026-11-21T10:00:00Z: 3 of the 4 fit",
        "",
        "Note: services cannot be listed",
    ]


def test_a_gang_that_fits() -> None:
    """Who goes where, node by node."""
    assert as_text(SOMEWHERE).splitlines() == [
        "Gang ml/train fits in zone=a: there are nodes for all 3 members that must be placed together",
        "",
        "Members of gang ml/train",
        "EXIST  GATED  WAITING  PLACED  SUCCEEDED  FAILED  MINIMUM  NEEDED NOW",
        "3      0      3        0       0          0       3        3",
        "",
        "Where they would go",
        "NODE  MEMBERS",
        "a     1        ml/train-1",
        "b     2        ml/train-0, ml/train-2",
    ]


def test_a_member_is_told_with_its_gang() -> None:
    """What is said of the pod comes first."""
    told = Explanation(
        namespace="ml",
        name="train-0",
        scheduler_name="pack",
        verdict=Verdict.FITS,
        headline="pod ml/train-0 would go to node b with its gang",
        node="b",
        gang=SOMEWHERE,
    )
    text = rendering.as_text(told).splitlines()
    assert text[:3] == ["Pod ml/train-0 would go to node b with its gang", "", "Members of gang ml/train"]
    assert text[-1] == "b     2        ml/train-0, ml/train-2"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        pytest.param(
            GangPreemption((), (), (), 0, None, "no pod of lower priority runs where the gang could go"),
            "Preemption  no pod of lower priority runs where the gang could go",
            id="no help",
        ),
        pytest.param(
            GangPreemption((), (), (ENDING,), 0, None, None),
            "Preemption  would evict nobody, but wait for ml/ending (priority 0), which end already",
            id="pods end anyway",
        ),
        pytest.param(
            GangPreemption((OLD,), ("a",), (), 0, None, None),
            "Preemption  would evict ml/old (priority 1) from a, after which all fit",
            id="anywhere",
        ),
    ],
)
def test_what_preemption_would_do(plan: GangPreemption, words: str) -> None:
    """In a sentence."""
    assert words in as_text(msgspec.structs.replace(NOWHERE, preemption=plan)).splitlines()


@pytest.mark.parametrize("told", [pytest.param(NOWHERE, id="nowhere"), pytest.param(SOMEWHERE, id="somewhere")])
def test_json_and_yaml_say_the_same(told: GangExplanation) -> None:
    """One document, in two spellings; the endpoint's answer comes out as it went in."""
    document = json.loads(RENDERERS["json"](told))
    assert document == yaml.safe_load(RENDERERS["yaml"](told)) == json.loads(msgspec.json.encode(told))
    assert read_gang_explanation(msgspec.json.encode(told)) == told
    assert document["members"]["minMember"] == told.members.min_member


def test_another_answer_is_no_explanation() -> None:
    """Whoever asked the wrong server is told so."""
    with pytest.raises(ServerUnavailableError, match="is not an explanation of a gang"):
        read_gang_explanation(b'{"a": 1}')
