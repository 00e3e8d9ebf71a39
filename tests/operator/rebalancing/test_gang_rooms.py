"""Room that plans make for gangs: how long it is held, and which pods may use it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan
from bayplan.rebalancing.plan_documents import PlanDocument
from bayplan.resources.rebalance_plan import RebalancePlan

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.rebalance.requests import RebalanceRequest
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import add_groups, group, key, member
from tests.support.planned_cluster import PlannedCluster
from tests.support.rebalancing import movable
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

GANG = {"namespace": "default", "name": "train"}


def made_rig() -> Rig:
    """Return three nodes: a gang of one member needs all of node a, from which p may be moved to b."""
    made = gang_rig(*(small_node(name, 4, pool=name) for name in "abc"), movable("p", "a", 2))
    made.add(running_pod("q", "b", cpus=2), running_pod("r", "c", cpus=4))
    add_groups(made, group(min_member=1))
    return made


class GangCluster(PlannedCluster):
    """A cluster whose gang is complete when the plan starts.

    Attributes:
        rival: Pod that is created with the replacement; None for none.
    """

    rival: Pod | None = None

    def plan(self, status: dict[str, Any] | None = None, **spec: Any) -> None:
        super().plan(status, **{"objective": "MakeRoom", "gang": GANG, **spec})

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        await super().evict(namespace, name, uid)
        if self.rival is not None:
            self.create(self.rival)

    @property
    def held_for(self) -> list[str]:
        """Holders of room."""
        return [room.holder.key.holder for room in self.rig.scheduler.reservations.held]


WORKER = member("worker", requests={"cpu": "4"})


@table("priority, node_name", ("same-priority", 0, None), ("higher-priority", 5, "a"))
async def test_other_pods_and_the_room(priority: int, node_name: str | None) -> None:
    """The gang gets the room; pods of a higher priority than that of the gang may take it."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.rival = pod("rival", requests={"cpu": "1"}, priority=priority)
        cluster.plan()
        status = await cluster.until_phase("Completed")
        await cluster.until_later(5)
        assert status["moved"] == 1
        assert cluster.rig.bound.get("rival") == node_name
        assert cluster.rig.bound.get("worker") == ("a" if node_name is None else None)


async def test_the_room_ends_when_the_gang_is_bound() -> None:
    """Other pods may then use the node, and an event reports it."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.plan()
        await cluster.until(lambda: bool(cluster.evicted))
        assert "PodGroup default/train" in cluster.held_for
        await cluster.until_phase("Completed")
        await cluster.until_later(5)
        assert cluster.rig.bound["worker"] == "a"
        assert cluster.held_for == []


async def with_waiting_room(cluster: GangCluster) -> dict[str, Any]:
    """Let a plan end whose gang does not use its room; return its status."""
    cluster.create(WORKER)
    cluster.plan()
    await cluster.until(lambda: bool(cluster.evicted))
    # The member is deleted before it is bound.
    cluster.rig.scheduler.feed.pod_deleted(WORKER)
    cluster.waiting.remove(WORKER)
    return await cluster.until_phase("Completed")


async def test_room_that_is_not_used_ends() -> None:
    """It is held for ``holdSeconds`` after the last move."""
    async with GangCluster(made_rig()).running() as cluster:
        status = await with_waiting_room(cluster)
        assert status["room"]["members"] == [{"pod": "default/worker", "uid": "uid-of-default-worker", "node": "a"}]
        await cluster.until_later(290)
        assert cluster.held_for == ["PodGroup default/train"]
        await cluster.until_later(15)
        assert cluster.held_for == []


async def test_a_replaced_member_uses_the_room() -> None:
    """A member that did not exist when the plan was made has the room of another one."""
    async with GangCluster(made_rig()).running() as cluster:
        await with_waiting_room(cluster)
        cluster.create(pod("rival", requests={"cpu": "1"}))
        cluster.create(member("again", requests={"cpu": "4"}))
        await cluster.until_later(5)
        assert cluster.rig.bound.get("again") == "a"


@table(
    "change",
    ("deleted", lambda cluster: cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))),
    ("dry-run", lambda cluster: cluster.plan(dryRun=True)),
    ("suspended", lambda cluster: cluster.plan(suspend=True)),
    ("invalid", lambda cluster: cluster.plan(gang=None)),
)
async def test_a_plan_that_is_changed_holds_nothing(change: Any) -> None:
    """Room ends with the plan for which it is held."""
    async with GangCluster(made_rig()).running() as cluster:
        await with_waiting_room(cluster)
        change(cluster)
        await cluster.until_later(5)
        assert cluster.held_for == []


async def test_a_plan_that_stops_holds_nothing() -> None:
    """Room is not held for moves that are not made."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.refusals = 10_000
        cluster.plan(moveTimeoutSeconds=30)
        await cluster.until_phase("Moving")
        assert cluster.held_for == ["PodGroup default/train"]
        assert (await cluster.until_phase("Stopped")).get("room") is None
        assert cluster.held_for == []


async def test_no_pod_is_evicted_for_a_gang_that_is_gone() -> None:
    """The plan stops before its next eviction."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.refusals = 3
        cluster.plan()
        await cluster.until_phase("Moving")
        cluster.rig.scheduler.group_feed.group_deleted(key())
        (condition,) = (await cluster.until_phase("Stopped"))["conditions"]
        assert condition["reason"] == "RoomExpired"
        assert not cluster.evicted
        assert cluster.held_for == []


async def test_a_hold_of_zero_seconds() -> None:
    """Room is held only while moves are made."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.plan(gang={**GANG, "holdSeconds": 0})
        assert (await cluster.until_phase("Completed")).get("room") is None
        assert cluster.held_for == []


async def test_room_is_held_again_after_a_restart() -> None:
    """It is held before the first cycle for the members in the status, for the time that is left."""
    made = made_rig()
    async with GangCluster(made).running() as cluster:
        await with_waiting_room(cluster)
        status = cluster.statuses[-1]
    replacement = movable("p-again", "b", 2)
    again = gang_rig(*(small_node(name, 4, pool=name) for name in "abc"), replacement, clock=made.clock)
    again.add(running_pod("q", "b", cpus=2), running_pod("r", "c", cpus=4))
    add_groups(again, group(min_member=1))
    again.add(pod("rival", requests={"cpu": "1"}), WORKER)
    restarted = GangCluster(again)
    listed = asyncio.Event()
    listed.set()
    restarted.plan(status)
    task = asyncio.create_task(restarted.plans.run(listed))
    await restarted.plans.restored.wait()
    assert restarted.held_for == ["PodGroup default/train"]
    async with again.running():
        await restarted.until_later(3)
        assert restarted.rig.bound == {"worker": "a"}
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@table(
    "change",
    ("deleted", lambda cluster: cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))),
    ("changed", lambda cluster: cluster.plan(suspend=True)),
)
async def test_a_change_during_the_search(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room is held for a plan that was deleted or changed while it was searched."""
    async with GangCluster(made_rig()).running() as cluster:
        search, is_found, gate = cluster.plans.search, asyncio.Event(), asyncio.Event()

        async def slow(request: RebalanceRequest) -> PlanDocument:
            found = await search(request)
            is_found.set()
            await gate.wait()
            return found

        monkeypatch.setattr(cluster.plans, "search", slow)
        cluster.create(WORKER)
        cluster.plan()
        await cluster.until(is_found.is_set)
        change(cluster)
        gate.set()
        await cluster.until_later(5)
        assert (cluster.held_for, cluster.evicted) == ([], [])


async def test_a_plan_that_is_deleted_when_its_room_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that begins ends again."""
    async with GangCluster(made_rig()).running() as cluster:
        hold = cluster.plans.rooms.hold

        async def delayed(*arguments: Any) -> bool:
            cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
            return await hold(*arguments)

        monkeypatch.setattr(cluster.plans.rooms, "hold", delayed)
        cluster.create(WORKER)
        cluster.plan()
        await cluster.until_later(5)
        assert (cluster.held_for, cluster.evicted) == ([], [])


async def test_room_ends_at_once_with_its_spec() -> None:
    """A change of the spec ends it when it is seen, not when the plan is reconciled."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.refusals = 10_000
        cluster.plan()
        await cluster.until(lambda: "PodGroup default/train" in cluster.held_for)
        cluster.plan(suspend=True)
        assert "PodGroup default/train" not in cluster.held_for


async def test_the_room_has_the_priority_of_the_group() -> None:
    """A change of the PodGroup counts for room that is held."""
    async with GangCluster(made_rig()).running() as cluster:
        await with_waiting_room(cluster)
        (room,) = cluster.rig.scheduler.reservations.held
        assert room.reservation.priority == 0
        add_groups(cluster.rig, group(min_member=1, priority=7))
        assert room.reservation.priority == 7
        cluster.create(pod("rival", requests={"cpu": "1"}, priority=5))
        await cluster.until_later(5)
        assert "rival" not in cluster.rig.bound


async def test_the_status_has_no_room_that_has_ended() -> None:
    """It is removed when the gang is bound, and when the room has expired."""
    async with GangCluster(made_rig()).running() as cluster:
        cluster.create(WORKER)
        cluster.plan()
        await cluster.until_phase("Completed")
        await cluster.until_later(5)
        assert (cluster.rig.bound["worker"], cluster.statuses[-1].get("room")) == ("a", None)
    async with GangCluster(made_rig()).running() as cluster:
        assert (await with_waiting_room(cluster))["room"] is not None
        await cluster.until_later(310)
        status = cluster.statuses[-1]
        assert (status["phase"], status.get("room"), status["moved"]) == ("Completed", None, 1)


async def test_no_plan_stops_that_the_room_of_others_is_held_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one that is deleted meanwhile, nor one whose room cannot be held because of a bug."""
    plans, names = GangCluster(made_rig()).plans, list[str]()
    for name in "abc":
        spec = {"objective": "MakeRoom", "gang": GANG, "dryRun": False}
        plans.plan_changed(StoredPlan(ObjectMeta(name, uid=f"uid-of-{name}", generation=1), spec, {}))

    async def restore(plan: RebalancePlan) -> None:
        names.append(plan.metadata.name)
        if plan.metadata.name == "a":
            plans.plan_deleted(StoredPlan(ObjectMeta("b", uid="uid-of-b")))
            raise RuntimeError

    monkeypatch.setattr(plans, "_restore_gang_room", restore)
    listed = asyncio.Event()
    listed.set()
    task = asyncio.create_task(plans.run(listed))
    async with asyncio.timeout(5):
        await plans.restored.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert names == ["a", "c"]
    assert "Room of RebalancePlan a is not held again" in caplog.text
