"""The real descheduler beside an operator: policies that work against a profile, and gangs that lose members."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import run_descheduler
from tests.support.live_servers import CONTROLLERS, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

pytestmark = peer_marks("descheduler")

PACKS = {
    "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "PodTopologySpread"}]}},
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
        }
    ],
}
GANGS = {
    "gangs": {
        "fromOwners": [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "size": {"ownerFields": ["spec.replicas"]}}]
    }
}
LOW, HIGH = "LowNodeUtilization", "HighNodeUtilization"


def balancing(plugin: str, **args: Mapping[str, int]) -> dict[str, Any]:
    """Return a policy with one plugin that balances by utilization."""
    return {
        "profiles": [
            {
                "name": "balance",
                "pluginConfig": [{"name": plugin, "args": args}],
                "plugins": {"balance": {"enabled": [plugin]}},
            }
        ]
    }


SPREADING_POLICY = balancing(LOW, thresholds={"cpu": 30}, targetThresholds={"cpu": 60})
PACKING_POLICY = balancing(HIGH, thresholds={"cpu": 40})
TAINTS = "RemovePodsViolatingNodeTaints"
TAINTS_POLICY = {
    "profiles": [
        {
            "name": "taints",
            "pluginConfig": [{"name": TAINTS, "args": {}}],
            "plugins": {"deschedule": {"enabled": [TAINTS]}},
        }
    ]
}

plane = module_plane(*CONTROLLERS)


class Descheduled(OwnedGangs):
    """:class:`OwnedGangs` with Deployments, and runs of the descheduler.

    Args:
        plane: Control plane with the API server.
    """

    def __init__(self, plane: ControlPlane, api: ApiClient, operator: OperatorProcess) -> None:
        super().__init__(api, operator, NAMESPACE)
        self._plane = plane

    def deployment(self, name: str, replicas: int) -> None:
        """Create a Deployment, and wait until its pods are bound."""
        self._replicated("Deployment", name, replicas)

    def gang(self, name: str, replicas: int) -> None:
        """Create a ReplicaSet whose pods are a gang, and wait until they are bound. It replaces pods at once."""
        self._replicated("ReplicaSet", name, replicas)
        assert self.sizes(name) == [replicas]

    def _replicated(self, kind: str, name: str, replicas: int) -> None:
        template = self.template(restartPolicy="Always")
        template["metadata"]["labels"] = {"app": name}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        self.namespaced_object(kind, name, "apps/v1", spec=spec)
        self.until_bound_pods(f"app={name}", replicas)

    def scale_deployment(self, name: str, replicas: int) -> None:
        """Change the number of replicas."""
        manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE}}
        self.api.patch(manifest, {"spec": {"replicas": replicas}})

    def until_bound_pods(self, selector: str, count: int) -> list[str]:
        """Wait until so many pods exist that a selector matches and no other, and all are bound; return the nodes."""

        def are_bound() -> bool:
            pods = self._selected(selector)
            return len(pods) == count and all(each["spec"].get("nodeName") for each in pods)

        self.until(are_bound, f"{count} pods of {selector} are bound")
        return sorted(each["spec"]["nodeName"].removeprefix(f"{self.token}-") for each in self._selected(selector))

    def _selected(self, selector: str) -> list[Manifest]:
        found = self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def deschedule(self, policy: Mapping[str, Any]) -> int:
        """Run the descheduler once; return the number of pods that it evicted."""
        self._until_none_is_ending()
        before = {each["metadata"]["uid"] for each in self._all()}
        run_descheduler(self._plane, policy)
        self._until_none_is_ending()
        return len(before - {each["metadata"]["uid"] for each in self._all()})

    def _until_none_is_ending(self) -> None:
        self.until(lambda: not any(map(_is_ending, self._all())), "deleted pods are gone")

    def _all(self) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")

    def taint(self, short: str) -> None:
        """Let a node accept no further pods."""
        node = {"kind": "Node", "metadata": {"name": f"{self.token}-{short}"}}
        self.api.patch(node, {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}})


def _is_ending(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[Descheduled]:
    """Return a world without a profile."""
    with ApiClient(plane) as api:
        world = Descheduled(plane, api, operator)
        yield world
        plane.kubectl("delete", "deployments,replicasets,pods", "--all", "--grace-period=0", "--force")
        world.until(lambda: not api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"), "all pods are deleted")
        world.clean_up_after_owners()


def validated(folder: Path, profile: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """Return what `bayplan validate` prints of a profile and a policy."""
    documents = [
        {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "p"}, "spec": profile},
        {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", **policy},
    ]
    file = folder / "cluster.yaml"
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    result = CliRunner().invoke(bayplan, ["validate", str(file)])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_policy_that_works_against_a_profile(world: Descheduled, tmp_path: Path) -> None:
    """A profile that packs and LowNodeUtilization move the same pods again and again, which `validate` warns of."""
    world.profile(PACKS)
    # There is room for new pods while evicted ones end; they would go to the other node otherwise.
    world.nodes("a", "b", cpu="8")
    world.deployment("web", 6)
    before = world.until_bound_pods("app=web", 6)
    assert len(set(before)) == 1
    for _ in range(2):
        assert world.deschedule(SPREADING_POLICY) >= 1
        assert world.until_bound_pods("app=web", 6) == before, "the new pods are on the same node"
    assert f"the descheduler's {LOW} evicts pods from full nodes" in validated(tmp_path, PACKS, SPREADING_POLICY)


def test_a_policy_that_goes_with_a_profile(world: Descheduled, tmp_path: Path) -> None:
    """A profile that packs and HighNodeUtilization empty a node, and the next run evicts nothing."""
    world.profile(PACKS)
    world.nodes("a", cpu="4")
    world.deployment("web", 4)
    world.nodes("b", cpu="4")
    world.deployment("late", 1)
    assert world.until_bound_pods("app=late", 1) == ["b"]
    world.scale_deployment("web", 2)
    world.until_bound_pods("app=web", 2)
    assert world.deschedule(PACKING_POLICY) == 1
    assert world.until_bound_pods("app=late", 1) == ["a"]
    assert world.deschedule(PACKING_POLICY) == 0
    assert "the descheduler's" not in validated(tmp_path, PACKS, PACKING_POLICY)


def test_a_gang_that_loses_members(world: Descheduled) -> None:
    """New pods take the places of evicted members; the other members keep running."""
    world.profile(GANGS)
    world.nodes("a", "b", cpu="2")
    world.gang("train", 4)
    world.nodes("c", cpu="4")
    world.taint("a")
    assert world.deschedule(TAINTS_POLICY) == 2
    assert world.until_bound_pods("app=train", 4) == ["b", "b", "c", "c"]


def test_a_gang_that_loses_all_members(world: Descheduled) -> None:
    """A gang that is evicted as a whole waits until there is room for all of it."""
    world.profile(GANGS)
    world.nodes("a", cpu="4")
    # The descheduler does nothing in a cluster of one node.
    world.nodes("small", cpu="500m")
    world.gang("train", 4)
    (group,) = world.groups("train")
    world.taint("a")
    assert world.deschedule(TAINTS_POLICY) == 4
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    world.nodes("b", cpu="3")
    world.pod("probe", cpu="3")
    world.until_scheduled("probe")
    assert not any(world.nodes_by_label("app=train"))
    world.nodes("c", cpu="4")
    assert world.until_bound_pods("app=train", 4) == ["c"] * 4
