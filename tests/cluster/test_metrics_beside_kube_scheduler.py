"""Bayplan exposes every metric that kube-scheduler exposes after the same scheduling, with the same labels."""

from __future__ import annotations

import http.client
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK
from tests.support.extender_cluster import ExtenderCluster
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kube_scheduler, pytest.mark.reference, pytest.mark.timeout(300)]

NOT_OURS = {
    "scheduler_batch_attempts": "Bayplan has no batches; it evaluates pods of a class by columns",
    "scheduler_batch_cache_flushed": "as above",
    "scheduler_get_node_hint_duration_seconds": "as above",
    "scheduler_batch_rescore_attempts": "as above",
    "scheduler_batch_rescore_duration_seconds": "as above",
    "scheduler_store_schedule_results_duration_seconds": "as above",
    "scheduler_plugin_execution_duration_seconds": "sampled (one cycle of ten here, random there): either may lack it",
}
"""Families of kube-scheduler that Bayplan need not expose, and why."""


@dataclass(frozen=True)
class Shape:
    """Properties of a metric family on which dashboards depend."""

    kind: str
    labels: frozenset[tuple[str, ...]]
    bounds: frozenset[float]


def shapes(text: str) -> dict[str, Shape]:
    """Return the families of a scrape whose names are kube-scheduler's."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("scheduler_") and family.samples:
            labels = frozenset(tuple(sorted(set(sample.labels) - {"le"})) for sample in family.samples)
            bounds = frozenset(float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels)
            found[family.name] = Shape(family.type, labels, bounds)
    return found


def scrape_kube_scheduler(argv: tuple[str, ...]) -> str:
    """Scrape the secure port of kube-scheduler."""
    arguments = dict(re.findall(r"--([a-z-]+)=(\S*)", " ".join(argv)))
    trusted = ssl.create_default_context(cafile=str(Path(arguments["cert-dir"]) / "kube-scheduler.crt"))
    connection = http.client.HTTPSConnection(LOOPBACK, int(arguments["secure-port"]), timeout=60, context=trusted)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == http.client.OK
        return answer.read().decode()
    finally:
        connection.close()


def schedule(cluster: ExtenderCluster, prefix: str) -> None:
    """Schedule three pods that fit and one that is infeasible."""
    for number in range(3):
        cluster.pod(f"{prefix}-{number}")
    for number in range(3):
        assert cluster.node_of(f"{prefix}-{number}")
    cluster.pod(f"{prefix}-infeasible", nodeSelector={"for": "no-node"})
    assert "didn't match" in cluster.unscheduled_message(f"{prefix}-infeasible")


def test_families_agree(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """Type, label names and buckets are equal; NOT_OURS lists the families that Bayplan lacks."""
    cluster = ExtenderCluster(control_plane, namespace, tmp_path)
    config = tmp_path / "config.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(control_plane.kubeconfig)},
        "profiles": [{"schedulerName": namespace}],
    }
    config.write_text(yaml.safe_dump(document))
    try:
        for short in "ab":
            cluster.node(short)
        reference = control_plane.start_kube_scheduler(
            config, ["--authorization-always-allow-paths=/readyz,/livez,/healthz,/metrics"]
        )
        try:
            schedule(cluster, "theirs")
            theirs = shapes(scrape_kube_scheduler(reference.command.argv))
        finally:
            reference.kill()
        with OperatorProcess(control_plane.kubeconfig, tmp_path / "log", [f"--config={config}"]) as process:
            process.start()
            schedule(cluster, "ours")
            expected = {name: shape for name, shape in theirs.items() if name not in NOT_OURS}
            ours: dict[str, Shape] = {}

            def agree() -> bool:
                nonlocal ours
                status, text = process.get("/metrics")
                ours = shapes(text) if status == http.client.OK else {}
                return all(ours.get(name) == shape for name, shape in expected.items())

            # Metrics of a pod are counted after the API server shows the pod's node or condition.
            with suppress(AssertionError):
                cluster.until(agree, "the families agree")
    finally:
        cluster.clean_up()
    assert len(theirs) > 15
    assert {name: ours.get(name) for name in expected} == expected
