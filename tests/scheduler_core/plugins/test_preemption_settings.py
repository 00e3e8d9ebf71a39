"""Settings of preemption in a profile: budgets that are never violated, a maximum of victims, deletion costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import (
    DELETION_COST,
    GroupKey,
    GroupSource,
    MarkedMeta,
    PodAnnotations,
    PodGroup,
    deletion_cost,
    foreign_gang,
)
from scheduler_core.scheduler_options import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gang_preemption import running_pod, victim_member
from tests.support.gangs import group, members, previewed
from tests.support.preemption import budget, started
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig, rig
from tests.support.tables import table

NEVER = PreemptionSettings(never_violate_disruption_budgets=True)
BY_COST = PreemptionSettings(break_ties_by_deletion_cost=True)


def at_most(count: int) -> PreemptionSettings:
    return PreemptionSettings(max_victims=count)


def cluster(settings: PreemptionSettings, running: Iterable[Pod], nodes: int = 2) -> Rig:
    """Return a scheduler with nodes of two CPUs and running pods."""
    made = default_rig(serve=False, groups=[GroupSource.BAYPLAN, GroupSource.NATIVE])
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=settings))
    made.add(*(node(f"n{index}", allocatable={"cpu": "2", "pods": "10"}) for index in range(nodes)))
    made.add(*running)
    return made


async def attempted(made: Rig, kind: str) -> set[str]:
    """Attempt a pod or gang that needs two CPUs; return the names of the evicted pods."""
    if kind == "pod":
        made.add(pod("high", requests={"cpu": "2"}, priority=9))
    elif kind == "gang":
        made.scheduler.group_feed.group_changed(group())
        made.add(*members(2, priority=9))
    else:
        key = GroupKey(GroupSource.NATIVE, "default", "train")
        made.scheduler.group_feed.group_changed(PodGroup(key, "uid-train", 2, priority=9, is_uniform=True))
        made.add(*(pod(f"m{index}", requests={"cpu": "1"}, group="train", priority=9) for index in range(2)))
    async with made.running():
        await made.scheduler.until_idle()
    return {deletion.name for deletion in made.writer.deletions}


def labelled(name: str, on: str, app: str, priority: int = 0) -> Pod:
    return running_pod(name, on, priority=priority, labels={"app": app})


KINDS = pytest.mark.parametrize("kind", ["pod", "gang", "native gang"])


# -- budgets -----------------------------------------------------------------------------------------------------------


@KINDS
@table("settings, evicts", ("default", PreemptionSettings(), True), ("never", NEVER, False))
async def test_a_budget_of_every_victim(kind: str, settings: PreemptionSettings, evicts: bool) -> None:
    """By default a budget is violated if nothing else helps; with the setting nothing is evicted, with the reason."""
    made = cluster(settings, [labelled("a", "n0", "web"), labelled("b", "n0", "web")], nodes=1)
    made.columns.disruption_budgets.assign(budget("web", {"app": "web"}, 1))
    assert await attempted(made, kind) == ({"a", "b"} if evicts else set())
    if not evicts and kind == "pod":
        reason = "1 node(s) had preemption victims that a PodDisruptionBudget protects"
        assert reason in made.condition.message
    if not evicts and kind == "gang":
        reason = "the quorum would fit only with preemption victims that a PodDisruptionBudget protects"
        assert previewed(made).reason == reason


@KINDS
async def test_victims_within_their_budgets(kind: str) -> None:
    """A budget that allows the evictions does not prevent them."""
    made = cluster(NEVER, [labelled("a", "n0", "web"), labelled("b", "n0", "web")], nodes=1)
    made.columns.disruption_budgets.assign(budget("web", {"app": "web"}, 2))
    assert await attempted(made, kind) == {"a", "b"}


@KINDS
async def test_a_terminating_pod_of_a_deleted_node_counts(kind: str) -> None:
    """A pod terminates also after its node was deleted, and its budget may not show it yet."""
    leaving = labelled("leaving", "n1", "web")
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=started(0)))
    victim = running_pod("victim", "n0", cpus=2, labels={"app": "web"})
    made = cluster(NEVER, [victim, leaving], nodes=2)
    made.columns.disruption_budgets.assign(budget("web", {"app": "web"}, 1))
    made.scheduler.feed.node_deleted(node("n1"))
    assert await attempted(made, kind) == set()


async def test_only_victims_count_against_a_budget() -> None:
    """The reference counts a violation of the pod that leaves, because an older pod that stays came before it."""
    old = replace(labelled("old", "n0", "web"), status=replace(pod().status, start_time=started(0)))
    small = running_pod("older", "n0", cpus=0, labels={"app": "web"})
    small = replace(small, status=replace(small.status, start_time=started(-1)))
    made = cluster(NEVER, [old, small, running_pod("kept", "n0", priority=9)], nodes=1)
    made.columns.disruption_budgets.assign(budget("web", {"app": "web"}, 1))
    made.add(pod("high", requests={"cpu": "1"}, priority=9))
    async with made.running():
        await made.scheduler.until_idle()
    assert [deletion.name for deletion in made.writer.deletions] == ["old"]


# -- number of victims -------------------------------------------------------------------------------------------------


@KINDS
@table(
    "settings, evicts", ("default", PreemptionSettings(), True), ("one", at_most(1), False), ("two", at_most(2), True)
)
async def test_more_victims_than_allowed(kind: str, settings: PreemptionSettings, evicts: bool) -> None:
    """A pod or gang that needs more victims than allowed evicts none."""
    made = cluster(settings, [running_pod("a", "n0"), running_pod("b", "n0")], nodes=1)
    assert await attempted(made, kind) == ({"a", "b"} if evicts else set())
    if not evicts and kind == "pod":
        assert "1 node(s) had more than 1 preemption victim." in made.condition.message


async def test_another_node_with_fewer_victims() -> None:
    """A node with too many victims is no candidate, so one with fewer but more important victims is chosen."""
    running = [running_pod("a", "n0"), running_pod("b", "n0"), running_pod("large", "n1", priority=5, cpus=2)]
    assert await attempted(cluster(PreemptionSettings(), running), "pod") == {"a", "b"}
    assert await attempted(cluster(at_most(1), running), "pod") == {"large"}


@table("count, evicted", ("one", 1, set()), ("two", 2, {"a", "b"}))
async def test_a_group_that_is_disrupted_as_a_whole_counts_with_all_its_pods(count: int, evicted: set[str]) -> None:
    """Its pods on other nodes are evicted, too."""
    made = cluster(at_most(count), [], nodes=2)
    made.scheduler.group_feed.group_changed(group("victim", min_member=1, disrupts_whole=True))
    made.add(victim_member("a", "n0"), victim_member("b", "n1"))
    made.add(running_pod("c", "n0", priority=9), running_pod("d", "n1", priority=9))
    made.add(pod("small", requests={"cpu": "1"}, priority=9))
    async with made.running():
        await made.scheduler.until_idle()
    assert {deletion.name for deletion in made.writer.deletions} == evicted


# -- deletion cost -----------------------------------------------------------------------------------------------------


def costly(name: str, on: str, cost: str, cpus: int = 2) -> Pod:
    made = running_pod(name, on, cpus=cpus)
    meta = MarkedMeta(name, made.metadata.namespace, made.metadata.uid, annotations=PodAnnotations(deletion_cost=cost))
    return replace(made, metadata=meta, status=replace(made.status, start_time=started(0)))


@table("costs, chosen", ("first", ("-5", "3"), "v0"), ("second", ("7", ""), "v1"), ("invalid", ("1", "x"), "v1"))
async def test_the_lowest_cost(costs: tuple[str, str], chosen: str) -> None:
    """Of nodes that are equal for kube-scheduler, the one with the lower deletion cost is chosen."""
    made = cluster(BY_COST, [costly(f"v{index}", f"n{index}", cost) for index, cost in enumerate(costs)])
    assert await attempted(made, "pod") == {chosen}


async def test_the_lowest_cost_on_one_node() -> None:
    """Of pods that are equal for kube-scheduler, the one with the higher deletion cost stays."""
    for costs in (("1", "2"), ("2", "1")):
        made = cluster(BY_COST, [costly(f"v{index}", "n0", cost, 1) for index, cost in enumerate(costs)], nodes=1)
        made.add(pod("high", requests={"cpu": "1"}, priority=9))
        async with made.running():
            await made.scheduler.until_idle()
        assert [deletion.name for deletion in made.writer.deletions] == [f"v{costs.index('1')}"]


async def test_gangs_follow_the_cost() -> None:
    """A member takes the node with the lowest cost, too."""
    for costs in (("1", "2"), ("2", "1")):
        made = cluster(BY_COST, [costly(f"v{index}", f"n{index}", cost) for index, cost in enumerate(costs)])
        assert await attempted(made, "gang") == {f"v{costs.index('1')}"}


@table(
    "text, cost",
    ("positive", "12", 12),
    ("negative", "-12", -12),
    ("zero", "0", 0),
    ("plus", "+1", 0),
    ("leading zero", "01", 0),
    ("too large", "2147483648", 0),
    ("smallest", "-2147483648", -(2**31)),
    ("far too large", "9" * 5000, 0),
    ("none", "", 0),
)
def test_values_of_the_annotation(text: str, cost: int) -> None:
    """The cost is an int32; other values count as zero, as in the ReplicaSet controller."""
    assert deletion_cost(MarkedMeta("p", annotations=PodAnnotations(deletion_cost=text))) == cost
    assert deletion_cost(AnnotatedMeta("p", annotations={DELETION_COST: text})) == cost
    assert deletion_cost(ObjectMeta("p")) == 0


def test_the_annotation_is_decoded() -> None:
    """It is decoded with the option, and names no gang."""
    made = rig(options=SchedulerOptions(deletion_costs=True))
    body = {"metadata": {"name": "p", "annotations": {DELETION_COST: "-3", "other": "x"}}, "spec": {"containers": []}}
    decoded = msgspec.json.decode(msgspec.json.encode(body), type=made.scheduler.decoded.pod)
    assert deletion_cost(decoded.metadata) == -3
    assert foreign_gang(decoded.metadata) == ""


@table(
    "spec, message",
    ("none", {"maxVictims": 0}, r"preemption\.maxVictims"),
    ("a text", {"maxVictims": "3"}, r"preemption\.maxVictims"),
    ("not a Boolean", {"neverViolateDisruptionBudgets": "yes"}, r"preemption\.neverViolateDisruptionBudgets"),
    ("another", {"breakTiesByDeletionCost": 1}, r"preemption\.breakTiesByDeletionCost"),
)
def test_invalid_settings(spec: dict[str, Any], message: str) -> None:
    """An invalid value is an error that names the field."""
    with pytest.raises(ValueError, match=message):
        ProfileConfig.model_validate({"schedulerName": "a", "preemption": spec})
