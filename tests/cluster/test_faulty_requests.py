"""Single requests fail in many ways, at a proxy between the operator and a real API server.

Servers that are killed are in ``test_faults.py``. To run more seeds: ``FAULTY_SEEDS=20 pytest`` on this file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
from hack.controlplane.volume_controller import VolumeController
from tests.support.faulty_proxy import FaultyProxy
from tests.support.live_servers import module_plane
from tests.support.mixed_drain import PODS, MixedDrain
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SEEDS = range(1, 1 + int(os.environ.get("FAULTY_SEEDS", "1")))
RATE = 0.15
EXTRA_SECONDS = 3.0
SETTLED_SECONDS = 90.0
MOST_LINES = 100
# kopf logs a traceback each time one of its watches ends, and restarts the watch.
# The lines of preemption victims are left out: their number depends on when the preemptors arrive, not on the faults.
OWN_LINES = r"(?m)^\S+ \S+ +[A-Z]+ +(?:bayplan|scheduler_core)\b(?!\.plugins\.default_preemption\.eviction)"
OWN_TRACES = r"(?m)^.* (?:bayplan|scheduler_core)\S*: .*\nTraceback.*(?:\n .*)*\n.*"
# Two renewals in a row without a response lose a Lease, whatever its deadline, and the process ends; a deadline of two
# minutes is longer than requests fail here.
ELECTION = {"leaderElect": True, "leaseDuration": 150, "renewDeadline": 120}
SOURCES = Path(__file__).resolve().parents[2]

plane = module_plane(options=Options(audit=True))


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """Start the proxy between operator and API server."""
    with FaultyProxy(plane, tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def operator(
    proxy: FaultyProxy, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Start the only operator; one process serves every seed."""
    directory = tmp_path_factory.mktemp("operator")
    settings = directory / "settings.yaml"
    settings.write_text(yaml.safe_dump({"leaderElection": ELECTION}))
    arguments = ["--settings", str(settings)]
    with VolumeController(plane), OperatorProcess(proxy.kubeconfig, directory / "operator.log", arguments) as operator:
        operator.start()
        yield operator


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"seed {seed}") for seed in SEEDS])
def test_a_drain_survives_faulty_requests(
    seed: int, plane: ControlPlane, proxy: FaultyProxy, operator: OperatorProcess
) -> None:
    """No pod is lost, bound twice or preempted without need, no node is overcommitted, and the log is short."""
    before = len(operator.log)
    proxy.fault_counts.clear()
    with MixedDrain(plane, operator) as drain:
        drain.prepare()
        proxy.inject_faults(seed, RATE)
        drain.begin()
        drain.burst()
        drain.run_for(EXTRA_SECONDS)
        proxy.stop_faults()
        drain.settle(SETTLED_SECONDS)
        operator.until(
            lambda: len(drain.pods_without_events()) <= given_up_events(operator.log[before:]),
            "all pods have their events",
        )
        assert drain.violations() == []
        operator.until(lambda: checked_cache(operator) == "", "the cache agrees with the API server")
        drain.make_room(SETTLED_SECONDS)
        assert drain.violations() == []
    logged = operator.log[before:]
    operator.until(operator.is_alive, "the operator is alive")
    assert re.findall(OWN_TRACES, logged) == []
    assert len(re.findall(OWN_LINES, logged)) <= MOST_LINES, logged
    assert len(proxy.fault_counts) >= 30, proxy.fault_counts
    assert sum(proxy.fault_counts.values()) >= PODS * RATE, proxy.fault_counts


def given_up_events(log: str) -> int:
    """Return the number of events that were dropped after all retries, from the log."""
    return len(re.findall(r"EVENT of Event \S+ failed and is not retried", log))


def checked_cache(operator: OperatorProcess) -> str:
    """Return the differences between the scheduler's cache and the API server, from ``bayplan status``."""
    command = [sys.executable, "-m", "bayplan", "status", "--check-cache", "--server", operator.url]
    outcome = subprocess.run(command, cwd=SOURCES / "operator", capture_output=True, text=True, check=False)
    return outcome.stdout + outcome.stderr if outcome.returncode else ""
