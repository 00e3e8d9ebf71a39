"""The checks for states that a cluster must never have find them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hack.controlplane import accounts
from tests.support.tables import table

Manifest = dict[str, Any]


def node(**amounts: str) -> Manifest:
    return {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"} | amounts}}


def pod(cpu: str = "1", memory: str = "512Mi", node_name: str = "n", phase: str = "Running") -> Manifest:
    container = {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"spec": {"nodeName": node_name, "containers": [container]}, "status": {"phase": phase}}


@table(
    "pods, found",
    ("full", [pod(), pod()], []),
    ("a milli CPU too much", [pod(), pod("1001m")], ["n: cpu 2.001 of 2"]),
    ("a byte too much", [pod(memory="1Gi"), pod(memory="1")], ["n: memory 1.07374e+09 of 1.07374e+09"]),
    ("pods", [pod("0"), pod("0"), pod("0")], ["n: memory 1.61061e+09 of 1.07374e+09", "n: pods 3 of 2"]),
    ("succeeded pods do not count", [pod("3", phase="Succeeded")], []),
    ("pending pods do not count", [pod("3", node_name="")], []),
    ("missing node", [pod(node_name="gone")], ["gone: has 1 pods and is no node"]),
)
def test_overcommitted_nodes_are_named(pods: list[Manifest], found: list[str]) -> None:
    """A node is reported if requests of any resource or the number of pods exceed what is allocatable."""
    assert sorted(accounts.overcommitted([node()], pods)) == found


@table(
    "quantity, thousandths",
    ("milli", "250m", 250),
    ("decimal", "0.5", 500),
    ("kilo", "2k", 2_000_000),
    ("binary", "1Ki", 1_024_000),
)
def test_quantities(quantity: str, thousandths: int) -> None:
    """Suffixes of quantities are powers of ten or of two."""
    assert accounts.milli(quantity) == thousandths


@table(
    "status, node_name, found",
    ("bound, condition True", "True", "n", []),
    ("bound, condition False", "False", "n", ["p"]),
    ("pending, condition False", "False", "", []),
)
def test_conditions_that_are_left_false(status: str, node_name: str, found: list[str]) -> None:
    """A bound pod whose PodScheduled condition is False is reported."""
    conditions = [{"type": "PodScheduled", "status": status}]
    one = {"metadata": {"name": "p"}, "spec": {"nodeName": node_name}, "status": {"conditions": conditions}}
    assert accounts.reported_unscheduled([one]) == found


def test_bindings_are_counted_as_the_log_grows(tmp_path: Path) -> None:
    """Only successful binds count, an incomplete line is read when complete, and a second success is reported."""

    def line(name: str, code: int) -> str:
        reference = {"namespace": "x", "name": name, "subresource": "binding"}
        event = {"objectRef": reference, "responseStatus": {"code": code}}
        return json.dumps(event, separators=(",", ":")) + "\n"

    path = tmp_path / "audit.log"
    whole = line("b", 201)
    path.write_text(line("a", 201) + line("b", 409) + whole[:20])
    log = accounts.BindingLog(path)
    assert log.read() == 1
    with path.open("a") as file:
        file.write(whole[20:] + line("a", 201))
    assert log.read() == 2
    assert log.twice() == ["x/a"]
