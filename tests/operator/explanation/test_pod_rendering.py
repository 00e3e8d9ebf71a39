"""Tests of explanations of pods as text, JSON and YAML."""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml
from bayplan.explanation.documents import (
    Explanation,
    NodeCounts,
    NodeScore,
    PluginRejections,
    Preemption,
    ReasonCount,
    ScorePart,
    Verdict,
)
from bayplan.explanation.rendering import RENDERERS, lack_text, read_explanation

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.explain.findings import HelpfulNode, Lack, NewNodes, NodeLacks, Unblocking, Victim
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.model.pod_requests import amount_text
from tests.support.tables import table

UNSCHEDULABLE = Explanation(
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

FITS = Explanation(
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
    assert RENDERERS["table"](UNSCHEDULABLE).splitlines() == [
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
    assert RENDERERS["table"](FITS).splitlines() == [
        "Pod ml/train would be scheduled to node a; feasible nodes: 7 of 9",
        "",
        "Scores of feasible nodes (best 2 of 7): raw → normalized → weighted",
        "PLUGIN  a              b",
        "Fit     50 → 50 → 50   40 → 40 → 40",
        "Taint   0 → 100 → 300  0 → 100 → 300",
        "total   350            340",
    ]


@table("explanation", ("unschedulable", UNSCHEDULABLE), ("fits", FITS))
def test_json_and_yaml_are_equal(explanation: Explanation) -> None:
    """JSON and YAML contain the same document, which decodes to the same explanation."""
    document = json.loads(RENDERERS["json"](explanation))
    assert document == yaml.safe_load(RENDERERS["yaml"](explanation)) == json.loads(msgspec.json.encode(explanation))
    assert read_explanation(msgspec.json.encode(explanation)) == explanation
    assert document["schedulerName"] == "pack"


@table("response", ("not JSON", b"<html>"), ("other JSON", b'{"a": 1}'))
def test_another_response_is_an_error(response: bytes) -> None:
    """A response that is not an explanation is an error."""
    with pytest.raises(ServerUnavailableError, match="is --server a Bayplan"):
        read_explanation(response)


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
    """Amounts are written as Kubernetes quantities."""
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
    shown = RENDERERS["table"](msgspec.structs.replace(UNSCHEDULABLE, new_nodes=found))
    assert f"New nodes  {text}\n" in shown


def test_a_delayed_preemption() -> None:
    """The line begins with the time until which a new node is awaited."""
    plan = Preemption("a", (Victim("ml", "old", 1),), 0, 1, None, "2026-11-28T12:00:00Z")
    shown = RENDERERS["table"](msgspec.structs.replace(UNSCHEDULABLE, preemption=plan))
    assert "Preemption  waits until 2026-11-28T12:00:00Z for a new node, then would evict ml/old (priority 1)" in shown
