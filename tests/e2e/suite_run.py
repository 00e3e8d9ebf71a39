"""Run the suite once, on a control plane with kwok nodes, controllers, and a scheduler as ``default-scheduler``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.controlplane.binaries import resolve
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import free_port
from hack.controlplane.schedulers import BAYPLAN, start_bayplan, start_kube_scheduler

NODES = 4
_SCHEDULER_NAME = "default-scheduler"
_AMOUNTS = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one test.

    Args:
        state: State in ginkgo's report: passed, skipped, failed, timedout, panicked, interrupted.
        message: First line of the failure, or the reason of the skip.
        seconds: Duration.
    """

    state: str
    message: str = ""
    seconds: float = 0.0


def run_suite(scheduler: str, directory: Path, arguments: Sequence[str] = ()) -> dict[str, Result]:
    """Run the tests against a scheduler.

    Args:
        scheduler: ``bayplan`` or ``kube-scheduler``.
        directory: Directory for the log and the report.
        arguments: Further flags of the suite, such as ``--ginkgo.focus=REGEXP``.

    Returns:
        The result of each selected test, by its full name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    report, log = (directory / f"{scheduler}.{kind}" for kind in ("json", "log"))
    suite = resolve(["e2e"])["e2e"]
    with ControlPlane() as plane, log.open("wb") as sink:
        plane.start_kwok()
        plane.start_kube_controller_manager()
        for number in range(NODES):
            plane.kubectl("create", "--filename=-", input=json.dumps(_node(number)))
        if scheduler == BAYPLAN:
            start_bayplan(plane, _SCHEDULER_NAME, free_port(), flags=["--allow-default-scheduler"])
        else:
            start_kube_scheduler(plane, _SCHEDULER_NAME)
        command = [str(suite), f"--kubeconfig={plane.kubeconfig}", "--provider=skeleton", f"--num-nodes={NODES}"]
        command += ["--disable-log-dump", f"--ginkgo.json-report={report}", "--ginkgo.no-color", "--ginkgo.v"]
        command += [f"--ginkgo.timeout={_SECONDS}s", *arguments]
        subprocess.run(
            command, cwd=directory, stdout=sink, stderr=subprocess.STDOUT, timeout=_SECONDS + 60, check=False
        )
    return results_in(json.loads(report.read_text(encoding="utf-8")))


def results_in(report: Sequence[Mapping[str, Any]]) -> dict[str, Result]:
    """Read the results of the selected tests from ginkgo's JSON report.

    A failure of the setup counts as a failed test; tests that a flag leaves out are not in the result.
    """
    results = {}
    for suite in report:
        for spec in suite["SpecReports"] or ():
            failure = spec.get("Failure") or {}
            message = failure.get("Message", "")
            is_left_out = spec["State"] == "skipped" and not message
            is_setup = spec["LeafNodeType"] != "It"
            if spec["State"] == "pending" or is_left_out or (is_setup and spec["State"] == "passed"):
                continue
            name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"] or spec["LeafNodeType"]])
            lines = message.strip().splitlines()
            results[name] = Result(spec["State"], lines[0] if lines else "", spec["RunTime"] / 1e9)
    return results


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels["topology.kubernetes.io/zone"] = f"zone-{number % 2}"
    status = {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
