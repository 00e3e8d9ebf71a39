"""The checks for states that a cluster must never have find them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane import accounts

Manifest = dict[str, Any]


def node(**amounts: str) -> Manifest:
    return {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"} | amounts}}


def pod(cpu: str = "1", memory: str = "512Mi", node_name: str = "n", phase: str = "Running") -> Manifest:
    container = {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"spec": {"nodeName": node_name, "containers": [container]}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        pytest.param([pod(), pod()], [], id="full"),
        pytest.param([pod(), pod("1001m")], ["n: cpu 2.001 of 2"], id="a milli CPU too much"),
        pytest.param(
            [pod(memory="1Gi"), pod(memory="1")], ["n: memory 1.07374e+09 of 1.07374e+09"], id="a byte too much"
        ),
        pytest.param(
            [pod("0"), pod("0"), pod("0")], ["n: memory 1.61061e+09 of 1.07374e+09", "n: pods 3 of 2"], id="pods"
        ),
        pytest.param([pod("3", phase="Succeeded")], [], id="succeeded pods do not count"),
        pytest.param([pod("3", node_name="")], [], id="pending pods do not count"),
        pytest.param([pod(node_name="gone")], ["gone: has 1 pods and is no node"], id="missing node"),
    ],
)
def test_overcommitted_nodes_are_named(pods: list[Manifest], found: list[str]) -> None:
    """A node is reported if requests of any resource or the number of pods exceed what is allocatable."""
    assert sorted(accounts.overcommitted([node()], pods)) == found


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [
        pytest.param("250m", 250, id="milli"),
        pytest.param("0.5", 500, id="decimal"),
        pytest.param("2k", 2_000_000, id="kilo"),
        pytest.param("1Ki", 1_024_000, id="binary"),
    ],
)
def test_quantities(quantity: str, thousandths: int) -> None:
    """Suffixes of quantities are powers of ten or of two."""
    assert accounts.milli(quantity) == thousandths


@pytest.mark.parametrize(
    ("status", "node_name", "found"),
    [
        pytest.param("True", "n", [], id="bound, condition True"),
        pytest.param("False", "n", ["p"], id="bound, condition False"),
        pytest.param("False", "", [], id="pending, condition False"),
    ],
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
