"""Preemption on a real API server whose watches and responses to deletions are late.

A proxy delays all watch events and the responses to deletions, so that preemptors are tried between the response to an
eviction and its watch event. No more pods are evicted than are needed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.faulty_proxy import FaultyProxy
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("kwok"), pytest.mark.timeout(300)]
WATCH_SECONDS, DELETION_SECONDS = 0.6, 0.3
NODES = [f"n{number:02}" for number in range(20)]
PREEMPTORS = 10
UNRELATED = 10


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start the only operator, behind the proxy."""
    directory = tmp_path_factory.mktemp("lagging")
    with FaultyProxy(plane, directory) as proxy:
        proxy.lag(WATCH_SECONDS, DELETION_SECONDS)
        with OperatorProcess(proxy.kubeconfig, directory / "operator.log") as operator:
            operator.start()
            yield operator


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveGangs]:
    """Create nodes that a pod of low priority fills each, and pods on another node."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile({})
        world.nodes(*NODES, cpu="2")
        world.nodes("other", cpu="1")
        for value, name in enumerate(("low", "high"), start=1):
            world.cluster_object("PriorityClass", name, "scheduling.k8s.io/v1", value=value)
        world.job("victims", len(NODES), group="", cpu="2", spec={"priorityClassName": f"{world.token}-low"})
        spec = {
            "priorityClassName": f"{world.token}-low",
            "nodeSelector": {"kubernetes.io/hostname": f"{world.token}-other"},
        }
        world.job("other", UNRELATED, group="", cpu="50m", spec=spec)
        world.until_bound("victims", len(NODES))
        world.until_bound("other", UNRELATED)
        yield world


def evicted(world: LiveGangs) -> int:
    """Return the number of victims that are gone or being deleted."""
    left = [pod for pod in world.pods("victims").values() if "deletionTimestamp" not in pod["metadata"]]
    return len(NODES) - len(left)


def preempt(world: LiveGangs, group: str, name: str, count: int) -> None:
    """Create preemptors, delete unrelated pods meanwhile, and wait until the preemptors are bound."""
    world.job(name, count, group=group, cpu="2", spec={"priorityClassName": f"{world.token}-high"})
    for number in range(UNRELATED):
        world.delete(f"other-{number}")
    world.until_bound(name, count)


def test_pods_evict_one_pod_each(world: LiveGangs) -> None:
    """Each preemptor evicts one pod, although unrelated deletions requeue the preemptors during the evictions."""
    preempt(world, "", "pods", PREEMPTORS)
    assert evicted(world) == PREEMPTORS


def test_a_gang_evicts_one_pod_for_each_member(world: LiveGangs) -> None:
    """A gang evicts as many pods as it has members."""
    world.group("train", PREEMPTORS)
    preempt(world, "train", "train", PREEMPTORS)
    assert evicted(world) == PREEMPTORS
