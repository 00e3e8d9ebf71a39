"""Plugins that raise while plans are made: the plan names the plugin, and is made when the plugin works again."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.rebalancing import plan_controller
from bayplan.rebalancing.plan_documents import PlanDocument

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Codes, FilterPlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import add_groups, group, member
from tests.support.planned_cluster import PlannedCluster
from tests.support.rebalancing import movable
from tests.support.scheduling import gang_rig, plugin_set, profile

TEXT = 'running "Raising" filter plugin: raised ConnectionError: no connection'


class Raising(FilterPlugin):
    """Raises for pods of these names."""

    name = "Raising"
    broken_for: frozenset[str] = frozenset()

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        del state, nodes, rows
        if pod.pod.metadata.name in self.broken_for:
            raise ConnectionError("no connection")
        return None

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        del state, pod, code
        return SUCCESS


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlannedCluster:
    """Return three nodes: a gang of one member needs all of node a, from which p may be moved to b."""
    monkeypatch.setattr(Raising, "broken_for", frozenset())
    made = gang_rig(plugins=[Raising], serve=False)
    made.serve(profile(plugins=Plugins(multi_point=plugin_set("Raising"))))
    made.add(*(small_node(name, 4, pool=name) for name in "abc"), movable("p", "a", 2))
    made.add(running_pod("q", "b", cpus=2), running_pod("r", "c", cpus=4))
    add_groups(made, group(min_member=1))
    return PlannedCluster(made)


def condition(status: dict[str, Any]) -> tuple[str, str]:
    """Return reason and message of the condition."""
    (found,) = status["conditions"]
    return found["reason"], found["message"]


async def test_a_plugin_that_raises_for_the_gang(cluster: PlannedCluster) -> None:
    """The plan stops, names the plugin, and is tried again after a delay; then its moves are made."""
    Raising.broken_for = frozenset({"worker"})
    async with cluster.running():
        cluster.create(member("worker", requests={"cpu": "4"}))
        cluster.plan(objective="MakeRoom", gang={"namespace": "default", "name": "train"})
        status = await cluster.until_phase("Stopped")
        assert condition(status) == ("SearchFailed", f"The plan cannot be made: {TEXT}; it is tried again")
        await cluster.until_later(600)
        tries = len(cluster.statuses)
        assert 3 < tries < 12
        assert not cluster.evicted
        Raising.broken_for = frozenset()
        assert (await cluster.until_phase("Completed"))["moved"] == 1
        await cluster.until_later(5)
        assert cluster.rig.bound["worker"] == "a"


async def test_a_bug_of_a_search(
    cluster: PlannedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The plan stops, names the exception, and is tried again after a delay; the log has one traceback for each try."""

    def raising(*args: Any) -> PlanDocument:
        raise KeyError("node")

    async with cluster.running():
        with monkeypatch.context() as broken:
            broken.setattr(plan_controller, "plan_document", raising)
            cluster.plan(objective="Drain", drain={"nodes": ["a"]})
            status = await cluster.until_phase("Stopped")
            text = "The plan cannot be made: a bug, please report it: KeyError: 'node'; it is tried again"
            assert condition(status) == ("SearchFailed", text)
            await cluster.until_later(600)
            assert 3 < len(cluster.statuses) < 12
            assert caplog.text.count("cannot be made because of a bug") == len(cluster.statuses)
        assert (await cluster.until_phase("Completed"))["moved"] == 1


async def test_a_plan_whose_search_failed_during_its_moves(cluster: PlannedCluster) -> None:
    """The moves before count against the budget when it is tried again, and also after a restart."""
    conditions = [
        {"type": "Completed", "status": "False", "reason": "SearchFailed", "message": "", "observedGeneration": 1,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]  # fmt: skip
    before = {"observedGeneration": 1, "phase": "Stopped", "moved": 1, "conditions": conditions}
    async with cluster.running():
        cluster.plan(before, objective="Drain", drain={"nodes": ["a"]}, budget={"moves": 1})
        assert condition(await cluster.until_phase("Completed"))[0] == "BudgetUsed"
        assert not cluster.evicted


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_plugin_that_raises_for_a_replacement(cluster: PlannedCluster, *, is_late: bool) -> None:
    """The pod is left alone, and the reason names the plugin: during the search, and before the eviction."""
    cluster.refusals = 10_000 if is_late else 0
    text = f"its replacement cannot be scheduled: {TEXT}"
    async with cluster.running():
        if is_late:
            cluster.plan(objective="Drain", drain={"nodes": ["a"]}, moveTimeoutSeconds=20)
            await cluster.until_phase("Moving")
        Raising.broken_for = frozenset({"p"})
        if is_late:
            assert condition(await cluster.until_phase("Stopped")) == ("MoveFailed", text)
        else:
            cluster.plan(objective="Drain", drain={"nodes": ["a"]})
            status = await cluster.until_phase("Completed")
            assert status["leftAlone"] == [{"reason": text, "count": 1, "pods": ["default/p"]}]
        assert not cluster.evicted
