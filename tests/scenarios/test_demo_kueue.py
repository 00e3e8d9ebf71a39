"""Tests of ``make demo-kueue``: the objects of its examples give the numbers that the demo shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.demo import kueue
from hack.demo.manifests import gpu_nodes
from tests.support.tables import table


def fit(folder: Path, name: str, *options: str, notebooks: int = 0) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document of ``bayplan fit`` for an example, on the nodes of the demo."""
    documents = [
        *json.loads(gpu_nodes(kueue.NODES))["items"],
        *(kueue.notebook(each) for each in kueue.NOTEBOOKS[:notebooks]),
        *yaml.safe_load_all((kueue.FILES / "profile.yaml").read_text()),
    ]
    for number, each in enumerate(documents[kueue.NODES : kueue.NODES + notebooks]):
        each["spec"]["nodeName"] = f"gpu-{number}"
    cluster = folder / "cluster.yaml"
    cluster.write_text("\n---\n".join(map(json.dumps, documents)))
    command = ["fit", "-f", str(kueue.FILES / f"{name}.yaml"), "--nodes-from", str(cluster), "-o", "json", *options]
    result = CliRunner().invoke(bayplan, command)
    return result.exit_code, json.loads(result.stdout)


@table(
    "notebooks, code",
    ("all-nodes", 4, 12),
    ("one-has-ended", 3, 12),
    ("two-have-ended", 2, 0),
)
def test_when_the_job_fits(tmp_path: Path, notebooks: int, code: int) -> None:
    """The Job of three workers fits when two notebooks have ended."""
    assert fit(tmp_path, "train", notebooks=notebooks)[0] == code


def test_new_nodes_for_the_last_replica(tmp_path: Path) -> None:
    """Two replicas fit on the nodes; three need two more nodes."""
    assert fit(tmp_path, "serve", "--count", str(kueue.REPLICAS - 1))[0] == 0
    code, document = fit(tmp_path, "serve", "--count", str(kueue.REPLICAS), "--node-template", kueue.TEMPLATE)
    assert (code, document["newNodes"]["count"]) == (11, 2)


@pytest.mark.parametrize("name", ["train", "sweep", "tune", "serve"])
def test_a_user_writes_no_group(name: str) -> None:
    """The workloads have the label of their queue and the name of the profile, and nothing else for Kueue or gangs."""
    (document,) = yaml.safe_load_all((kueue.FILES / f"{name}.yaml").read_text())
    assert list(document["metadata"]["labels"]) == ["kueue.x-k8s.io/queue-name"]
    text = yaml.safe_dump(document)
    assert "schedulerName: batch" in text
    assert "pod-group" not in text
