"""Tests of ``make demo-room``: the objects of its examples give the plan that the demo shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.demo import room
from hack.demo.manifests import gpu_nodes
from hack.demo.stage import PROFILES
from tests.support.tables import table


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((room.FILES / f"{name}.yaml").read_text()))


def pods_of(document: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the pods of a Deployment or a Job."""
    template, name = document["spec"]["template"], document["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Owner", "name": name, "uid": name, "controller": True}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"{name}-{number}", "ownerReferences": [owner]},
            "spec": dict(template["spec"]),
        }
        for number in range(count)
    ]


def plan(folder: Path, replicas: int, allowed: int = 1) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the plan that makes room for the gang beside replicas on all nodes in turn."""
    deployment, budget = documents("serve")
    group, job = documents("train")
    serving = pods_of(deployment, replicas)
    for number, each in enumerate(serving):
        each["spec"]["nodeName"] = f"gpu-{number % room.NODES}"
        each["status"] = {"phase": "Running"}
    budget["status"] = {"disruptionsAllowed": allowed}
    found = [
        *json.loads(gpu_nodes(room.NODES))["items"],
        *yaml.safe_load_all((PROFILES / "pack.yaml").read_text()),
        *serving,
        *pods_of(job, 2),
        budget,
        group,
    ]
    cluster = folder / "cluster.yaml"
    cluster.write_text("\n---\n".join(map(json.dumps, found)))
    command = ["rebalance", "--dry-run", "-f", str(cluster), "--make-room", "default/train", "-o", "json"]
    result = CliRunner().invoke(bayplan, command)
    return result.exit_code, json.loads(result.stdout)


def test_the_moves(tmp_path: Path) -> None:
    """Two nodes are emptied by four moves, each to a node that stays in use."""
    code, document = plan(tmp_path, room.LEFT)
    assert (code, document["gain"]["gangFits"], len(document["moves"])) == (0, True, 4)
    sources, targets = ({each[key] for each in document["moves"]} for key in ("source", "target"))
    assert len(sources) == 2
    assert not sources & targets


@table(
    "replicas, allowed",
    ("all-replicas", room.FULL, 1),
    ("no-disruption", room.LEFT, 0),
)
def test_no_moves(tmp_path: Path, replicas: int, allowed: int) -> None:
    """Nothing is moved if the other nodes have no room, or the budget allows no disruption."""
    code, document = plan(tmp_path, replicas, allowed)
    assert (code, document["moves"]) == (10, [])


@pytest.mark.parametrize("name", ["serve", "train", "plan"])
def test_the_examples_are_valid(name: str) -> None:
    """``bayplan validate`` accepts them, with no note."""
    result = CliRunner().invoke(
        bayplan, ["validate", "--strict", str(room.FILES / f"{name}.yaml"), str(PROFILES / "pack.yaml")]
    )
    assert result.exit_code == 0, result.output


def test_a_plan_is_a_dry_run_at_first() -> None:
    """The example moves nothing when it is applied."""
    (document,) = documents("plan")
    assert document["spec"]["dryRun"] is True
    assert document["metadata"]["name"] == room.PLAN
