"""Binding cycles that wait do not stop the scheduling of other pods, whatever they wait for."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.cycle.binding_cycle import WRITING_SECONDS
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreBindPlugin
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, group, member, members
from tests.support.scheduling import Rig, rig

LIMIT = 3


class _Provisioning(PreBindPlugin):
    """Waits, for the pods whose names begin with "slow", until the test opens the gate."""

    name = "Provisioning"
    gate = asyncio.Event()
    answer: Status = SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Wait for the volumes of the pod."""
        del state, node_name
        if not pod.pod.metadata.name.startswith("slow"):
            return SUCCESS
        await type(self).gate.wait()
        return type(self).answer


def _made(answer: Status = SUCCESS) -> Rig:
    _Provisioning.gate, _Provisioning.answer = asyncio.Event(), answer
    made = rig([_Provisioning], options=SchedulerOptions(max_binding=LIMIT), groups=[GroupSource.BAYPLAN])
    made.add(node("n0"))
    return made


@pytest.mark.parametrize("answer", [SUCCESS, unschedulable("no volume")], ids=["provisioned", "failed"])
async def test_pods_whose_volumes_are_not_provisioned_do_not_stop_others(answer: Status) -> None:
    """Pods in PreBind count as binds in progress only for the time of its writes, and then for no bind at all."""
    made = _made(answer)
    made.add(*(pod(f"slow-{each}") for each in range(2 * LIMIT)))
    async with made.running():
        await made.until(lambda: made.scheduler.binding_count == LIMIT)
        made.add(pod("other", priority=10))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not made.bound, "writes of PreBind count"
        made.clock.advance(WRITING_SECONDS)
        await made.until(lambda: "other" in made.bound)
        await made.until(lambda: made.scheduler.binding_count >= LIMIT + 2)
        made.clock.advance(WRITING_SECONDS)
        await made.until(lambda: made.scheduler.binding_count == 2 * LIMIT)
        _Provisioning.gate.set()
        await made.until(lambda: not made.scheduler.binding_count)
        assert made.context.idle_binds.count == 0


async def test_members_at_the_barrier_of_a_gang_do_not_stop_others() -> None:
    """While the members of a large gang wait for one of them, other pods are bound."""
    made = _made()
    add_groups(made, group(min_member=2 * LIMIT))
    made.add(*members(2 * LIMIT - 1), member("slow"))
    async with made.running():
        await made.until(lambda: made.scheduler.binding_count == 2 * LIMIT)
        made.add(pod("other"))
        await made.until(lambda: "other" in made.bound)
        assert list(made.bound) == ["other"], "no member is bound before the others"
        _Provisioning.gate.set()
        await made.until(lambda: not made.scheduler.binding_count)
        assert len(made.bound) == 2 * LIMIT + 1
        assert made.context.idle_binds.count == 0
