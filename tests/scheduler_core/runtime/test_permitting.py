"""Pods that wait at Permit: who waits, on whose word, until when."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.virtual_clock import VirtualClock

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


async def test_the_map() -> None:
    """Oldest first, found by UID."""
    clock = VirtualClock()
    waiting = WaitingPodMap(clock)
    first = waiting.add(WEB, "n0", {"A": 10})
    clock.advance(1)
    second = waiting.add(DB, "n1", {"A": 10})
    assert (list(waiting), len(waiting)) == ([first, second], 2)
    assert waiting.get(WEB.uid) is first
    assert (first.since, second.since, second.node_name) == (1000, 1001, "n1")
    waiting.discard(WEB.uid)
    waiting.discard(DB.uid)
    assert (len(waiting), clock.pending) == (0, 0)


async def test_who_does_not_wait_goes_on() -> None:
    """At once."""
    assert await WaitingPodMap(VirtualClock()).wait("nobody") == SUCCESS


@pytest.mark.parametrize(
    ("steps", "code", "plugin"),
    [
        pytest.param(["allow A", "allow B"], Code.SUCCESS, "", id="all-allow"),
        pytest.param(["allow A", "reject B"], Code.UNSCHEDULABLE, "B", id="one-rejects"),
        pytest.param(["reject A", "allow A", "allow B"], Code.UNSCHEDULABLE, "A", id="the-first-end-counts"),
        pytest.param(["allow A", "allow B", "reject B"], Code.SUCCESS, "", id="too-late-to-reject"),
        pytest.param(["allow A", "pass 20"], Code.UNSCHEDULABLE, "B", id="time-is-up-for-the-other"),
        pytest.param(["pass 10"], Code.UNSCHEDULABLE, "A", id="shortest-time-first"),
        pytest.param(["allow A", "pass 10", "allow B"], Code.SUCCESS, "", id="who-allowed-has-no-time-out"),
        pytest.param(["allow C", "allow A", "allow B"], Code.SUCCESS, "", id="strangers-do-not-matter"),
    ],
)
async def test_a_wait_ends_once(steps: list[str], code: Code, plugin: str) -> None:
    """By the last leave, the first refusal or the first time that is up; no timer is left."""
    clock = VirtualClock()
    waiting = WaitingPodMap(clock)
    entry = waiting.add(WEB, "n0", {"A": 10, "B": 20})
    end = asyncio.get_running_loop().create_task(waiting.wait(WEB.uid))
    for step in steps:
        what, _, whom = step.partition(" ")
        if what == "allow":
            entry.allow(whom)
        elif what == "reject":
            entry.reject(whom, "no")
        else:
            clock.advance(float(whom))
    status = await end
    assert (status.code, status.plugin) == (code, plugin)
    assert (len(waiting), clock.pending) == (0, 0)


async def test_preempting_ends_a_wait_as_an_error() -> None:
    """The pod is tried again after backoff, whatever its plugins would say; a wait that has ended stays as it ended."""
    clock = VirtualClock()
    waiting = WaitingPodMap(clock)
    entry = waiting.add(WEB, "n0", {"A": 10})
    assert entry.preempt("P", "preempted")
    assert not entry.preempt("P", "preempted")
    status = await waiting.wait(WEB.uid)
    assert (status.code, status.plugin, clock.pending) == (Code.ERROR, "P", 0)
    assert status.message == "waiting on permit for pod: preempted"
