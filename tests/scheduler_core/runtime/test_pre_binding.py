"""Pods in PreBind, and their cancellation by preemption."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreBindPlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, error
from scheduler_core.framework.waiting_pods import PodInPreBind, PodsInPreBind
from scheduler_core.runtime.binding import run_pre_binds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import profile, rig
from tests.support.tables import table

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))
STOPPED = "preempted by DefaultPreemption"


class Slow(PreBindPlugin):
    """PreBind plugin that waits until the test opens the gate."""

    name = "Slow"
    gate: ClassVar[asyncio.Event]

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await self.gate.wait()
        return SUCCESS


class IgnoresCancellation(Slow):
    """PreBind plugin that succeeds after a cancellation."""

    name = "IgnoresCancellation"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return SUCCESS


class Failing(Slow):
    """PreBind plugin that returns an error after a cancellation."""

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
        with self.pods.hold(WEB, "n0") as pre_binding:
            status = await run_pre_binds(self.instance, CycleState(), pre_binding)
        # The rest of the task must not be cancelled.
        await asyncio.sleep(0)
        return status

    async def wait_for_pre_bind(self) -> PodInPreBind:
        for _ in range(3):
            await asyncio.sleep(0)
        return present(self.pods.get(WEB.uid))


async def test_pods_in_pre_bind() -> None:
    """Pods are listed oldest first and found by UID while the block lasts."""
    pods = PodsInPreBind()
    with pods.hold(WEB, "n0") as first, pods.hold(DB, "n1") as second:
        assert (list(pods), len(pods)) == ([first, second], 2)
        assert pods.get(WEB.uid) is first
        assert (second.pod, second.node_name) == (DB, "n1")
    assert (list(pods), pods.get(WEB.uid)) == ([], None)


@table(
    "plugin, message",
    ("interrupted", Slow, f'running PreBind plugin "Slow": {STOPPED}'),
    ("ignores-cancellation", IgnoresCancellation, STOPPED),
    ("returns-an-error", Failing, 'running PreBind plugin "Failing": interrupted'),
)
async def test_a_pod_that_is_cancelled(plugin: type[Slow], message: str) -> None:
    """Cancellation ends PreBind with an error, no further plugin is called, and the task continues."""
    stage = Stage(plugin)
    pre_binding = await stage.wait_for_pre_bind()
    assert pre_binding.cancel(STOPPED)
    assert pre_binding.cancel("another reason")
    status = await stage.task
    assert (status.code, status.message) == (Code.ERROR, message)
    assert stage.journal.plugins_at("preBind") == []
    assert len(stage.pods) == 0


async def test_a_pod_after_pre_bind_cannot_be_cancelled() -> None:
    """After PreBind a pod cannot be cancelled, because it is being bound."""
    stage = Stage(Slow)
    pre_binding = await stage.wait_for_pre_bind()
    stage.gate.set()
    assert await stage.task == SUCCESS
    assert not pre_binding.cancel(STOPPED)
    assert stage.journal.plugins_at("preBind") == ["After"]


@table("is_stopped", ("running", False), ("pod-is-cancelled-too", True))
async def test_cancelling_the_task_is_not_prevented(is_stopped: bool) -> None:
    """Cancellation of the task, as when the process stops, is not converted to a status."""
    stage = Stage(Slow)
    pre_binding = await stage.wait_for_pre_bind()
    if is_stopped:
        assert pre_binding.cancel(STOPPED)
    stage.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.task
    assert len(stage.pods) == 0
