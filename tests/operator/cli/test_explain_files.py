"""Tests of ``bayplan explain -f``."""

from __future__ import annotations

import json
from pathlib import Path

from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "simulate" / "cluster.yaml")
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
---
"""
RUNNING = """
apiVersion: v1
kind: Pod
metadata: {name: running}
spec: {nodeName: n, containers: [{name: main, image: x, resources: {requests: {cpu: 3680m}}}]}
---
"""
WAITING = """
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: shop}
spec: {containers: [{name: main, image: x, resources: {requests: {cpu: 500m}}}]}
---
"""


def explain_pod_in(text: str, *options: str) -> Result:
    """Run the command on manifests."""
    return CliRunner().invoke(bayplan, ["explain", "-f", "-", *options], input=text)


def test_prints_text() -> None:
    """The text has rejections, nearest misses with amounts, preemption, and events that would requeue the pod."""
    result = explain_pod_in(NODE + RUNNING + WAITING, "--pod", "shop/waiting")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Pod shop/waiting is unschedulable; feasible nodes: 0 of 1",
        "",
        "Rejected by",
        "PLUGIN            NODES  REASONS",
        "NodeResourcesFit  1      Insufficient cpu",
        "",
        "Nearest misses",
        "NODE  PLUGIN            LACKS",
        "n     NodeResourcesFit  needs 500m cpu, 320m free",
        "",
        "Preemption  would not help: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        "",
        "New nodes  1 node like n would help",
        "",
        "Events that would requeue it",
        "EVENT                                    RESULT      QUEUEING HINT OF",
        "node n grown to 4.18 cpu allocatable     fits on n   NodeResourcesFit",
        "pod default/running deleted from node n  fits on n   NodeResourcesFit",
        "a node added with 500m cpu or more free  fits on it  NodeResourcesFit",
    ]


@table(
    "options",
    ("--pod with a namespace", ("--pod", "shop/waiting")),
    ("--pod and -n", ("--pod", "waiting", "-n", "shop")),
    ("as with kubectl", ("waiting", "-n", "shop")),
)
def test_ways_to_specify_a_pod(options: tuple[str, ...]) -> None:
    """Each way specifies the same pod."""
    document = json.loads(explain_pod_in(NODE + WAITING, *options, "-o", "json").stdout)
    assert (document["namespace"], document["name"], document["node"]) == ("shop", "waiting", "n")


def test_the_other_pods_may_be_scheduled_first() -> None:
    """With --others-placed the explanation considers the placements of the other pods."""
    command = ["explain", "-f", EXAMPLE, "--pod", "ml/train-2", "-o", "json"]
    alone = json.loads(CliRunner().invoke(bayplan, command).stdout)
    assert (alone["verdict"], alone["node"]) == ("Fits", "gpu-1")
    after = json.loads(CliRunner().invoke(bayplan, [*command, "--others-placed"]).stdout)
    assert after["verdict"] == "Unschedulable"
    assert after["nearest"][0]["lacks"][0]["amounts"] == [{"resource": "example.com/gpu", "needed": 1, "free": 0}]
    assert "pod ml/train-0 deleted from node gpu-1" in [event["what"] for event in after["unblocking"]]


@table(
    "options, text",
    ("no pod", (), "specify one pod"),
    ("two pods", ("a", "--pod", "b"), "specify one pod"),
    ("two namespaces", ("--pod", "a/b", "-n", "c"), "cannot be combined with -n"),
    ("files and a cluster", ("a", "--offline"), "specify only one of"),
    ("files and a kubeconfig", ("a", "--kubeconfig", "k"), "choose a cluster; leave them out with -f"),
)
def test_options_that_cannot_be_combined(options: tuple[str, ...], text: str) -> None:
    """Options that cannot be combined are a usage error with a remedy."""
    result = explain_pod_in(NODE, *options)
    assert result.exit_code == 2
    assert text in result.stderr


def test_others_placed_requires_files() -> None:
    """--others-placed requires files, because pods of a cluster are not rescheduled."""
    result = CliRunner().invoke(bayplan, ["explain", "web", "--others-placed"])
    assert result.exit_code == 2
    assert "--others-placed requires -f" in result.stderr


def test_a_missing_pod_is_an_error() -> None:
    """The error for a missing pod names the pending pods."""
    result = explain_pod_in(NODE + WAITING, "--pod", "shop/nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == ("bayplan: --pod: pod shop/nope is not in the files; pending pods: shop/waiting\n")
