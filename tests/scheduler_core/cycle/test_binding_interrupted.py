"""Changes of a pod, its node or its scheduler at each stage of the binding cycle."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, plugin_set, profile, rig

POD = pod("web", requests={"cpu": "3"})
OTHER = pod("other", requests={"cpu": "2"})
UID = POD.metadata.uid
STAGES = ("permit", "preBind", "bind")


class Stage:
    """A pod whose binding cycle waits at a point, on a node that it nearly fills; another pod waits for room."""

    def __init__(self, at: str) -> None:
        Gate.shut(at)
        self.journal = Journal()
        names = ("Gate", "Rec", "NodeResourcesFit", *BARE)
        plugins = Plugins(multi_point=plugin_set(*names))
        self.made = rig([Gate, recorder("Rec", self.journal)], defaults=plugins)
        self.made.add(node("n0"), POD)

    async def begin(self) -> None:
        attempt = self.made.decide()
        assert attempt is not None
        self.task = asyncio.create_task(self.made.scheduler.cycles.binding.bind(attempt))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not self.task.done()
        self.made.add(OTHER)
        assert self.made.decide() is None
        assert self.made.place(OTHER) == "unschedulable"

    async def go_on(self) -> bool:
        """Let the pod pass the point; return whether it is bound in the end."""
        Gate.open(self.made.context.waiting)
        return await self.task

    @property
    def held(self) -> list[int]:
        """Return the pods by row, as cycles count them."""
        columns = self.made.context.cache.columns
        return [int(count) for count in columns.pod_count[columns.alive]]

    @property
    def said(self) -> list[str]:
        """Return what was written about the pod's failure."""
        return [event.note for event in self.made.writer.events if event.regarding.name == "web"]


async def begun(at: str) -> Stage:
    stage = Stage(at)
    await stage.begin()
    return stage


def ending(one: Pod) -> Pod:
    """The pod while a finalizer delays its deletion."""
    metadata = msgspec.structs.replace(one.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    return msgspec.structs.replace(one, metadata=metadata)


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_is_deleted(at: str) -> None:
    """Its room is freed at once, its reservation is released, and nothing is reported."""
    stage = await begun(at)
    made = stage.made
    made.writer.fail_binds([NotFoundError("the pod is gone")])
    made.scheduler.feed.pod_deleted(POD)
    assert stage.held == [0]
    assert made.place(OTHER) == "backoff"
    assert not await stage.go_on()
    assert stage.journal.plugins_at("unreserve") == ["Rec"]
    assert (made.place(POD), stage.said, stage.held) == ("", [], [0])
    assert (made.writer.attempted == []) is (at == "permit")
    made.queue.close()
    assert made.clock.pending == 0


@pytest.mark.parametrize(
    ("at", "place", "held", "said"),
    [
        pytest.param("permit", "unschedulable", [1], "0/1 nodes are available: 1 removed.", id="permit"),
        pytest.param(
            "preBind", "errorBackoff", [0], 'running Bind plugin "DefaultBinder": it is being deleted', id="preBind"
        ),
        pytest.param(
            "bind", "errorBackoff", [0], 'running Bind plugin "DefaultBinder": it is being deleted', id="bind"
        ),
    ],
)
async def test_a_pod_whose_deletion_begins(at: str, place: str, held: list[int], said: str) -> None:
    """A wait at Permit ends; later its room is freed at once, because its bind will be rejected. It is not retried."""
    stage = await begun(at)
    made = stage.made
    made.writer.fail_binds([ConflictError("it is being deleted")])
    made.scheduler.feed.pod_updated(POD, ending(POD))
    assert (stage.held, made.place(OTHER)) == (held, "backoff")
    assert not await stage.go_on()
    assert (stage.held, made.place(POD), stage.said) == ([0], place, [said])
    made.queue.activate([UID])
    while made.queue.find(UID) is not None:
        made.decide()
    assert stage.said[1:] == ["skip schedule deleting pod: default/web"]
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_changes(at: str) -> None:
    """The attempt continues with the old version; if it fails, the next one uses the new version."""
    stage = await begun(at)
    made = stage.made
    newer = pod("web", requests={"cpu": "3"}, labels={"new": "yes"})
    made.writer.fail_binds([ConflictError("no")])
    made.scheduler.feed.pod_updated(POD, newer)
    assert not await stage.go_on()
    queued = made.queue.find(UID)
    assert queued is not None
    assert (queued.info.pod, stage.held) == (newer, [0])
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
async def test_a_pod_that_is_recreated(at: str) -> None:
    """The old pod's attempt ends without a report; the new pod waits for its own attempt."""
    stage = await begun(at)
    made = stage.made
    newer = pod("web", uid="another", requests={"cpu": "1"})
    made.writer.fail_binds([NotFoundError("another UID")])
    made.scheduler.feed.pod_updated(POD, newer)
    assert (made.place(newer), stage.held) == ("active", [0])
    assert not await stage.go_on()
    assert (made.place(POD), made.place(newer), stage.said) == ("", "active", [])
    made.queue.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ConflictError("it is bound already"), id="conflict"),
        pytest.param(ServerUnavailableError("no answer"), id="unavailable"),
    ],
)
async def test_a_bind_that_is_seen_to_have_happened(answer: ClusterWriteError) -> None:
    """The watch was faster than a response with an error; nothing is released."""
    stage = await begun("bind")
    made = stage.made
    made.writer.fail_binds([answer])
    made.scheduler.feed.pod_updated(POD, pod("web", requests={"cpu": "3"}, node_name="n0"))
    assert await stage.go_on()
    assert stage.journal.plugins_at("unreserve") == []
    assert (stage.held, stage.said) == ([1], ["Successfully assigned default/web to n0"])
    made.queue.close()


async def test_a_pod_that_goes_and_comes_back() -> None:
    """As after a list without it: the result of the old attempt does not affect the new pod."""
    stage = await begun("preBind")
    made = stage.made
    made.scheduler.feed.pod_deleted(POD)
    made.scheduler.feed.pod_added(POD)
    made.writer.fail_binds([ConflictError("no")])
    again = made.pop()
    assert not await stage.go_on()
    assert (made.place(POD), made.queue.find(UID), stage.said) == ("inFlight", again, [])
    made.queue.close()


async def test_a_pod_that_is_bound_after_a_flush_is_counted() -> None:
    """It was retried only because it had been unschedulable for too long: a hint may be wrong."""
    stage = await begun("preBind")
    queued = stage.made.queue.find(UID)
    assert queued is not None
    queued.was_flushed = True
    assert await stage.go_on()
    assert stage.made.queue.scheduled_after_flush == 1
    stage.made.queue.close()


@pytest.mark.parametrize("at", STAGES)
@pytest.mark.parametrize("rival", ["n0", "n1"])
async def test_a_pod_that_somebody_else_binds(at: str, rival: str) -> None:
    """It counts once, on the rival's node; the attempt ends without a report."""
    stage = await begun(at)
    made = stage.made
    made.add(node("n1"))
    made.scheduler.feed.pod_updated(POD, pod("web", requests={"cpu": "3"}, node_name=rival))
    if rival == "n1":
        made.writer.fail_binds([ConflictError("it is bound to n1 already")])
    assert await stage.go_on() is (rival == "n0")
    assert (made.place(POD), made.context.cache.assumed_count) == ("", 0)
    assert stage.held == ([1, 0] if rival == "n0" else [0, 1])
    assert stage.said == ([f"Successfully assigned {POD.key} to n0"] if rival == "n0" else [])
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
@pytest.mark.parametrize("is_bound", [pytest.param(True, id="bound"), pytest.param(False, id="fails")])
async def test_a_node_that_is_deleted(at: str, is_bound: bool) -> None:
    """The pod stays assumed until its bind is answered; a node that returns has only its bound pods."""
    stage = await begun(at)
    made = stage.made
    if not is_bound:
        made.writer.fail_binds([ConflictError("no")])
    made.scheduler.feed.node_deleted(node("n0"))
    assert await stage.go_on() is is_bound
    assert made.context.cache.assumed_count == int(is_bound)
    made.add(node("n0"))
    assert stage.held == [int(is_bound)]
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
async def test_a_profile_that_is_replaced(at: str) -> None:
    """The attempt ends on the revision on which it began, which is then closed."""
    stage = await begun(at)
    made = stage.made
    made.serve(profile())
    assert stage.journal.plugins_at("close") == []
    assert await stage.go_on()
    assert stage.journal.plugins_at("close") == ["Rec"]
    assert made.bound == {"web": "n0"}
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
async def test_a_profile_that_is_withdrawn(at: str) -> None:
    """The attempt ends; the pod waits until the profile is live again."""
    stage = await begun(at)
    made = stage.made
    made.writer.fail_binds([ConflictError("no")])
    made.scheduler.withdraw("default-scheduler")
    assert not await stage.go_on()
    assert (made.place(POD), stage.held) == ("parked", [0])
    made.queue.close()


@pytest.mark.parametrize("at", STAGES)
async def test_a_scheduler_that_stops(at: str) -> None:
    """Everything is released, and nothing is reported: a restart is no failure of the pod."""
    stage = await begun(at)
    made = stage.made
    if at == "permit":
        await made.scheduler.stop(0)
    else:
        stage.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.task
    assert (stage.held, stage.said, len(made.context.waiting), len(made.context.services.in_pre_bind)) == (
        [0],
        [],
        0,
        0,
    )
    assert stage.journal.plugins_at("unreserve") == ["Rec"]
    made.queue.close()
    assert made.clock.pending == 0


@pytest.mark.parametrize(
    ("at", "kept"),
    [pytest.param("permit", True, id="permit"), pytest.param("preBind", False, id="preBind")],
)
async def test_events_are_kept_until_permit_is_passed(at: str, kept: bool) -> None:
    """A pod that fails later is retried in any case, so a long PreBind needs no memory."""
    stage = await begun(at)
    made = stage.made
    made.scheduler.feed.node_added(node("n1"))
    assert bool(made.queue.readings.in_flight_events()) is kept
    assert await stage.go_on()
    assert made.queue.readings.in_flight_events() == {}
    made.queue.close()
