"""Shadow profiles in the scheduler's loop: their decisions and counts, and that they do not affect live decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from scheduler_core.config.plugin_set_types import PluginConfig, Plugins
from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.cycle import decided_pods
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, PreEnqueuePlugin
from scheduler_core.framework.status import Status, unschedulable
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import SchedulerPorts
from scheduler_core.shadows import shadow_profiles as shadows
from scheduler_core.shadows.shadow_profiles import KEPT_DIFFERENCES, PAUSE_SECONDS, DifferenceKind, Shadow
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import TimeBudget
from tests.support.builders import node, pod
from tests.support.busy_scheduler import WorkingClock
from tests.support.gangs import group, members
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig, plugin_set
from tests.support.scripted_extender import ScriptedExtender, extender, passes_only
from tests.support.tables import table

NAME = "shadow"


class Journal(FilterPlugin):
    """Filter plugin that records its calls and the binds sent before; it may raise, or take time."""

    name = "Journal"
    binds_before: list[int]
    node_names: list[str]
    fails = False
    seconds = 0.0

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Any:
        """Pass every node."""
        handle: Any = self.handle
        Journal.binds_before.append(len(handle.writer.attempted))
        Journal.node_names.append(pod.node_name)
        if Journal.seconds:
            handle.clock.spend(Journal.seconds)
        if Journal.fails:
            raise ValueError("broken")
        return np.zeros(nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int16)


class GatesAll(PreEnqueuePlugin):
    """PreEnqueue plugin that gates every pod."""

    name = "GatesAll"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod."""
        return unschedulable("not yet")


@pytest.fixture(autouse=True)
def _journal() -> None:
    Journal.binds_before, Journal.node_names, Journal.fails, Journal.seconds = [], [], False, 0.0


def packing(**fields: Any) -> ProfileConfig:
    """Return a profile that prefers full nodes."""
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    args = PluginConfig(name="NodeResourcesFit", args={"scoringStrategy": strategy})
    scores = plugin_set(disabled=["NodeResourcesBalancedAllocation"])
    return ProfileConfig(scheduler_name=NAME, plugins=Plugins(score=scores), plugin_config=(args,), **fields)


def with_plugin(point: str, name: str) -> ProfileConfig:
    """Return a profile with one more plugin."""
    return ProfileConfig(scheduler_name=NAME, plugins=Plugins.model_validate({point: {"enabled": [{"name": name}]}}))


def made(config: ProfileConfig | None = None, *, ports: SchedulerPorts | None = None, **settings: Any) -> Rig:
    """Return a scheduler with two nodes and one shadow of its profile."""
    found = default_rig(plugins=(Journal, GatesAll), ports=ports, clock=WorkingClock())
    instance = found.scheduler.build(config or ProfileConfig(scheduler_name=NAME), is_shadow=True)
    found.scheduler.shadows.serve({NAME: (instance, ShadowSettings(DEFAULT_NAME, **settings))})
    found.add(*(node(name, allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"}) for name in "ab"))
    return found


def shadow_of(found: Rig) -> Shadow:
    return present(found.scheduler.shadows.get(NAME))


async def settle(found: Rig) -> None:
    """Run the loop until all pods are decided and compared."""
    async with found.running():
        await found.until(lambda: found.queue.readings.is_idle and not found.scheduler.binding_count)
        await found.until(lambda: not found.scheduler.cycles.decided.pods)


async def test_a_shadow_decides_after_the_bind_is_sent() -> None:
    """A shadow decides after the bind is sent, and its plugins get the pod without a node."""
    found = made(with_plugin("filter", "Journal"))
    found.add(*(pod(f"p{number}", requests={"cpu": "1"}) for number in range(4)))
    await settle(found)
    assert len(found.bound) == 4
    assert Journal.binds_before
    assert min(Journal.binds_before) >= 1
    assert set(Journal.node_names) == {""}


async def test_a_shadow_that_packs_chooses_other_nodes() -> None:
    """The record of a shadow that packs pods has the differences with reasons, and live decisions are unchanged."""
    found = made(packing())
    for number in range(6):
        found.add(pod(f"p{number}", requests={"cpu": "500m"}))
        await settle(found)
        found.clock.advance(2)
    record = shadow_of(found).record
    assert record.compared == record.decided == 6
    assert record.kinds[DifferenceKind.OTHER_NODE] == record.differed > 0
    last = record.differences[-1]
    assert last.kind is DifferenceKind.OTHER_NODE
    assert {last.live_node, last.shadow_node} == {"a", "b"}
    assert last.live_points is not None
    assert last.live_points > 0
    assert last.shadow_points is not None
    assert last.shadow_points > 0
    assert f"{NAME} prefers {last.shadow_node} to {last.live_node}" in last.reason
    assert "NodeResourcesFit" in last.reason
    figures = present(record.figures)
    assert figures.pods == 6
    assert figures.shadow.imbalance["cpu"] > figures.live.imbalance["cpu"]
    assert found.bound == (await _without_shadow(6))


async def _without_shadow(count: int) -> Mapping[str, str]:
    plain = default_rig(
        *(node(name, allocatable={"cpu": "8", "memory": "8Gi", "pods": "110"}) for name in "ab"),
        plugins=(Journal, GatesAll),
    )
    for number in range(count):
        plain.add(pod(f"p{number}", requests={"cpu": "500m"}))
        await settle(plain)
    return plain.bound


async def test_differences_in_feasibility() -> None:
    """A pod that only one profile rejects is a difference with the reason of that profile."""
    gated = made(with_plugin("preEnqueue", "GatesAll"))
    gated.add(pod("p"))
    await settle(gated)
    (rejected,) = shadow_of(gated).record.differences
    assert (rejected.kind, rejected.live_node, rejected.shadow_node) == (
        DifferenceKind.WOULD_REJECT,
        rejected.live_node,
        "",
    )
    assert rejected.reason == "gated by GatesAll: not yet"

    without_ports = Plugins(multi_point=plugin_set(disabled=["NodePorts"]))
    loose = made(ProfileConfig(scheduler_name=NAME, plugins=without_ports))
    for number in range(3):
        loose.add(pod(f"p{number}", ports=[80]))
        await settle(loose)
    (placed,) = shadow_of(loose).record.differences
    assert placed.kind is DifferenceKind.WOULD_PLACE
    assert placed.reason.startswith(f"{DEFAULT_NAME} rejects it: 0/2 nodes are available")
    assert shadow_of(loose).record.agreed == 2


@table("percent, low, high", ("10 %", 10, 2, 45), ("100 %", 100, 200, 200))
async def test_a_sample_is_compared(percent: int, low: int, high: int) -> None:
    """About the sample percentage of the pods is compared."""
    found = made(sample_percent=percent)
    found.add(*(pod(f"p{number}") for number in range(200)))
    await settle(found)
    record = shadow_of(found).record
    assert record.decided >= 200
    assert low <= record.compared <= high or record.skipped[shadows.OVER_BUDGET] > 0
    assert record.compared + sum(record.skipped.values()) == record.decided


async def test_a_shadow_that_fails_pauses() -> None:
    """After repeated errors the shadow pauses, and live decisions continue."""
    Journal.fails = True
    found = made(with_plugin("filter", "Journal"))
    for number in range(8):
        found.add(pod(f"p{number}"))
        await settle(found)
    record = shadow_of(found).record
    assert len(found.bound) == 8
    assert record.errors == shadows.FAILURES_BEFORE_PAUSE
    assert record.skipped[shadows.PAUSED] == 3
    assert "broken" in record.last_error
    Journal.fails = False
    found.clock.advance(PAUSE_SECONDS)
    found.add(pod("later"))
    await settle(found)
    assert record.compared == 1


async def test_a_slow_shadow_stays_within_its_budget() -> None:
    """A shadow whose decisions exceed its time budget is skipped until the budget recovers."""
    found = made(with_plugin("filter", "Journal"))
    Journal.seconds = 2.0
    for number in range(20):
        found.add(pod(f"p{number}"))
        await settle(found)
        found.clock.advance(0.5)
    record = shadow_of(found).record
    assert len(found.bound) == 20
    assert record.compared == 1
    assert record.skipped[shadows.OVER_BUDGET] == 19


async def test_skipped_pods_are_counted_by_reason() -> None:
    """Members of gangs and preemptions are not compared, and are counted by reason."""
    found = made()
    found.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    found.scheduler.group_feed.group_changed(group("g", 2))
    found.add(*members(2, "g", requests={"cpu": "100m"}))
    await settle(found)
    found.add(pod("low", requests={"cpu": "7"}), pod("low2", requests={"cpu": "7"}))
    await settle(found)
    found.add(pod("high", requests={"cpu": "8"}, priority=100))
    await settle(found)
    skipped = shadow_of(found).record.skipped
    assert skipped[decided_pods.GANG] == 2
    assert skipped[decided_pods.PREEMPTION] == 1


def _extended(client: ScriptedExtender) -> tuple[ProfileConfig, SchedulerPorts]:
    config = ProfileConfig(scheduler_name=NAME, extenders=(extender(client.url),))
    return config, SchedulerPorts(make_extender=lambda *_: client)


async def test_extenders_are_called_only_if_the_shadow_allows_it() -> None:
    """A shadow with extenders is compared only if its settings allow calls of extenders."""
    client = ScriptedExtender(on_filter=passes_only("a"))
    config, ports = _extended(client)
    silent = made(config, ports=ports)
    silent.add(pod("p"))
    await settle(silent)
    assert client.calls == []
    assert shadow_of(silent).record.skipped[shadows.HAS_EXTENDERS] == 1
    called = made(config, ports=ports, calls_extenders=True)
    called.add(pod("p", requests={"cpu": "1"}))
    await settle(called)
    assert client.called_verbs()[0] == "filter"
    assert shadow_of(called).record.compared == 1
    assert called.context.suspension.is_on is False


async def test_an_extender_without_a_response_is_limited_by_the_budget() -> None:
    """The call of an extender that does not respond ends with the time budget, and live decisions continue."""
    client = ScriptedExtender()
    client.hold()
    config, ports = _extended(client)
    found = made(config, ports=ports, calls_extenders=True)
    found.add(pod("p", requests={"cpu": "1"}))
    async with found.running():
        await found.until(lambda: bool(client.calls))
        found.clock.advance(0.2)
        await found.until(lambda: shadow_of(found).record.errors == 1)
        found.add(pod("q", requests={"cpu": "1"}))
        await found.until(lambda: len(found.bound) == 2)
    assert "did not answer within 100 ms" in shadow_of(found).record.last_error


async def test_differences_are_bounded() -> None:
    """The record stores the last differences up to a maximum."""
    found = made(with_plugin("preEnqueue", "GatesAll"), budget_percent=100)
    count = KEPT_DIFFERENCES + 5
    found.add(node("c", allocatable={"cpu": "200", "memory": "200Gi", "pods": "300"}))
    for number in range(count):
        found.add(pod(f"p{number}"))
        await settle(found)
    record = shadow_of(found).record
    assert record.differed == count
    assert [each.pod for each in record.differences][:: KEPT_DIFFERENCES - 1] == ["default/p5", f"default/p{count - 1}"]


async def test_results_are_reset_by_a_new_live_revision() -> None:
    """A new revision of the live profile resets the shadow's results."""
    found = made()
    found.add(pod("p"))
    await settle(found)
    assert shadow_of(found).record.compared == 1
    found.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, pod_max_backoff_seconds=77))
    found.add(pod("q"))
    await settle(found)
    assert shadow_of(found).record.compared == 1


async def test_a_removed_shadow_is_closed() -> None:
    """A removed shadow is closed, decided pods are not recorded, and live decisions continue."""
    found = made()
    instance = shadow_of(found).instance
    found.scheduler.shadows.serve({})
    found.add(pod("p"))
    await settle(found)
    assert instance._closed
    assert found.scheduler.cycles.decided.pods == []
    assert found.bound.keys() == {"p"}


# -- the time budget ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
@table(
    "durations",
    ("short decisions", (0.0001,)),
    ("some are slow", (0.0001, 0.0001, 0.02)),
    ("all are slow", (0.03,)),
    ("longer than the full budget", (2.0, 0.001)),
)
def test_the_share_is_never_exceeded_for_long(share: float, durations: tuple[float, ...]) -> None:
    """The used time never exceeds the share of the elapsed time by more than one second's share and ten decisions."""
    clock = WorkingClock()
    budget, started, decision_count = TimeBudget(share, clock.now), clock.now(), 0
    for _ in range(2000):
        clock.spend(0.005)
        allowed = budget.decisions(10)
        for _ in range(allowed):
            seconds = durations[decision_count % len(durations)]
            decision_count += 1
            clock.spend(seconds)
            budget.charge(seconds, 1)
        elapsed = clock.now() - started
        assert budget.spent <= share * (elapsed + 1) + 10 * max(durations)
    assert decision_count


def test_an_overdrawn_budget_recovers_before_the_next_decision() -> None:
    """After a decision that overdraws the budget, no decision is allowed until the budget has recovered."""
    clock = WorkingClock()
    budget = TimeBudget(0.1, clock.now)
    assert budget.decisions(5) == 1
    clock.spend(1.0)
    budget.charge(1.0, 1)
    assert budget.decisions(5) == 0
    clock.spend(8.9)
    assert budget.decisions(5) == 0
    clock.spend(1.5)
    assert budget.decisions(5) == 1


@table(
    "share, charged, seconds, most, allowed",
    ("one that takes longer than the full budget", 0.01, 0.05, 10, 5, 1),
    ("only as many as fit in a slice of 10 ms", 1.0, 0.001, 1, 100, 10),
)
def test_the_decisions_of_a_full_budget(share: float, charged: float, seconds: float, most: int, allowed: int) -> None:
    """A full budget allows a decision of any duration, and no more than a slice has time for."""
    clock = WorkingClock()
    budget = TimeBudget(share, clock.now)
    budget.charge(charged, 1)
    clock.spend(seconds)
    assert budget.decisions(most) == allowed
