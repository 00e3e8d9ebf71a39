"""Real Karpenter, with its provider of kwok nodes, beside an operator: which pods it adds nodes for, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_karpenter
from tests.support.live_gangs import LiveGangs
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.karpenter, pytest.mark.timeout(240)]

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_CLASS_GROUP = "karpenter.kwok.sh"

plane = module_plane(ControlPlane.start_kwok, start_karpenter)


class KarpenterGangs(LiveGangs):
    """:class:`LiveGangs` with a NodePool."""

    def node_pool(self) -> None:
        """Create a NodePool whose nodes have four CPUs and accept the pods of this test."""
        name = self.cluster_object("KWOKNodeClass", "class", f"{_CLASS_GROUP}/v1alpha1", spec={})
        template: dict[str, Any] = {
            "metadata": {"labels": {"for": self.token}},
            "spec": {
                "nodeClassRef": {"group": _CLASS_GROUP, "kind": "KWOKNodeClass", "name": name},
                "requirements": [{"key": f"{_CLASS_GROUP}/instance-cpu", "operator": "In", "values": ["4"]}],
                "expireAfter": "Never",
            },
        }
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
        self.cluster_object(
            "NodePool", "pool", "karpenter.sh/v1", spec={"template": template, "disruption": disruption}
        )

    def claims(self) -> list[Manifest]:
        """Return the nodes that Karpenter has requested, as NodeClaims."""
        return self.api.items(CLAIMS)

    def until_a_probe_is_bound(self) -> None:
        """Create a pod that needs a node of its own, and wait until it is bound.

        Karpenter has then considered all pods that were unschedulable before.
        """
        self.pod("probe", cpu="3")
        self.until_scheduled("probe")


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[KarpenterGangs]:
    """Create a profile and a NodePool."""
    with ApiClient(plane) as api:
        world = KarpenterGangs(api, operator, "default")
        world.profile({})
        world.node_pool()
        yield world
        world.delete(*world.pods())
        plane.kubectl("delete", "nodeclaims", "--all")
        world.clean_up()


def test_a_gang_that_needs_two_nodes(world: KarpenterGangs) -> None:
    """For a gang of six members, of which four fit on the present nodes, Karpenter adds exactly two nodes."""
    world.nodes("a", "b", "c", "d", cpu="4")
    world.group("train", 6)
    world.job("train", 6, cpu="3")
    nodes = world.until_bound("train", 6)
    assert len(set(nodes.values())) == 6
    assert len(world.claims()) == 2


def test_a_gang_that_no_node_helps(world: KarpenterGangs) -> None:
    """Karpenter adds no node for a gang of which a member lacks its PersistentVolumeClaim."""
    world.nodes("small", cpu="1")
    world.group("train", 3)
    world.job("train", 2, cpu="3")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    world.job("train", 1, first=2, cpu="3", spec={"volumes": [volume]})
    world.until(lambda: world.condition("train-0").get("reason") == "NoNodeHelps", "the members report it")
    world.until_a_probe_is_bound()
    assert len(world.claims()) == 1
    assert not world.bound("train")


def test_a_gang_without_its_quorum(world: KarpenterGangs) -> None:
    """Karpenter adds no node for members that wait for others, and those that it needs once they exist."""
    world.nodes("small", cpu="1")
    world.group("train", 3)
    world.job("train", 2, cpu="3")
    world.until(lambda: world.condition("train-0").get("reason") == "SchedulingGated", "the members report it")
    world.until_a_probe_is_bound()
    assert len(world.claims()) == 1
    world.job("train", 1, first=2, cpu="3")
    world.until_bound("train", 3)
    assert len(world.claims()) == 4
