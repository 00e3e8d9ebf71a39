"""``bayplan explain -f`` as its users see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

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
spec: {nodeName: n, containers: [{name: main, resources: {requests: {cpu: 3680m}}}]}
---
"""
WAITING = """
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: shop}
spec: {containers: [{name: main, resources: {requests: {cpu: 500m}}}]}
---
"""


def explained(text: str, *options: str) -> Result:
    """Run the command on a text."""
    return CliRunner().invoke(bayplan, ["explain", "-f", "-", *options], input=text)


def test_prints_for_people() -> None:
    """Why not, what is lacking in amounts, what preemption would do, and what would help."""
    result = explained(NODE + RUNNING + WAITING, "--pod", "shop/waiting")
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
        "Preemption  0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        "",
        "Events that would requeue it",
        "EVENT                                    RESULT      QUEUEING HINT OF",
        "node n grown to 4180m cpu allocatable    fits on n   NodeResourcesFit",
        "pod default/running deleted from node n  fits on n   NodeResourcesFit",
        "a node added with 500m cpu or more free  fits on it  NodeResourcesFit",
    ]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--pod", "shop/waiting"), id="--pod with a namespace"),
        pytest.param(("--pod", "waiting", "-n", "shop"), id="--pod and -n"),
        pytest.param(("waiting", "-n", "shop"), id="as with kubectl"),
    ],
)
def test_ways_to_name_a_pod(options: tuple[str, ...]) -> None:
    """All mean the same pod."""
    document = json.loads(explained(NODE + WAITING, *options, "-o", "json").stdout)
    assert (document["namespace"], document["name"], document["node"]) == ("shop", "waiting", "n")


def test_yaml_says_the_same_as_json() -> None:
    """Two spellings of one document."""
    options = ("--pod", "shop/waiting", "-o")
    text = NODE + RUNNING + WAITING
    assert json.loads(explained(text, *options, "json").stdout) == yaml.safe_load(
        explained(text, *options, "yaml").stdout
    )


def test_the_other_pods_may_be_placed_first() -> None:
    """Two of three fit on the GPU node; the third is told whose going would help."""
    asked = ["explain", "-f", EXAMPLE, "--pod", "ml/train-2", "-o", "json"]
    alone = json.loads(CliRunner().invoke(bayplan, asked).stdout)
    assert (alone["verdict"], alone["node"]) == ("Fits", "gpu-1")
    after = json.loads(CliRunner().invoke(bayplan, [*asked, "--others-placed"]).stdout)
    assert after["verdict"] == "Unschedulable"
    assert after["nearest"][0]["lacks"][0]["amounts"] == [{"resource": "example.com/gpu", "needed": 1, "free": 0}]
    assert "pod ml/train-0 deleted from node gpu-1" in [event["what"] for event in after["unblocking"]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param((), "name one pod", id="no pod"),
        pytest.param(("a", "--pod", "b"), "name one pod", id="two pods"),
        pytest.param(("--pod", "a/b", "-n", "c"), "goes without -n", id="two namespaces"),
        pytest.param(("a", "--offline"), "choose one of", id="files and a cluster"),
        pytest.param(("a", "--kubeconfig", "k"), "go with --offline", id="files and a kubeconfig"),
        pytest.param(("--cases", "c"), "--cases goes without", id="files and cases"),
    ],
)
def test_options_that_do_not_go_together(options: tuple[str, ...], text: str) -> None:
    """Exit code 2 and what to do."""
    result = explained(NODE, *options)
    assert result.exit_code == 2
    assert text in result.stderr


def test_a_cluster_has_its_pods_placed_already() -> None:
    """--others-placed is for files."""
    result = CliRunner().invoke(bayplan, ["explain", "web", "--others-placed"])
    assert result.exit_code == 2
    assert "--others-placed goes with -f" in result.stderr


def test_a_pod_that_is_not_there() -> None:
    """The ones that wait are named."""
    result = explained(NODE + WAITING, "--pod", "shop/nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "bayplan: --pod: there is no pod shop/nope in the files; those that wait are: shop/waiting\n"
    )
