"""Tests of ``make demo-gang``: a simulation of its objects gives the results that the demo shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import installed_plugins
from bayplan.simulation.simulation import SimulationResult, Verdict, simulate

from hack.demo import gangs
from hack.demo.manifests import Job, gpu_nodes
from hack.demo.stage import PROFILES

JOBS = (gangs.ALPHA, gangs.BETA, gangs.SMALL, gangs.LARGE, gangs.DEVELOPERS, gangs.NIGHTLY, gangs.URGENT)


def workers(job: Job) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = json.loads(job.pods)["items"]
    return pods


def outcome(directory: Path, *jobs: Job, running: Sequence[dict[str, Any]] = ()) -> SimulationResult:
    """Simulate jobs on the demo's nodes with the demo's profile."""
    items = [*json.loads(gpu_nodes(gangs.NODES))["items"], *running]
    for job in jobs:
        items += workers(job)
        if job.group is not None:
            items.append(json.loads(job.pod_group))
    path = directory / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    files = [str(path), str(PROFILES / "pack.yaml")]
    return simulate(admit(read_cluster_files(files, installed_plugins().decoded_types())))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_no_worker_completes_by_itself(job: Job) -> None:
    """Workers have no owner: kwok completes pods that a Job owns, and the demo deletes its workers itself."""
    assert [pod["metadata"]["name"] for pod in workers(job) if "ownerReferences" in pod["metadata"]] == []


def test_one_of_two_gangs_fits(tmp_path: Path) -> None:
    """One gang is scheduled completely; no member of the other gang is scheduled."""
    result = outcome(tmp_path, gangs.ALPHA, gangs.BETA)
    assert sorted(gang.placed for gang in result.gangs) == [0, 5]


def test_small_pods_fill_the_cluster(tmp_path: Path) -> None:
    """While small pods use all GPUs, no worker of the large gang is scheduled, and more small pods are pending."""
    nodes = [node["metadata"]["name"] for node in json.loads(gpu_nodes(gangs.NODES))["items"]]
    running = workers(gangs.SMALL)[: gangs.GPUS]
    for number, pod in enumerate(running):
        pod["spec"]["nodeName"] = nodes[number % len(nodes)]
    result = outcome(tmp_path, gangs.LARGE, running=running)
    assert [(gang.name, gang.placed) for gang in result.gangs] == [(gangs.LARGE.name, 0)]
    assert gangs.SMALL.workers > gangs.GPUS + 4
    assert gangs.LARGE.workers * gangs.LARGE.gpus == gangs.GPUS


def test_the_cluster_is_full_before_the_preemption(tmp_path: Path) -> None:
    """The developers' pods and the nightly gang leave no GPU free, so the urgent gang needs victims."""
    result = outcome(tmp_path, gangs.DEVELOPERS, gangs.NIGHTLY)
    assert result.count(Verdict.PLACED) == gangs.DEVELOPERS.workers + gangs.NIGHTLY.workers
    assert sum(usage.requested for node in result.nodes for usage in node.others.values()) == gangs.GPUS
