"""Pods that wait at Permit, with plugins and timeouts, and pods in PreBind, whose cancellation ends the cycle."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitResult, PreBindPlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler_core.framework.waiting_pods import PodInPreBind, PodsInPreBind, WaitingPods
from scheduler_core.runtime.binding import run_permit, run_pre_binds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import profile, rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def wait(seconds: float) -> PermitResult:
    return PermitResult(Status(Code.WAIT), seconds)


async def test_waiting_pods_are_listed() -> None:
    """Waiting pods are listed oldest first and found by UID."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    first = waiting.add(WEB, "n0", {"A": 10})
    clock.advance(1)
    second = waiting.add(DB, "n1", {"A": 10})
    assert (list(waiting), len(waiting)) == ([first, second], 2)
    assert waiting.get(WEB.uid) is first
    assert (first.since, second.since, second.node_name) == (1000, 1001, "n1")
    waiting.discard(WEB.uid)
    waiting.discard(DB.uid)
    assert (len(waiting), clock.pending) == (0, 0)


async def test_a_pod_that_does_not_wait_continues() -> None:
    """The wait of a pod that does not wait at Permit returns Success at once."""
    assert await WaitingPods(VirtualClock()).wait("unknown") == SUCCESS


@table(
    "steps, code, plugin",
    ("all-allow", ["allow A", "allow B"], Code.SUCCESS, ""),
    ("one-rejects", ["allow A", "reject B"], Code.UNSCHEDULABLE, "B"),
    ("first-result-counts", ["reject A", "allow A", "allow B"], Code.UNSCHEDULABLE, "A"),
    ("too-late-to-reject", ["allow A", "allow B", "reject B"], Code.SUCCESS, ""),
    ("timeout-of-the-other", ["allow A", "pass 20"], Code.UNSCHEDULABLE, "B"),
    ("shortest-timeout-first", ["pass 10"], Code.UNSCHEDULABLE, "A"),
    ("no-timeout-after-allow", ["allow A", "pass 10", "allow B"], Code.SUCCESS, ""),
    ("other-plugins-are-ignored", ["allow C", "allow A", "allow B"], Code.SUCCESS, ""),
)
async def test_a_wait_ends_once(steps: list[str], code: Code, plugin: str) -> None:
    """A wait ends with the last approval, the first rejection or the first timeout, and leaves no timer."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    entry = waiting.add(WEB, "n0", {"A": 10, "B": 20})
    end = asyncio.get_running_loop().create_task(waiting.wait(WEB.uid))
    assert not entry.is_refused
    for step in steps:
        action, _, argument = step.partition(" ")
        if action == "allow":
            entry.allow(argument)
        elif action == "reject":
            entry.reject(argument, "no")
        else:
            clock.advance(float(argument))
    assert entry.is_refused is (code is not Code.SUCCESS), "the result is available before the task runs"
    status = await end
    assert (status.code, status.plugin) == (code, plugin)
    assert (len(waiting), clock.pending) == (0, 0)


async def test_preempting_ends_a_wait_as_an_error() -> None:
    """Preemption of a waiting pod ends its wait with an error, once."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    entry = waiting.add(WEB, "n0", {"A": 10})
    assert entry.preempt("P", "preempted")
    assert not entry.preempt("P", "preempted")
    status = await waiting.wait(WEB.uid)
    assert (status.code, status.plugin, clock.pending) == (Code.ERROR, "P", 0)
    assert status.message == "waiting on permit for pod: preempted"


async def test_only_the_first_end_of_a_wait_counts() -> None:
    """``reject`` returns whether it took effect; an allowed pod can no longer be rejected."""
    waiting = WaitingPods(VirtualClock())
    entry = waiting.add(WEB, "n0", {"A": 10})
    assert entry.reject("A", "no")
    assert not entry.reject("A", "no")
    other = waiting.add(DB, "n0", {"A": 10})
    other.allow("A")
    assert not other.reject("A", "no")
    assert not other.preempt("P", "preempted")


async def test_a_deleted_pod_is_rejected_without_a_plugin() -> None:
    """The wait of a deleted pod is rejected without a plugin, once."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    waiting.add(WEB, "n0", {"A": 10})
    assert (waiting.reject(WEB.uid), waiting.reject(WEB.uid), waiting.reject(DB.uid)) == (True, False, False)
    status = await waiting.wait(WEB.uid)
    assert (status.code, status.plugin, status.message) == (Code.UNSCHEDULABLE, "", "removed")
    assert clock.pending == 0


async def test_an_abandoned_wait_is_cancelled() -> None:
    """When the process stops, all waits are cancelled and no timer remains."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    for info in (WEB, DB):
        waiting.add(info, "n0", {"A": 10, "B": 20})
    ends = [asyncio.create_task(waiting.wait(info.uid)) for info in (WEB, DB)]
    await asyncio.sleep(0)
    waiting.abandon_all()
    await asyncio.gather(*ends, return_exceptions=True)
    assert all(end.cancelled() for end in ends)
    assert (len(waiting), clock.pending) == (0, 0)


@table(
    "seconds, written",
    ("below-a-second", 0.5, "500ms"),
    ("seconds", 10, "10s"),
    ("minutes", 90, "1m30s"),
    ("maximum", 900, "15m0s"),
)
async def test_the_message_of_a_timeout(seconds: float, written: str) -> None:
    """The message of a timeout has the duration in Go's format, as in kube-scheduler."""
    clock = VirtualClock()
    waiting = WaitingPods(clock)
    waiting.add(WEB, "n0", {"A": seconds})
    clock.advance(seconds)
    status = await waiting.wait(WEB.uid)
    assert status.message == f"rejected due to timeout after waiting {written} at plugin A"


@table(
    "answers, code, waits",
    ("no-wait", {}, Code.SUCCESS, {}),
    ("timeout-of-each-plugin", {"A.permit": wait(5), "B.permit": wait(7)}, Code.WAIT, {"A": 5, "B": 7}),
    ("limited-to-15-minutes", {"A.permit": wait(86_400)}, Code.WAIT, {"A": 900}),
    ("not-a-number", {"A.permit": wait(float("nan"))}, Code.WAIT, {"A": 900}),
    ("rejects", {"A.permit": wait(5), "B.permit": PermitResult(unschedulable("no"))}, Code.UNSCHEDULABLE, {}),
    ("raises", {"A.permit": wait(5), "B.permit": KeyError("k")}, Code.ERROR, {}),
)
def test_all_permit_plugins_are_called(answers: dict[str, object], code: Code, waits: dict[str, float]) -> None:
    """Permit is called for all plugins, even if earlier plugins return Wait."""
    journal = Journal(results=answers)
    (instance,) = rig([recorder("A", journal), recorder("B", journal)], serve=False).serve(profile())
    status, timeouts = run_permit(instance, CycleState(), WEB, "n0")
    assert (status.code, timeouts) == (code, waits)
    assert journal.plugins_at("permit") == ["A", "B"]


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
