"""Suspended cycles: while a cycle waits for an extender, changes are buffered and binding tasks wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import Struct

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import ConflictError
from scheduler_core.feeds.object_feed import DeclaredFeed
from scheduler_core.framework.extension_points import PermitResult
from scheduler_core.framework.object_reads import ObjectKind
from scheduler_core.framework.status import Code, Status
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import Namespace
from scheduler_core.ports import StorageWriter
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig
from tests.support.scripted_extender import (
    ScriptedExtender,
    decide,
    extender,
    extender_profile,
    extender_rig,
    passes_only,
)
from tests.support.storage import RecordingStorageWriter, volume

POD = pod("web", requests={"cpu": "1"})


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# -- suspension -----------------------------------------------------------------------------------------------------


def test_changes_are_applied_at_once_or_in_order_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Changes are buffered during a suspension, and a change that fails does not prevent the others."""
    suspension, applied = Suspension(), list[int]()
    suspension.run_or_defer(applied.append, 0)
    with suspension.of_cycle():
        suspension.run_or_defer(applied.append, 1)
        suspension.run_or_defer(applied.remove, 99)
        suspension.run_or_defer(applied.append, 2)
        assert (applied, suspension.is_on) == ([0], True)
    assert (applied, suspension.is_on) == ([0, 1, 2], False)
    assert "could not be applied" in caplog.text


async def test_waiting_tasks_continue_before_the_next_suspension() -> None:
    """A task that waits for a suspension also waits for the next one."""
    suspension = Suspension()
    await suspension.over()
    with suspension.of_cycle():
        waiting = asyncio.ensure_future(suspension.over())
        await settle()
        assert (waiting.done(), suspension.waiting_tasks) == (False, 1)
    with suspension.of_cycle():
        await settle()
        assert (waiting.done(), suspension.waiting_tasks) == (False, 1)
    await waiting
    assert not suspension.waiting_tasks


# -- cycles ---------------------------------------------------------------------------------------------------------


def suspended_rig(
    client: ScriptedExtender, *names: str, journal: Journal | None = None, storage: StorageWriter | None = None
) -> Rig:
    """Return a scheduler with nodes, one pod, and an extender that does not respond until the test allows it."""
    client.hold()
    plugins = [] if journal is None else [recorder("Rec", journal)]
    made = extender_rig((extender(prioritizeVerb=""), client), plugins=plugins, storage=storage)
    made.add(*(node(name) for name in names or ("a", "b")), POD)
    return made


async def start_cycle(made: Rig) -> asyncio.Task[Attempt | None]:
    """Start a cycle, and return it when it waits for its extender."""
    task = asyncio.ensure_future(decide(made))
    await settle()
    assert made.context.suspension.is_on
    return task


async def test_a_suspended_cycle_sees_no_changes() -> None:
    """Changes of pods, nodes, volumes and namespaces are applied in order when the suspended cycle has ended."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    cycle = await start_cycle(made)
    columns, feed = made.columns, made.scheduler.feed
    running = pod("other", node_name="a")
    made.add(node("late"), running)
    feed.pod_updated(running, pod("other", node_name="a", labels={"x": "y"}))
    feed.node_updated(node("b"), node("b", unschedulable=True))
    feed.node_deleted(node("b"))
    feed.pod_added(pod("gone"))
    feed.pod_deleted(pod("gone"))
    made.scheduler.storage_feed.added(volume("pv"))
    made.scheduler.workload_feed.added(Namespace(ObjectMeta(name="ns", labels={"team": "x"})))
    assert (columns.count, len(made.queue.readings), columns.storage.volumes.get("pv")) == (2, 0, None)
    assert columns.namespaces.get("ns") is None
    assert made.context.cache.get(running.metadata.uid) is None

    client.release()
    assert await cycle is not None
    assert sorted(name for name in ("a", "b", "late") if columns.row_of(name) >= 0) == ["a", "late"]
    placed = present(made.context.cache.get(running.metadata.uid))
    assert placed.info.pod.metadata.labels == {"x": "y"}
    assert len(made.queue.readings) == 0
    assert columns.storage.volumes.get("pv") is not None
    assert columns.namespaces.get("ns") == {"team": "x"}


class Seat(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta


def test_changes_of_declared_objects_are_buffered() -> None:
    """Changes of objects of declared kinds are applied in order when the cycle has ended."""
    context = rig().context
    kind = ObjectKind("/apis/example.com/v1/seats", Seat)
    store = context.services.declared[kind.path]
    feed = DeclaredFeed(kind, store, context.queue, context.suspension)
    one, two = (Seat(ObjectMeta(name=name)) for name in ("one", "two"))
    feed.added(two)
    with context.suspension.of_cycle():
        feed.added(one)
        feed.updated(one, one)
        feed.deleted(two)
        assert (store.get("one"), store.get("two")) == (None, two)
    assert (store.get("one"), store.get("two")) == (one, None)


async def test_a_buffered_change_requeues_the_failed_pod() -> None:
    """A buffered change is applied after the failed pod is requeued, so that no event is missed."""
    client = ScriptedExtender(on_filter=passes_only())
    made = suspended_rig(client)
    cycle = await start_cycle(made)
    made.add(node("new"))
    assert made.place_of(POD) == "inFlight"
    client.release()
    assert await cycle is None
    assert made.place_of(POD) == "backoff"


async def test_a_pod_deleted_while_its_cycle_is_suspended() -> None:
    """The deletion of a pod is applied after the pod is assumed; the bind fails, and the pod is removed."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    made.writer.fail_binds([ConflictError("gone")])
    cycle = await start_cycle(made)
    made.scheduler.feed.pod_deleted(POD)
    client.release()
    attempt = present(await cycle)
    assert not await made.scheduler.cycles.binding.bind(attempt)
    assert (made.place_of(POD), made.context.cache.assumed_count) == ("", 0)
    assert not made.columns.pod_count.any()


async def binding_while_suspended(
    made: Rig, client: ScriptedExtender
) -> tuple[asyncio.Task[bool], asyncio.Task[object]]:
    """Bind the first pod while the cycle of the second pod is suspended."""
    client.release()
    attempt = present(await decide(made))
    client.hold()
    made.add(pod("second"))
    cycle: asyncio.Task[object] = asyncio.ensure_future(decide(made))
    await settle()
    binding = asyncio.ensure_future(made.scheduler.cycles.binding.bind(attempt))
    await settle()
    return binding, cycle


@pytest.mark.parametrize("fails", [False, True], ids=["bound", "refused"])
async def test_a_bind_response_is_processed_after_the_suspended_cycle(fails: bool) -> None:
    """A bind is written at once, and its response is processed after the suspended cycle."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    if fails:
        made.writer.fail_binds([ConflictError("taken")])
    binding, cycle = await binding_while_suspended(made, client)
    assert [entry.name for entry in made.writer.attempted] == ["web"]
    assert (binding.done(), made.place_of(POD), made.context.cache.assumed_count) == (False, "inFlight", 1)
    client.release()
    assert await binding is not fails
    assert made.place_of(POD) == ("errorBackoff" if fails else "")
    assert isinstance(await cycle, Attempt)


async def test_a_permit_timeout_is_unwound_after_the_suspended_cycle() -> None:
    """A pod whose Permit times out stays assumed until the suspended cycle has ended."""
    journal = Journal(results={"Rec.permit": PermitResult(Status(Code.WAIT), 5)})
    client = ScriptedExtender()
    made = suspended_rig(client, journal=journal)
    binding, cycle = await binding_while_suspended(made, client)
    made.clock.advance(6)
    await settle()
    assert (journal.plugins_at("unreserve"), made.context.cache.assumed_count) == ([], 1)
    client.release()
    assert not await binding
    assert journal.plugins_at("unreserve") == ["Rec"]
    assert isinstance(await cycle, Attempt)


async def test_pre_bind_begins_after_the_suspended_cycle() -> None:
    """PreBind waits for the suspended cycle, which may read the plugin's state."""
    journal, client = Journal(), ScriptedExtender()
    made = suspended_rig(client, journal=journal)
    binding, cycle = await binding_while_suspended(made, client)
    assert journal.plugins_at("preBind") == []
    client.release()
    assert await binding
    assert journal.plugins_at("preBind") == ["Rec"]
    assert isinstance(await cycle, Attempt)


async def test_a_written_volume_is_returned_after_the_suspended_cycle() -> None:
    """A volume is written at once, and the call returns after the suspended cycle."""
    client, writer = ScriptedExtender(), RecordingStorageWriter()
    made = suspended_rig(client, storage=writer)
    (instance,) = made.context.profiles
    waiting_writer = present(instance.bind[0].handle.storage_writer)
    cycle = await start_cycle(made)
    writing = asyncio.ensure_future(waiting_writer.bind_volume(volume("pv")))
    await settle()
    assert ([written.metadata.name for written in writer.volumes], writing.done()) == (["pv"], False)
    client.release()
    assert (await writing).metadata.name == "pv"
    await cycle


async def test_overdue_pods_are_settled_after_the_suspended_cycle() -> None:
    """Overdue assumed pods are read at once, and are settled after the suspended cycle."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    client.release()
    attempt = present(await decide(made))
    assert await made.scheduler.cycles.binding.bind(attempt)
    made.clock.advance(60)
    made.add(pod("second"))
    client.hold()
    cycle = asyncio.ensure_future(decide(made))
    await settle()
    settling = asyncio.ensure_future(made.scheduler.unconfirmed_pods.settle(made.scheduler.feed, 15))
    await settle()
    assert (settling.done(), made.context.cache.assumed_count) == (False, 1)
    client.release()
    await settling
    assert made.context.cache.get(POD.metadata.uid) is None
    await cycle


async def test_a_profile_withdrawn_during_the_cycle() -> None:
    """The attempt finishes on the withdrawn profile, whose client is closed after it, and the pod is parked."""
    client = ScriptedExtender(on_filter=passes_only())
    made = suspended_rig(client)
    cycle = await start_cycle(made)
    made.scheduler.withdraw("default-scheduler")
    await settle()
    assert client.closed == 0
    client.release()
    assert await cycle is None
    await settle()
    assert (client.closed, made.place_of(POD)) == (1, "parked")


async def test_a_profile_replaced_during_the_cycle() -> None:
    """A pod that the replaced profile revision rejected is requeued."""
    client = ScriptedExtender(on_filter=passes_only())
    made = suspended_rig(client)
    cycle = await start_cycle(made)
    made.serve(extender_profile(extender(weight=5)))
    client.release()
    assert await cycle is None
    assert made.place_of(POD) == "backoff"


# -- the loop -------------------------------------------------------------------------------------------------------


def small_pods(count: int) -> list[Pod]:
    return [pod(f"p{number}", requests={"cpu": "10m"}) for number in range(count)]


async def test_the_loop_runs_one_cycle_at_a_time() -> None:
    """No pod is popped while a cycle is suspended; all pods are scheduled, each with one extender call."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    made.add(*small_pods(5))
    async with made.running():
        await settle()
        assert (made.queue.readings.in_flight_count, len(made.queue.readings), client.called_verbs()) == (
            1,
            5,
            ["filter"],
        )
        client.release()
        await made.until(lambda: len(made.writer.bindings) == 6)
        await made.scheduler.until_idle()
    assert client.called_verbs() == ["filter"] * 6


async def test_binding_tasks_are_not_starved_by_suspended_cycles() -> None:
    """The result of each bind is processed before the second next cycle begins."""
    client = ScriptedExtender()
    made = extender_rig((extender(), client))
    made.add(node("a"), *small_pods(20))
    unprocessed: list[int] = []
    original = client.on_filter

    def on_filter(node_names: object) -> object:
        unprocessed.append(
            made.context.cache.assumed_count - made.context.metrics.records["default-scheduler"].scheduled
        )
        return original(["a"])

    client.on_filter = on_filter  # type: ignore[assignment]  # reads the cache and calls the original
    async with made.running():
        await made.until(lambda: made.context.metrics.records["default-scheduler"].scheduled == 20)
    assert max(unprocessed) <= 2


@pytest.mark.parametrize("by_stop", [False, True], ids=["run is cancelled", "stop"])
async def test_stopping_during_a_suspended_cycle(by_stop: bool) -> None:
    """When the scheduler stops, the pod of a suspended cycle is requeued and buffered changes are applied."""
    client = ScriptedExtender()
    made = suspended_rig(client)
    (instance,) = made.context.profiles
    async with made.running():
        await made.until(lambda: made.context.suspension.is_on)
        made.add(node("late"))
        if by_stop:
            await made.scheduler.stop(1)
            assert not made.context.suspension.is_on
    await made.scheduler.stop(1)
    assert (made.place_of(POD), instance.in_flight, made.context.suspension.is_on) == ("errorBackoff", 0, False)
    assert not made.columns.pod_count.any()
    assert made.columns.row_of("late") >= 0
    assert (client.closed, made.writer.patches) == (1, [])


async def test_a_profile_without_extenders_is_never_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of a profile without extenders are scheduled without suspension, beside a profile with extenders."""

    @contextmanager
    def refusing() -> Iterator[None]:
        yield
        raise AssertionError("a cycle without extenders was suspended")

    client = ScriptedExtender()
    made = extender_rig((extender(), client))
    made.serve(extender_profile(name="plain"))
    monkeypatch.setattr(made.context.suspension, "of_cycle", refusing)
    made.add(node("a"), pod("p", scheduler_name="plain"))
    async with made.running():
        await made.until(lambda: bool(made.writer.bindings))
    assert client.calls == []
