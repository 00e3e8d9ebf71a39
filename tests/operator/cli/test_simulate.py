"""Tests of ``bayplan simulate``."""

import json
from pathlib import Path
from typing import Any

import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "simulate" / "cluster.yaml")

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10", example.com/fpga: "2"}}
---
"""
SMALL = """
apiVersion: v1
kind: Pod
metadata: {name: small}
spec: {containers: [{name: main, image: x, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
---
"""
LARGE = """
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: shop}
spec: {containers: [{name: main, image: x, resources: {requests: {cpu: "64"}}}]}
---
"""


def simulate(text: str, *options: str) -> Result:
    """Run the command on manifests."""
    return CliRunner().invoke(bayplan, ["simulate", "-", *options], input=text)


def test_prints_tables() -> None:
    """The output has the summary, resources and causes, followed by pods and nodes."""
    result = simulate(NODE + SMALL + LARGE)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "1 of 2 pods scheduled to 1 of 1 nodes; 1 unschedulable",
        "",
        "RESOURCE          REQUESTED  ALLOCATABLE       LARGEST FREE  UNUSABLE",
        "pods                      1           10  10%             9         -",
        "cpu                    500m            4  12%           3.5       50%",
        "memory                  1Gi          8Gi  12%           7Gi        0%",
        "example.com/fpga          0            2   0%             2         -",
        "",
        "UNSCHEDULED  CAUSE             EXAMPLE",
        "          1  Insufficient cpu  shop/large",
        "",
        "POD            PROFILE            NODE  REASON",
        "default/small  default-scheduler  n",
        (
            "shop/large     default-scheduler  -     0/1 nodes are available: 1 Insufficient cpu. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ),
        "",
        "NODE  PODS     CPU        MEMORY       OTHER RESOURCES",
        "n     1/10  500m/4  12%  1Gi/8Gi  12%  example.com/fpga 0/2",
    ]


def total(requested: int, allocatable: int, unusable: float | None = None) -> dict[str, Any]:
    """Return the amounts of a resource on a single node."""
    return {
        "requested": requested,
        "allocatable": allocatable,
        "largestFreeOnOneNode": allocatable - requested,
        "unusableShareOfFree": unusable,
        "imbalance": None,
    }


EXPECTED: dict[str, Any] = {
    "pods": [
        {
            "namespace": "default",
            "name": "small",
            "schedulerName": "default-scheduler",
            "verdict": "Placed",
            "node": "n",
            "reason": None,
            "attempts": 1,
        }
    ],
    "nodes": [
        {
            "name": "n",
            "pods": 1,
            "allowedPods": 10,
            "cpuMilli": 500,
            "allocatableCpuMilli": 4000,
            "memoryBytes": 1 << 30,
            "allocatableMemoryBytes": 8 << 30,
            "otherResources": {"example.com/fpga": {"requested": 0, "allocatable": 2}},
            "devices": {},
        }
    ],
    "gangs": [],
    "summary": {
        "placed": 1,
        "unschedulable": 0,
        "gated": 0,
        "noProfile": 0,
        "errors": 0,
        "running": 0,
        "resources": {
            "pods": total(1, 10),
            "cpu": total(500, 4000, unusable=0.0),
            "memory": total(1 << 30, 8 << 30, unusable=0.0),
            "example.com/fpga": total(0, 2),
        },
        "devices": {},
        "causes": [],
    },
    "claims": {"groups": [], "omitted": 0},
    "notices": [],
}


def test_prints_json() -> None:
    """JSON output has the data in units that need no parsing."""
    assert json.loads(simulate(NODE + SMALL, "-o", "json").stdout) == EXPECTED


def test_prints_yaml() -> None:
    """YAML output has the same data."""
    assert yaml.safe_load(simulate(NODE + SMALL, "-o", "yaml").stdout) == EXPECTED


@table(
    "text, options, exit_code",
    ("all scheduled", NODE + SMALL, (), 0),
    ("unschedulable", NODE + LARGE, (), 0),
    ("unschedulable, in CI", NODE + LARGE, ("--fail-on-unschedulable",), 3),
    ("all scheduled, in CI", NODE + SMALL, ("--fail-on-unschedulable",), 0),
    ("invalid manifest", "a: [", (), 2),
    ("invalid option", NODE, ("--seed", "-1"), 2),
)
def test_exit_codes(text: str, options: tuple[str, ...], exit_code: int) -> None:
    """The exit code distinguishes invalid input and, on request, unschedulable pods."""
    assert simulate(text, *options).exit_code == exit_code


def test_notices_go_to_standard_error() -> None:
    """Notices are printed on standard error."""
    result = simulate(f"{NODE}apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n")
    assert "note: 1 ConfigMap is ignored" in result.stderr
    assert result.stdout.splitlines()[0] == "no pending pods"


def test_problems_name_the_file() -> None:
    """The error for an invalid manifest names its place."""
    result = simulate("apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\nspec: {containers: [{name: c, image: x}]}\n")
    assert result.stderr == (
        "bayplan: standard input, document 1 (Pod 5): metadata.name: must be text, not 5; put it in quotes\n"
    )


def test_reads_several_files(tmp_path: Path) -> None:
    """Nodes and pods can be in different files."""
    for name, text in (("nodes.yaml", NODE), ("pods.yaml", SMALL)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(bayplan, ["simulate", str(tmp_path / "nodes.yaml"), str(tmp_path / "pods.yaml")])
    assert result.stdout.splitlines()[0] == "1 of 1 pods scheduled to 1 of 1 nodes"


def test_the_same_files_give_the_same_result() -> None:
    """Two runs with the same seed have the same output."""
    first, second = (CliRunner().invoke(bayplan, ["simulate", EXAMPLE, "--seed", "7"]).stdout for _ in range(2))
    assert first == second
