"""RebalancePlans without an API server: evictions, replacements, and what stops a plan."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.rebalancing.plan_controller import StoredPlan
from bayplan.resources.rebalance_plan import RebalancePlan

from scheduler_core.errors import WriteTimeoutError
from scheduler_core.model.meta import ObjectMeta
from tests.support.gang_preemption import running_pod, small_node
from tests.support.planned_cluster import PlannedCluster, Replace, elsewhere, none
from tests.support.rebalancing import movable
from tests.support.tables import table


def message(status: dict[str, Any]) -> str:
    """Return the message of the condition."""
    (condition,) = status["conditions"]
    return str(condition["message"])


async def test_a_dry_run(cluster: PlannedCluster) -> None:
    """The status has the moves, what they reach, and the pods that are left alone; no pod is evicted."""
    cluster.plan(dryRun=True)
    status = await cluster.until_phase("Planned")
    assert status["gain"] == "1 node would be empty after 1 move"
    assert (status["planned"], status["moved"], status["cost"]) == (1, 0, 1)
    assert status["moves"][0]["state"] == "Pending"
    assert status["effect"] == {"nodesEmptied": 1, "emptyNodes": ["a"]}
    assert status["leftAlone"] == [
        {"reason": "it has no controller that replaces it", "count": 1, "pods": ["default/q"]}
    ]
    cluster.plan(dryRun=True, objective="Defragment", defragment={"resource": "cpu", "amount": 4})
    await cluster.until(lambda: cluster.statuses[-1]["observedGeneration"] == 2)
    effect = cluster.statuses[-1]["effect"]
    assert (effect["nodesEmptied"], effect["piecesBefore"], effect["piecesAfter"]) == (0, 1, 2)
    assert not cluster.evicted


async def test_many_pods_that_are_left_alone(cluster: PlannedCluster) -> None:
    """The status names a few pods for each reason, and counts all."""
    cluster.rig.add(small_node("d", 30), *(running_pod(f"bare-{number}", "d", cpus=1) for number in range(20)))
    cluster.plan(dryRun=True)
    (left,) = (await cluster.until_phase("Planned"))["leftAlone"]
    assert (left["count"], len(left["pods"])) == (21, 5)


async def test_a_suspended_plan(cluster: PlannedCluster) -> None:
    """No move begins while spec.suspend is true; then the plan is made."""
    cluster.refusals = 10_000
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.plan(suspend=True, intervalSeconds=60)
    status = await cluster.until_phase("Suspended")
    assert (status["conditions"][0]["reason"], [each["pod"] for each in status["moves"]]) == (
        "Suspended",
        ["default/p"],
    )
    written = len(cluster.statuses)
    cluster.refusals = 0
    await cluster.until_later(200)
    assert (len(cluster.statuses), cluster.evicted) == (written, [])
    cluster.plan()
    await cluster.until_phase("Completed")
    assert cluster.evicted == ["p"]


async def test_moves(cluster: PlannedCluster) -> None:
    """The pod is evicted, its replacement gets the node that is held for it, and nothing is held at the end."""
    cluster.plan()
    status = await cluster.until_phase("Completed")
    assert cluster.evicted == ["p"]
    # The profile itself would choose the empty node.
    assert cluster.rig.bound == {"p-again": "b"}
    assert (status["moved"], status["moves"][0]["state"], message(status)) == (1, "Moved", status["gain"])
    assert not len(cluster.rig.scheduler.reservations.held)
    assert [each["phase"] for each in cluster.statuses] == ["Moving", "Moving", "Completed"]


@table(
    "created, text",
    ("elsewhere", elsewhere, "the replacement of pod default/p is on node c and not on b"),
    (
        "none",
        none,
        "no replacement of pod default/p was bound within 60 s; see its controller, or raise spec.moveTimeoutSeconds",
    ),
)
async def test_a_plan_stops(cluster: PlannedCluster, created: Replace, text: str) -> None:
    """If the replacement gets another node, or does not come, no further pod is evicted."""
    cluster.rig.add(small_node("d", 4), movable("s", "d", 2))
    cluster.replace = created
    cluster.plan(moveTimeoutSeconds=60)
    status = await cluster.until_phase("Stopped")
    assert len(cluster.evicted) == 1
    assert message(status) == text
    assert status["moves"][0]["state"] == "Failed"
    assert not len(cluster.rig.scheduler.reservations.held)
    await cluster.until(lambda: cluster.rig.clock.now() > 1900)
    assert len(cluster.evicted) == 1


async def test_the_condition_while_moves_are_made(cluster: PlannedCluster) -> None:
    """Completed is False while moves are made, also after a dry run that was True."""
    cluster.plan(dryRun=True)
    (condition,) = (await cluster.until_phase("Planned"))["conditions"]
    assert condition["status"] == "True"
    cluster.plan()
    (condition,) = (await cluster.until_phase("Moving"))["conditions"]
    assert (condition["status"], condition["reason"], condition["observedGeneration"]) == ("False", "Moving", 2)
    (condition,) = (await cluster.until_phase("Completed"))["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Moved")


async def test_a_refused_eviction_is_repeated(cluster: PlannedCluster) -> None:
    """A PodDisruptionBudget that refuses the eviction is waited for, and nothing is held meanwhile."""
    cluster.refusals = 3
    cluster.plan()
    assert (await cluster.until_phase("Completed"))["moved"] == 1


async def test_an_eviction_that_fails(cluster: PlannedCluster) -> None:
    """After an error of which the outcome is not known, no further pod is evicted."""
    cluster.error = WriteTimeoutError("no response")
    cluster.plan()
    assert message(await cluster.until_phase("Stopped")) == "the eviction of pod default/p failed: no response"
    assert cluster.rig.context.cache.get("uid-of-default-p") is not None


async def test_a_budget_that_always_refuses(cluster: PlannedCluster) -> None:
    """The plan stops at the end of the time of the move."""
    cluster.refusals = 10_000
    cluster.plan(moveTimeoutSeconds=30)
    assert message(await cluster.until_phase("Stopped")) == "a PodDisruptionBudget allows no disruption"
    assert not cluster.evicted


async def test_a_destination_that_is_taken(cluster: PlannedCluster) -> None:
    """A pod is not evicted if its destination is not feasible any more."""
    cluster.refusals = 10_000
    cluster.plan(moveTimeoutSeconds=30)
    await cluster.until_phase("Moving")
    cluster.rig.add(running_pod("taker", "b", cpus=2))
    status = await cluster.until_phase("Stopped")
    assert message(status) == "node b is not feasible for its replacement any more"
    assert not cluster.evicted


async def test_a_pod_that_ends(cluster: PlannedCluster) -> None:
    """The plan stops if a pod ends before its move."""
    cluster.refusals = 10_000
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.rig.scheduler.feed.pod_deleted(movable("p", "a"))
    assert message(await cluster.until_phase("Stopped")) == "pod default/p has ended or was moved already"


async def test_a_changed_plan(cluster: PlannedCluster) -> None:
    """No further moves are made of an earlier spec; the new one is planned."""
    cluster.refusals = 10_000
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.plan(dryRun=True)
    assert (await cluster.until_phase("Planned"))["observedGeneration"] == 2
    assert not cluster.evicted


async def test_a_deleted_plan(cluster: PlannedCluster) -> None:
    """A plan that is deleted evicts no pod."""
    cluster.refusals = 10_000
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
    cluster.refusals = 0
    await cluster.until(lambda: cluster.rig.clock.now() > 1900)
    assert not cluster.evicted


async def test_a_restart(cluster: PlannedCluster) -> None:
    """A plan that was Moving is planned again, with what is left of its budget."""
    cluster.plan({"observedGeneration": 1, "phase": "Moving", "moved": 3}, budget={"moves": 4})
    assert (await cluster.until_phase("Completed"))["moved"] == 4
    assert cluster.evicted == ["p"]


async def test_a_used_budget(cluster: PlannedCluster) -> None:
    """No pod is evicted after a restart if the budget is used."""
    cluster.plan({"observedGeneration": 1, "phase": "Moving", "moved": 4}, budget={"moves": 4})
    assert message(await cluster.until_phase("Completed")) == "All moves of the budget are made"
    assert not cluster.evicted


async def test_an_ended_plan_is_not_made_again(cluster: PlannedCluster) -> None:
    """After a restart, the status decides whether a plan has ended."""
    cluster.plan({"observedGeneration": 1, "phase": "Completed", "moved": 0})
    await cluster.until(lambda: cluster.rig.clock.now() > 1100)
    assert not cluster.statuses


async def test_an_interval(cluster: PlannedCluster) -> None:
    """A plan with an interval is made again after its end."""
    cluster.plan(intervalSeconds=600)
    await cluster.until_phase("Completed")
    cluster.rig.add(small_node("d", 4), movable("s", "d"))
    await cluster.until(lambda: len(cluster.evicted) > 1)
    assert cluster.rig.clock.now() > 1600
    assert cluster.rig.bound == {"p-again": "b", "s-again": "b"}


async def test_an_invalid_spec(cluster: PlannedCluster) -> None:
    """The condition has the problems, and the status is written once."""
    cluster.plan(objective="Drain")
    status = await cluster.until_phase("Invalid")
    assert "spec.drain: " in message(status)
    await cluster.until(lambda: cluster.rig.clock.now() > 1100)
    assert len(cluster.statuses) == 1


@table("phase, failed", ("dry run", "Planned", 3), ("moves", "Completed", 1))
async def test_a_status_that_cannot_be_written(cluster: PlannedCluster, phase: str, failed: int) -> None:
    """The last status is written again until it is stored, and the plan is not made again."""
    cluster.plan(dryRun=phase == "Planned")
    if phase == "Completed":
        await cluster.until(lambda: bool(cluster.evicted))
    cluster.failed_writes = failed
    await cluster.until_phase(phase)
    written = len(cluster.statuses)
    await cluster.until_later(100)
    assert (len(cluster.statuses), cluster.failed_writes) == (written, 0)
    assert cluster.evicted == (["p"] if phase == "Completed" else [])


async def test_a_move_whose_status_cannot_be_written(cluster: PlannedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pod is evicted before its move is in the status, and a failed write does not stop the plan."""
    failures, write = [1, 2], cluster.write_status

    async def fail_at_first(name: str, uid: str, status: dict[str, Any]) -> None:
        if failures and any(move["state"] == "Evicting" for move in status["moves"]):
            failures.pop()
            assert not cluster.evicted
            raise WriteTimeoutError("no response")
        await write(name, uid, status)

    monkeypatch.setattr(cluster, "write_status", fail_at_first)
    cluster.plan()
    assert (await cluster.until_phase("Completed"))["moved"] == 1
    assert (cluster.evicted, failures) == (["p"], [])


async def test_a_rejected_plan_whose_status_cannot_be_written(cluster: PlannedCluster) -> None:
    """The status of an invalid plan is written again, too."""
    cluster.failed_writes = 2
    cluster.plan(objective="Drain")
    await cluster.until_phase("Invalid")


async def test_an_ended_plan_is_read_once(cluster: PlannedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object of a plan is validated once for each spec, not at each look."""
    read = list[int]()
    from_object = RebalancePlan.from_object

    def counted(body: dict[str, Any]) -> RebalancePlan:
        read.append(body["metadata"]["generation"])
        return from_object(body)

    monkeypatch.setattr(RebalancePlan, "from_object", counted)
    cluster.plan(dryRun=True)
    await cluster.until_phase("Planned")
    await cluster.until_later(30)
    cluster.plan(dryRun=True, budget={"moves": 5})
    await cluster.until(lambda: cluster.statuses[-1]["observedGeneration"] == 2)
    assert read == [1, 2]


async def test_a_plan_that_is_created_again(cluster: PlannedCluster) -> None:
    """A plan of the same name does not have the status of a plan that was deleted during its move."""
    cluster.refusals = 3
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.plans.plan_deleted(StoredPlan(ObjectMeta("plan")))
    cluster.uid = "uid-of-another"
    cluster.statuses.clear()
    cluster.plan(dryRun=True)
    await cluster.until_later(20)
    assert [each["phase"] for each in cluster.statuses] == ["Planned"]


async def test_a_plan_that_moves_after_a_dry_run(cluster: PlannedCluster) -> None:
    """The status is replaced: it has no fields of the dry run."""
    cluster.plan(dryRun=True)
    assert (await cluster.until_phase("Planned"))["completedAt"]
    cluster.plan()
    assert "completedAt" not in await cluster.until_phase("Moving")


@table(
    "nodes, phase, gain, missing",
    ("all", ["x", "y"], "Stopped", "no moves: no node is selected", "x, y"),
    ("one, and no moves", ["c", "x"], "Stopped", "no moves: none gains anything", "x"),
    ("one", ["a", "x"], "Completed", "1 pod would be moved, and 1 node would be empty", "x"),
)
async def test_a_drain_of_nodes_that_do_not_exist(
    cluster: PlannedCluster, nodes: list[str], phase: str, gain: str, missing: str
) -> None:
    """The condition names the nodes; the other nodes are drained."""
    cluster.plan(objective="Drain", drain={"nodes": nodes})
    status = await cluster.until_phase(phase)
    text = f"{gain}; spec.drain.nodes: there is no node {missing}; correct or remove the name"
    assert message(status) == text
    assert status["conditions"][0]["reason"] == ("NodesNotFound" if phase == "Stopped" else "Moved")


async def test_a_drain_without_nodes_of_its_labels(cluster: PlannedCluster) -> None:
    """Labels that no node has are no error: the nodes of a pool may all be removed."""
    cluster.plan(objective="Drain", drain={"labels": {"pool": "old"}})
    assert message(await cluster.until_phase("Completed")) == "no moves: no node is selected"


@table("name, text", ("source", "a", "node a was deleted"), ("target", "b", "node b was deleted"))
async def test_a_node_that_is_deleted(cluster: PlannedCluster, name: str, text: str) -> None:
    """The plan stops if a node of a move is deleted before the eviction."""
    cluster.refusals = 10_000
    cluster.plan(moveTimeoutSeconds=30)
    await cluster.until_phase("Moving")
    cluster.rig.scheduler.feed.node_deleted(small_node(name, 4, pool=name))
    assert message(await cluster.until_phase("Stopped")) == text
    assert not cluster.evicted


async def test_a_plan_that_is_created_again_before_the_watch_reports_it(cluster: PlannedCluster) -> None:
    """The status of the deleted plan is not written to the new one."""
    cluster.refusals = 3
    cluster.plan()
    await cluster.until_phase("Moving")
    cluster.uid, cluster.refusals = "uid-of-another", 0
    cluster.statuses.clear()
    await cluster.until_later(400)
    assert not cluster.statuses


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_cost_of_the_moves_that_are_made(cluster: PlannedCluster, *, is_restarted: bool) -> None:
    """It counts against the budget when the plan is made again, after a failed write or a restart."""
    cluster.rig.add(
        *(small_node(name, 8, pool="d") for name in "de"), *(movable(f"d{number}", "d") for number in range(4))
    )
    if is_restarted:
        move = {"pod": "default/gone", "uid": "gone", "source": "d", "target": "e", "cost": 2, "state": "Moved"}
        status = {"observedGeneration": 1, "phase": "Moving", "moved": 1, "movedCost": 2, "moves": [move]}
        cluster.plan(status, objective="Drain", drain={"nodes": ["d"]}, budget={"cost": 3})
    else:
        cluster.plan(objective="Drain", drain={"nodes": ["d"]}, budget={"cost": 3})
        await cluster.until(lambda: bool(cluster.evicted))
        cluster.failed_writes = 1
    status = await cluster.until_phase("Completed")
    assert len(cluster.evicted) == (1 if is_restarted else 3)
    assert (status["movedCost"], status["cost"]) == (3, 3)


async def test_plans_beside_one_that_moves(cluster: PlannedCluster) -> None:
    """Dry runs, invalid and suspended plans do not wait for the moves of another plan; other moves do."""
    cluster.rig.add(small_node("d", 4, pool="d"), movable("s", "d", 2))
    cluster.refusals = 60
    cluster.plan(objective="Drain", drain={"nodes": ["a"]})
    await cluster.until_phase("Moving")
    specs: dict[str, dict[str, Any]] = {
        "dry": {"objective": "Consolidate"},
        "invalid": {"objective": "Drain"},
        "other": {"objective": "Drain", "drain": {"nodes": ["d"]}, "dryRun": False},
        "paused": {"objective": "Consolidate", "dryRun": False, "suspend": True},
    }
    for name, spec in specs.items():
        cluster.plans.plan_changed(StoredPlan(ObjectMeta(name, uid=cluster.uid, generation=1), spec))
    await cluster.until_later(20)
    phases = {each.metadata.name: each.status.phase for each in cluster.plans.plans()}
    assert phases == {"plan": "Moving", "dry": "Planned", "other": "Pending", "paused": "Suspended"}
    assert not cluster.evicted
    (waiting,) = (each for each in cluster.plans.plans() if each.metadata.name == "other")
    (condition,) = waiting.status.conditions
    assert (condition.reason, condition.message) == (
        "AwaitingTurn",
        "RebalancePlan plan makes moves; this plan is made when its moves have ended",
    )
    assert [each["phase"] for each in cluster.statuses].count("Pending") == 1
    await cluster.until(lambda: len(cluster.evicted) > 1)
    assert cluster.evicted == ["p", "s"]
