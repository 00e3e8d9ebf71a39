"""Pods in PreBind, and their cancellation by preemption."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreBindPlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, error
from scheduler_core.runtime.pre_binding import PodsInPreBind, PreBindingPod, run_pre_binds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import profile, rig

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))
STOPPED = "preempted by DefaultPreemption"


class Slow(PreBindPlugin):
    """Waits in PreBind until the test opens the gate."""

    name = "Slow"
    gate: ClassVar[asyncio.Event]

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await self.gate.wait()
        return SUCCESS


class Stubborn(Slow):
    """Continues after a cancellation."""

    name = "Stubborn"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return SUCCESS


class Failing(Slow):
    """Replaces a cancellation by an error of its own."""

    name = "Failing"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            return error("interrupted")
        return SUCCESS


class Stage:
    """PreBind of one pod as a task, with a second plugin after the first."""

    def __init__(self, first: type[Slow]) -> None:
        first.gate = asyncio.Event()
        self.gate, self.journal, self.pods = first.gate, Journal(), PodsInPreBind()
        (self.instance,) = rig([first, recorder("After", self.journal)], serve=False).serve(profile())
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> Status:
        with self.pods.hold(WEB, "n0") as held:
            status = await run_pre_binds(self.instance, CycleState(), held)
        # The rest of the task must not be cancelled.
        await asyncio.sleep(0)
        return status

    async def begun(self) -> PreBindingPod:
        for _ in range(3):
            await asyncio.sleep(0)
        held = self.pods.get(WEB.uid)
        assert held is not None
        return held


async def test_pods_in_pre_bind() -> None:
    """Pods are listed oldest first and found by UID while the block lasts."""
    pods = PodsInPreBind()
    with pods.hold(WEB, "n0") as first, pods.hold(DB, "n1") as second:
        assert (list(pods), len(pods)) == ([first, second], 2)
        assert pods.get(WEB.uid) is first
        assert (second.pod, second.node_name) == (DB, "n1")
    assert (list(pods), pods.get(WEB.uid)) == ([], None)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        pytest.param(Slow, f'running PreBind plugin "Slow": {STOPPED}', id="interrupted"),
        pytest.param(Stubborn, STOPPED, id="goes-on-in-spite-of-it"),
        pytest.param(Failing, 'running PreBind plugin "Failing": interrupted', id="says-so-itself"),
    ],
)
async def test_a_pod_that_is_cancelled(plugin: type[Slow], message: str) -> None:
    """PreBind ends with an error, no further plugin runs, and the task continues; a second cancel has no effect."""
    stage = Stage(plugin)
    held = await stage.begun()
    assert held.cancel(STOPPED)
    assert held.cancel("another reason")
    status = await stage.task
    assert (status.code, status.message) == (Code.ERROR, message)
    assert stage.journal.plugins_at("preBind") == []
    assert len(stage.pods) == 0


async def test_a_pod_after_pre_bind_cannot_be_cancelled() -> None:
    """The pod is being bound."""
    stage = Stage(Slow)
    held = await stage.begun()
    stage.gate.set()
    assert await stage.task == SUCCESS
    assert not held.cancel(STOPPED)
    assert stage.journal.plugins_at("preBind") == ["After"]


@pytest.mark.parametrize("is_stopped", [pytest.param(False, id="running"), pytest.param(True, id="stopped-as-well")])
async def test_cancelling_the_task_is_not_prevented(is_stopped: bool) -> None:
    """The process stops, which is not turned into a status."""
    stage = Stage(Slow)
    held = await stage.begun()
    if is_stopped:
        assert held.cancel(STOPPED)
    stage.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.task
    assert len(stage.pods) == 0
