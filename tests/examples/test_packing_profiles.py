"""The packing profiles of examples and README fill nodes also with the pods of Deployments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]


def from_example() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "examples/profiles/pack.yaml").read_text(encoding="utf-8")))


def from_readme() -> list[dict[str, Any]]:
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    objects = [yaml.safe_load(block.partition("```")[0]) for block in blocks]
    return [each for each in objects if each.get("kind") == "SchedulerProfile"]


def deployment(replicas: int) -> list[dict[str, Any]]:
    """Return a ReplicaSet and a Service, and the pods as the controllers create them."""
    labels = {"app": "web", "pod-template-hash": "1"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
    replica_set = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "default", "uid": "rs-1"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip
    requests = {"cpu": "500m", "memory": "512Mi"}
    pods = [
        {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": f"web-1-{number}", "namespace": "default", "labels": labels, "ownerReferences": [owner],
            },
            "spec": {
                "schedulerName": "pack",
                "containers": [{"name": "m", "image": "x", "resources": {"requests": requests}}],
            },
        }
        for number in range(replicas)
    ]  # fmt: skip
    return [replica_set, *pods]


def nodes(count: int) -> list[dict[str, Any]]:
    """Return nodes in four zones, with room for eight pods each."""
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return [
        {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": f"n{number:02}",
                "labels": {"kubernetes.io/hostname": f"n{number:02}", "topology.kubernetes.io/zone": f"z{number % 4}"},
            },
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("profile", [from_example, from_readme], ids=["example", "README"])
def test_the_pods_of_a_replica_set_fill_two_nodes(profile: Callable[[], list[dict[str, Any]]], tmp_path: Path) -> None:
    """Sixteen pods of which eight fit on a node use two of sixteen nodes."""
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all([*profile(), *nodes(16), *deployment(16)]), encoding="utf-8")
    result = CliRunner().invoke(bayplan, ["simulate", str(file), "-o", "json"])
    assert result.exit_code == 0, result.output
    assert len({each["node"] for each in json.loads(result.stdout)["pods"]}) == 2
