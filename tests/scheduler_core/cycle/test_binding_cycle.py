"""The binding cycle: waits, release after failures, binds whose response is lost, and annotations of the bind."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.cycle.binding_cycle import WRITING_SECONDS
from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.framework.cycle_state import CycleState, annotate_bind
from scheduler_core.framework.extension_points import PermitResult, PreBindPlugin, ReservePlugin
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Binding
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.cluster_cache import PodState
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, group, member, members
from tests.support.presence import present
from tests.support.recording_plugins import Journal, no_pods_assumed, recorder_rig
from tests.support.scheduling import DEFAULT_NAME, Rig, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig, schedule_and_bind
from tests.support.tables import table

POD = pod("web", requests={"cpu": "1"})
UID = POD.metadata.uid


def waits(seconds: float) -> PermitResult:
    return PermitResult(Status(Code.WAIT), seconds)


async def start_binding(made: Rig) -> asyncio.Task[bool]:
    """Schedule a pod, start its binding cycle and run it to its first wait."""
    attempt = present(made.decide())
    task = asyncio.get_running_loop().create_task(made.scheduler.cycles.binding.bind(attempt))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_a_bound_pod_is_reported() -> None:
    """The bind contains name and UID, the event contains the node, and the cache stores the pod as bound."""
    made = recorder_rig(Journal(), waiting=POD, nodes=1)
    assert await made.attempt() == "n0"
    assert [(entry.name, entry.uid, entry.node_name) for entry in made.writer.bindings] == [("web", UID, "n0")]
    event = made.writer.events[0]
    assert (event.type, event.reason, event.note) == ("Normal", "Scheduled", "Successfully assigned default/web to n0")
    assert event.reporting_controller == "default-scheduler"
    placed = present(made.context.cache.get(UID))
    assert placed.state is PodState.BOUND
    assert (made.context.metrics.records["default-scheduler"].scheduled, made.place_of(POD)) == (1, "")


async def test_only_the_first_bind_plugin_binds() -> None:
    """The first Bind plugin that does not skip binds the pod."""
    journal = Journal(results={"Rec.bind": Status()})
    made = recorder_rig(journal, waiting=POD, nodes=1)
    assert await made.attempt() == "n0"
    assert made.writer.attempted == []


async def test_no_plugin_binds() -> None:
    """If every Bind plugin skips, the error message contains the plugin to enable."""
    journal = Journal(results={"Rec.bind": SKIP})
    made = recorder_rig(journal, waiting=POD, nodes=1)
    attempt = present(made.decide())
    attempt.instance.bind = attempt.instance.bind[:1]
    assert not await made.scheduler.cycles.binding.bind(attempt)
    assert "enable DefaultBinder as the last one" in made.condition.message


@table(
    "failure",
    ("conflict", ConflictError("another scheduler won")),
    ("not-found", NotFoundError("the pod is gone")),
    ("unavailable", ServerUnavailableError("the server is away")),
    ("refused", ClusterWriteError("refused")),
)
async def test_a_failed_bind_is_unwound(failure: ClusterWriteError) -> None:
    """Unreserve runs in reverse order, the condition has the reason of the failure, and the pod is retried."""
    journal = Journal()
    made = recorder_rig(journal, "A", "B", waiting=POD, nodes=1)
    made.writer.fail_binds([failure])
    assert not await made.attempt()
    assert journal.plugins_at("unreserve") == ["B", "A"]
    assert no_pods_assumed(made)
    assert made.condition.message == f'running Bind plugin "DefaultBinder": {failure}'
    assert made.place_of(POD) == "errorBackoff"
    record = made.context.metrics.records["default-scheduler"]
    assert (record.errors, record.faults) == (1, 0), "the cluster failed the write, not a plugin"
    made.clock.advance(2)
    assert await made.attempt() == "n0"


async def test_a_bind_with_unknown_outcome_stays_assumed_until_the_pod_is_read() -> None:
    """After a bind timeout the pod stays assumed until it is read; it is bound, so the attempt succeeds."""
    journal = Journal()
    made = recorder_rig(journal, waiting=POD, nodes=1)
    made.writer.fail_binds([WriteTimeoutError("no answer")])
    made.writer.read_failure = ServerUnavailableError("away")
    task = await start_binding(made)
    assert not task.done()
    assert made.columns.pod_count.tolist() == [1]
    made.writer.read_failure = None
    made.writer.pods["default/web"] = pod("web", requests={"cpu": "1"}, node_name="n0")
    made.clock.advance(1)
    assert await task
    assert "unreserve" not in journal.points_of("Rec")
    assert made.place_of(POD) == ""


@table("found", ("unbound", POD), ("another-pod", pod("web", uid="another", node_name="n0")), ("deleted", None))
async def test_a_bind_with_unknown_outcome_that_failed_is_unwound(found: Pod | None) -> None:
    """After a bind timeout the pod is read and is not bound, so the attempt is unwound."""
    journal = Journal()
    made = recorder_rig(journal, waiting=POD, nodes=1)
    made.writer.fail_binds([WriteTimeoutError("no answer")])
    if found is not None:
        made.writer.pods["default/web"] = found
    assert not await made.attempt()
    assert journal.plugins_at("unreserve") == ["Rec"]
    assert no_pods_assumed(made)
    assert "no answer" in made.condition.message


@pytest.mark.parametrize("point", ["preBindPreFlight", "preBind", "bind"])
@table("answer", ("error", error("no")), ("raises", ValueError("no")))
async def test_unreserve_runs_in_reverse_order(point: str, answer: object) -> None:
    """Whichever point of the binding cycle fails, Unreserve of all plugins runs, the last plugin first."""
    journal = Journal(results={f"B.{point}": answer})
    made = recorder_rig(journal, "A", "B", "C", waiting=POD, nodes=1)
    assert not await made.attempt()
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert no_pods_assumed(made)


async def test_a_plugin_that_skips_pre_flight_has_no_pre_bind_call() -> None:
    """PreBind is not called for a plugin whose PreBindPreFlight returns Skip."""
    journal = Journal(results={"A.preBindPreFlight": SKIP})
    made = recorder_rig(journal, "A", "B", waiting=POD, nodes=1)
    assert await made.attempt() == "n0"
    assert journal.plugins_at("preBind") == ["B"]


async def test_post_bind_cannot_fail_a_pod() -> None:
    """A pod is bound although a PostBind plugin raises, and the other PostBind plugins are called."""
    journal = Journal(results={"A.postBind": ValueError("no")})
    made = recorder_rig(journal, "A", "B", waiting=POD, nodes=1)
    assert await made.attempt() == "n0"
    assert journal.plugins_at("postBind") == ["A", "B"]


async def test_permit_waits_for_all_plugins() -> None:
    """A pod that waits is bound when the last plugin allows it; meanwhile it is assumed and nominated to its node."""
    journal = Journal(results={"A.permit": waits(10), "C.permit": waits(20)})
    made = recorder_rig(journal, "A", "B", "C", waiting=POD, nodes=1)
    task = await start_binding(made)
    waiting = present(made.context.waiting.get(UID))
    assert (waiting.node_name, sorted(waiting.pending_plugins())) == ("n0", ["A", "C"])
    assert made.writer.patches[0].nominated_node_name == "n0"
    waiting.allow("A")
    waiting.allow("A")
    await asyncio.sleep(0)
    assert not task.done()
    waiting.allow("C")
    assert await task
    assert len(made.context.waiting) == 0
    assert made.clock.pending == 0


@pytest.mark.parametrize("result", ["rejected", "timed-out"])
async def test_permit_rejects_or_times_out(result: str) -> None:
    """The plugin that rejected or timed out is recorded, and Unreserve runs in reverse order."""
    journal = Journal(results={"A.permit": waits(10), "C.permit": waits(20)})
    made = recorder_rig(journal, "A", "B", "C", waiting=POD, nodes=1)
    task = await start_binding(made)
    if result == "rejected":
        waiting = present(made.context.waiting.get(UID))
        waiting.reject("A", "not today")
        message = "0/1 nodes are available: 1 not today."
    else:
        made.clock.advance(10)
        message = "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin A."
    assert not await task
    assert made.condition.message == message
    assert made.condition.reason == "Unschedulable"
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert no_pods_assumed(made)
    queued = present(made.queue.find(UID))
    assert queued.rejected_by == {"A"}
    assert made.place_of(POD) == "unschedulable"
    assert made.clock.pending == 0


async def test_the_permit_timeout_is_at_most_15_minutes() -> None:
    """A Permit timeout is limited to 15 minutes, as in kube-scheduler."""
    journal = Journal(results={"Rec.permit": waits(86_400)})
    made = recorder_rig(journal, waiting=POD, nodes=1)
    task = await start_binding(made)
    made.clock.advance(15 * 60)
    assert not await task
    assert "after waiting 15m0s at plugin Rec" in made.condition.message


async def test_a_failed_pre_flight_ends_the_wait() -> None:
    """A pod that fails before it waits leaves no waiting entry and no timer behind."""
    journal = Journal(results={"A.permit": waits(10), "B.preBindPreFlight": error("no")})
    made = recorder_rig(journal, "A", "B", waiting=POD, nodes=1)
    assert not await made.attempt()
    assert len(made.context.waiting) == 0
    assert made.place_of(POD) == "errorBackoff"
    made.queue.close()
    assert made.clock.pending == 0


# -- annotations that a plugin adds to the bind ------------------------------------------------------------------------


class Annotator(ReservePlugin):
    """Reserve plugin that adds an annotation with the chosen node to the bind."""

    name = "Annotator"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        annotate_bind(state, "example.com/chosen", node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do nothing, because the annotation is dropped with the cycle state."""


async def test_default_binder_writes_annotations() -> None:
    """DefaultBinder writes the annotation of a Reserve plugin with the node."""
    made = rig([Annotator])
    made.add(node("a"), pod("web"))
    async with made.running():
        await made.until(lambda: bool(made.writer.bindings))
    assert [(each.node_name, each.annotations) for each in made.writer.bindings] == [
        ("a", (("example.com/chosen", "a"),))
    ]


@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_binds_does_not_drop_annotations(ignorable: bool) -> None:
    """A pod with bind annotations is not bound by an extender, and the event contains the remedy."""
    sent: list[Binding] = []
    client = ScriptedExtender(on_bind=sent.append)
    made = extender_rig((extender(client.url, bindVerb="bind", ignorable=ignorable), client), plugins=[Annotator])
    made.add(node("a"), pod("web"))
    await schedule_and_bind(made)
    assert sent == []
    assert made.writer.attempted == []
    assert made.scheduler.context.cache.get(pod("web").metadata.uid) is None
    assert any("remove the extender's bindVerb" in each.note for each in made.writer.events)


# -- binding cycles that wait do not stop other pods -------------------------------------------------------------------


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


async def test_pods_whose_prebind_waits_for_the_end_of_a_suspension_do_not_stop_others() -> None:
    """While a shadow profile decides, no PreBind begins; the scheduling loop may wait for binds before one does."""
    made = _made()
    config = ProfileConfig(scheduler_name="shadow")
    made.scheduler.shadows.serve(
        {"shadow": (made.scheduler.build(config, is_shadow=True), ShadowSettings(DEFAULT_NAME))}
    )
    made.add(*(pod(f"slow-{each}") for each in range(2 * LIMIT)))
    async with made.running():
        await made.until(lambda: made.scheduler.binding_count == LIMIT)
        for _ in range(20):
            await asyncio.sleep(0)
        made.clock.advance(WRITING_SECONDS)
        await made.until(lambda: made.scheduler.binding_count > LIMIT)
        _Provisioning.gate.set()


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
