"""Delay of preemption: no pod is evicted while a new node may come, and none is if it comes."""

from __future__ import annotations

import pytest

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.gang_preemption import running_pod
from tests.support.gangs import group, members
from tests.support.scheduling import DEFAULT_NAME, Rig, gang_rig
from tests.support.tables import table

DELAY = 60


def _cluster(delay: int = DELAY) -> Rig:
    made = gang_rig(serve=False)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=PreemptionSettings(delay_seconds=delay)))
    made.add(node("full", allocatable={"cpu": "2", "pods": "10"}))
    made.add(*(running_pod(f"low-{number}", "full") for number in range(2)))
    return made


async def _settle(made: Rig, seconds: float = 0.0) -> None:
    """Run the scheduler until it is idle, before and after the clock advances."""
    async with made.running():
        await made.scheduler.until_idle()
        if seconds:
            made.clock.advance(seconds)
            await made.scheduler.until_idle()


def _preemptors(kind: str) -> list[Pod]:
    if kind == "pod":
        return [pod("high", requests={"cpu": "2"}, priority=9)]
    return members(2, priority=9)


def _add(made: Rig, kind: str) -> list[str]:
    pods = _preemptors(kind)
    made.scheduler.group_feed.group_changed(group())
    made.add(*pods)
    return [each.metadata.name for each in pods]


def _evicted(made: Rig) -> set[str]:
    return {deletion.name for deletion in made.writer.deletions}


KINDS = pytest.mark.parametrize("kind", ["pod", "gang"])


@KINDS
@table("seconds, evicts", ("within", DELAY - 1, False), ("after", DELAY, True))
async def test_victims_run_until_the_delay_ends(kind: str, seconds: int, evicts: bool) -> None:
    """Nothing else has to occur at the end of the delay: a timer activates the pod or gang."""
    made = _cluster()
    _add(made, kind)
    await _settle(made)
    assert _evicted(made) == set()
    assert "waits until 60 s after the first attempt for a new node" in made.condition.message
    assert made.condition.reason == "Unschedulable"
    await _settle(made, seconds)
    assert _evicted(made) == ({"low-0", "low-1"} if evicts else set())


@KINDS
async def test_a_node_within_the_delay(kind: str) -> None:
    """The pods are bound to the new node, and no pod is ever evicted."""
    made = _cluster()
    names = _add(made, kind)
    await _settle(made, DELAY / 2)
    made.add(node("new", allocatable={"cpu": "2", "pods": "10"}))
    await _settle(made, 2.0 * DELAY)
    assert {name: made.bound.get(name) for name in names} == dict.fromkeys(names, "new")
    assert _evicted(made) == set()


@KINDS
async def test_without_a_delay(kind: str) -> None:
    """By default the first attempt preempts, as in kube-scheduler."""
    made = _cluster(0)
    _add(made, kind)
    await _settle(made)
    assert _evicted(made) == {"low-0", "low-1"}


async def test_further_attempts_do_not_extend_the_delay() -> None:
    """The delay counts from the first attempt, however many follow, and the condition stays the same."""
    made = _cluster()
    _add(made, "pod")
    await _settle(made)
    message = made.condition.message
    for number in range(5):
        count = len(made.writer.patches)
        made.add(node(f"tainted-{number}", allocatable={"cpu": "2", "pods": "10"}, taints=["key:NoSchedule"]))
        await _settle(made, DELAY / 6)
        assert len(made.writer.patches) > count
        assert _evicted(made) == set()
        assert made.condition.message.endswith(message.partition(". ")[2])
    await _settle(made, DELAY / 6)
    assert _evicted(made) == {"low-0", "low-1"}


async def test_each_pod_has_its_own_delay() -> None:
    """One timer serves pods that arrive one after the other."""
    made = _cluster()
    made.add(node("other", allocatable={"cpu": "2", "pods": "10"}), running_pod("low-2", "other", cpus=2))
    _add(made, "pod")
    await _settle(made, DELAY / 2)
    made.add(pod("later", requests={"cpu": "2"}, priority=9))
    await _settle(made, DELAY / 2)
    first = _evicted(made)
    assert first in ({"low-0", "low-1"}, {"low-2"})
    await _settle(made, DELAY / 2)
    assert _evicted(made) == {"low-0", "low-1", "low-2"}


@pytest.mark.parametrize("seconds", [-1, 86_401])
def test_the_delay_is_bounded(seconds: int) -> None:
    """A value out of range is an error that names the field."""
    with pytest.raises(ValueError, match=r"preemption\.delaySeconds"):
        ProfileConfig.model_validate({"schedulerName": "a", "preemption": {"delaySeconds": seconds}})
