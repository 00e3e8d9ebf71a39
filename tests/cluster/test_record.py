"""A record of a real operator: replay, replay up to a pod, and the file of a killed operator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PODS = 30
# A decision is not compared if the state changes before the shadow makes it, which happens more on a busy machine.
COMPARED = 3
VERSION = "bayplan.dev/v1alpha1"
PROFILES = f"/apis/{VERSION}/schedulerprofiles"
SECRET = "very-secret-value"


@pytest.fixture
def world(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[LiveWorld]:
    """Start a separate operator with a profile and two nodes."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log") as operator:
        operator.start()
        with live_world(plane, operator, namespace) as world:
            world.profile({})
            world.node("a", cpu="8")
            world.node("b", cpu="8")
            yield world


def bayplan(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "bayplan", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def schedule(world: LiveWorld) -> None:
    """Schedule pods that fit and one that is infeasible."""
    for number in range(PODS):
        world.pod(f"p{number}", cpu="100m")
    world.pod("large", cpu="100")
    for number in range(PODS):
        world.until_scheduled(f"p{number}")
    world.until_rejected("large", "Insufficient cpu")


def test_a_record_is_replayed(world: LiveWorld) -> None:
    """Replay computes every decision again with equal results; --until explains one decision on a pod."""
    schedule(world)
    nodes = {f"p{number}": world.node_of(f"p{number}") for number in range(PODS)}
    world.operator.terminate()
    found = bayplan("replay", world.operator.records)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "decisions, all equal" in found.stdout
    assert int(found.stdout.split()[0]) > PODS
    shown = bayplan("replay", world.operator.records, "--until", f"{world.namespace}/p7", "-o", "json")
    explanation = json.loads(shown.stdout)
    assert explanation["node"] == nodes["p7"]
    shown = bayplan("replay", world.operator.records, "--until", f"{world.namespace}/large")
    assert "Insufficient cpu" in shown.stdout
    missing = bayplan("replay", world.operator.records, "--until", f"{world.namespace}/missing")
    assert missing.returncode == 2
    assert "has no decision 1 on pod" in missing.stderr


def test_a_record_with_a_shadow(world: LiveWorld) -> None:
    """With a shadow, the decisions of the live profile are computed again in the recorded order of tasks."""
    spec = {"shadowOf": world.token, "shadowBudgetPercent": 100}
    shadow = f"{PROFILES}/{world.cluster_object('SchedulerProfile', 'next', VERSION, spec=spec)}"
    world.until(lambda: "shadow" in status_of(world.api.get(shadow)), "the shadow runs")
    schedule(world)

    def compared() -> int:
        return int(status_of(world.api.get(shadow)).get("shadow", {}).get("compared", 0))

    world.until(lambda: compared() >= COMPARED, "the shadow has compared")
    world.operator.terminate()
    found = bayplan("replay", world.operator.records)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "decisions, all equal" in found.stdout


def test_a_record_of_a_killed_operator(world: LiveWorld) -> None:
    """The record of a killed operator is readable, and its decisions are equal."""
    schedule(world)
    world.operator.until(lambda: b"large" in content(world), "the last decision is in the file")
    world.operator.kill()
    found = bayplan("replay", world.operator.records)
    assert found.returncode == 0, found.stdout + found.stderr
    assert int(found.stdout.split()[0]) > PODS


def content(world: LiveWorld) -> bytes:
    """Return the decompressed record as JSON."""
    found = bayplan("record", "show", world.operator.records, "-o", "json")
    return found.stdout.encode()
