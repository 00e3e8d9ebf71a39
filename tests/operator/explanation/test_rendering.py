"""Tests of explanations of pods and gangs as text, JSON and YAML."""

from __future__ import annotations

import json
from collections.abc import Callable

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
    NodeCounts,
    NodeScore,
    PluginRejections,
    Preemption,
    ReasonCount,
    ScorePart,
    Verdict,
)
from bayplan.explanation.rendering import RENDERERS, lack_text, read_explanation, read_gang_explanation
from msgspec.structs import replace

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.explain.findings import (
    HelpfulNode,
    KeptOff,
    Lack,
    NewNodes,
    NextMember,
    NodeLacks,
    PlaceFit,
    Unblocking,
    Victim,
)
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.model.pod_requests import amount_text
from tests.support.tables import table

POD = Explanation(
    namespace="ml",
    name="train",
    scheduler_name="pack",
    verdict=Verdict.UNSCHEDULABLE,
    headline="pod ml/train is unschedulable; feasible nodes: 0 of 2",
    message="0/2 nodes are available: ...",
    nodes=NodeCounts(2, 0),
    rejections=(
        PluginRejections("Fit", 2, (ReasonCount("Insufficient cpu", 2), ReasonCount("Insufficient memory", 1))),
    ),
    nearest=(
        NodeLacks("a", (Lack("Fit", ("Insufficient cpu",), True, (Shortage("cpu", 500, 320),)),)),
        NodeLacks("b", (Lack("Taint", ("tainted",), False), Lack("Fit", ("x",), True, (Shortage("pods", 1, 0),)))),
    ),
    preemption=Preemption("a", (Victim("ml", "old", 1), Victim("ml", "older", 0)), 1, 3, None),
    unblocking=(
        Unblocking("pod ml/old deleted from node a", "AssignedPodDelete", ("Fit",), "a"),
        Unblocking("claim ml/data created", "PersistentVolumeClaimAdd", ("Volumes",), None),
        Unblocking("a node added", "NodeAdd", ("Fit", "Taint"), "new-node"),
    ),
    notices=("services cannot be listed",),
)

VICTIMS = "ml/old (priority 1), ml/older (priority 0)"
DETAILS = "PodDisruptionBudget violations: 1; other candidate nodes: 2"

FITTING_POD = Explanation(
    namespace="ml",
    name="train",
    scheduler_name="pack",
    verdict=Verdict.FITS,
    headline="pod ml/train would be scheduled to node a; feasible nodes: 7 of 9",
    node="a",
    tied=("a",),
    nodes=NodeCounts(9, 7),
    scores=(
        NodeScore("a", 350, {"Fit": ScorePart(50, 50, 50), "Taint": ScorePart(0, 100, 300)}),
        NodeScore("b", 340, {"Fit": ScorePart(40, 40, 40), "Taint": ScorePart(0, 100, 300)}),
    ),
)


def test_text_of_an_unschedulable_pod() -> None:
    """The text has headline, rejections, nearest misses, preemption, events and notices, in order."""
    assert RENDERERS["table"](POD).splitlines() == [
        "Pod ml/train is unschedulable; feasible nodes: 0 of 2",
        "",
        "Rejected by",
        "PLUGIN  NODES  REASONS",
        "Fit     2      2 Insufficient cpu; 1 Insufficient memory",
        "",
        "Nearest misses",
        "NODE  PLUGIN  LACKS",
        "a     Fit     needs 500m cpu, 320m free",
        "b     Taint   tainted",
        "      Fit     needs 1 pods, 0 free",
        "",
        f"Preemption  would evict {VICTIMS} from node a; {DETAILS}",
        "",
        "Events that would requeue it",
        "EVENT                           RESULT      QUEUEING HINT OF",
        "pod ml/old deleted from node a  fits on a   Fit",
        "claim ml/data created           requeued    Volumes",
        "a node added                    fits on it  Fit, Taint",
        "",
        "Note: services cannot be listed",
    ]


def test_text_of_a_feasible_pod() -> None:
    """The table of scores has a column for each of the best nodes."""
    assert RENDERERS["table"](FITTING_POD).splitlines() == [
        "Pod ml/train would be scheduled to node a; feasible nodes: 7 of 9",
        "",
        "Scores of feasible nodes (best 2 of 7): raw → normalized → weighted",
        "PLUGIN  a              b",
        "Fit     50 → 50 → 50   40 → 40 → 40",
        "Taint   0 → 100 → 300  0 → 100 → 300",
        "total   350            340",
    ]


@table(
    "resource, amount, text",
    ("milli-cores", "cpu", 500, "500m"),
    ("cores", "cpu", 32000, "32"),
    ("GiB", "memory", 3 << 29, "1.5Gi"),
    ("MiB", "memory", 64 << 20, "64Mi"),
    ("KiB", "ephemeral-storage", 2048, "2Ki"),
    ("huge pages", "hugepages-2Mi", 2 << 20, "2Mi"),
    ("bytes", "memory", 5, "5"),
    ("number", "example.com/gpu", 2, "2"),
)
def test_amounts_are_written_as_kubernetes_quantities(resource: str, amount: int, text: str) -> None:
    assert amount_text(resource, amount) == text


def test_an_overcommitted_node_has_nothing_free() -> None:
    """The text of an overcommitted node has 0 free."""
    lack = Lack("Fit", ("Insufficient cpu",), True, (Shortage("cpu", 500, -250), Shortage("memory", 1 << 30, 0)))
    assert lack_text(lack) == "needs 500m cpu, 0 free; needs 1Gi memory, 0 free"


@table(
    "found, text",
    (
        "several",
        NewNodes((HelpfulNode("large", 1), HelpfulNode("small", 2)), 2),
        "1 node like large would help, or 2 nodes like small",
    ),
    (
        "none",
        NewNodes((), 2),
        "none of the few numbers of copies of present nodes that were tried would help; bayplan fit tries more",
    ),
    ("no-node", NewNodes(), "no present node is large enough to be copied"),
    ("given-up", NewNodes((), 1, is_complete=False), "not known: the dry run took more steps than it may"),
)
def test_new_nodes(found: NewNodes, text: str) -> None:
    """The line names the nodes and how many of them help, or why none is named."""
    shown = RENDERERS["table"](replace(POD, new_nodes=found))
    assert f"New nodes  {text}\n" in shown


def test_a_delayed_preemption() -> None:
    """The line begins with the time until which a new node is awaited."""
    plan = Preemption("a", (Victim("ml", "old", 1),), 0, 1, None, "2026-11-28T12:00:00Z")
    shown = RENDERERS["table"](replace(POD, preemption=plan))
    assert "Preemption  waits until 2026-11-28T12:00:00Z for a new node, then would evict ml/old (priority 1)" in shown


OLD, OLDER, ENDING = Victim("ml", "old", 1), Victim("ml", "older", 0), Victim("ml", "ending", 0)
GANG = GangExplanation(
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
FITTING_GANG = GangExplanation(
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
    native = replace(GANG, api="scheduling.k8s.io", api_version="scheduling.k8s.io/v1beta1")
    assert RENDERERS["table"](native).splitlines()[2] == "Members of gang ml/train of scheduling.k8s.io/v1beta1"
    missing = replace(native, api_version=None)
    assert RENDERERS["table"](missing).splitlines()[2] == "Members of gang ml/train of scheduling.k8s.io"


def test_text_of_an_infeasible_gang() -> None:
    """The text has members, domains, nearest misses, events, preemption, reservations and last attempt, in order."""
    assert RENDERERS["table"](GANG).splitlines() == [
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
    assert RENDERERS["table"](FITTING_GANG).splitlines() == [
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
        gang=FITTING_GANG,
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
    assert expected in RENDERERS["table"](replace(GANG, preemption=plan)).splitlines()


@table(
    "explanation, read",
    ("infeasible pod", POD, read_explanation),
    ("feasible pod", FITTING_POD, read_explanation),
    ("infeasible gang", GANG, read_gang_explanation),
    ("feasible gang", FITTING_GANG, read_gang_explanation),
)
def test_json_and_yaml_are_equal(explanation: Explanation | GangExplanation, read: Callable[[bytes], object]) -> None:
    """JSON and YAML contain the same document, which decodes to the same explanation."""
    encoded = msgspec.json.encode(explanation)
    document = json.loads(RENDERERS["json"](explanation))
    assert document == yaml.safe_load(RENDERERS["yaml"](explanation)) == json.loads(encoded)
    assert read(encoded) == explanation
    assert document["schedulerName"] == "pack"
    if isinstance(explanation, GangExplanation):
        assert document["members"]["minMember"] == explanation.members.min_member


@table(
    "response, read, message",
    ("not JSON", b"<html>", read_explanation, "is --server a Bayplan"),
    ("not of a pod", b'{"a": 1}', read_explanation, "is --server a Bayplan"),
    ("not of a gang", b'{"a": 1}', read_gang_explanation, "is not an explanation of a gang"),
)
def test_another_response_is_an_error(response: bytes, read: Callable[[bytes], object], message: str) -> None:
    """A response that is not an explanation is an error."""
    with pytest.raises(ServerUnavailableError, match=message):
        read(response)
