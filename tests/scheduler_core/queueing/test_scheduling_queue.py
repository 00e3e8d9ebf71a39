"""The scheduling queue: every move between its places, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler_core.framework.cluster_events import (
    FORCE_ACTIVATE,
    NODE_ADD,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
)
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.scheduling import places_of
from tests.support.virtual_clock import VirtualClock

NAME = "default-scheduler"
LABELLED = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
COLUMNS = NodeColumns()


def by_priority(queued: QueuedPod) -> Any:
    return -queued.info.priority, queued.timestamp, queued.sequence


class LabelGate(PreEnqueuePlugin):
    """Holds back pods with the label ``gated``."""

    name = "LabelGate"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("labelled") if "gated" in pod.pod.metadata.labels else SUCCESS


@dataclass
class World:
    """A queue and what surrounds it; plugin A hints by :attr:`hint`, plugin B wants every event."""

    hint: Callable[[Pod, object | None, object | None], Hint] = lambda _pod, _old, _new: Hint.QUEUE
    sort_key: Callable[[QueuedPod], Any] = by_priority
    clock: VirtualClock = field(default_factory=VirtualClock)
    rules: dict[str, QueueingRules] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = SchedulingQueue(self.rules.get, self.clock)
        self.serve(NAME)

    def serve(self, name: str) -> None:
        """Let a profile go live, or replace it."""
        self.rules[name] = QueueingRules(
            (LabelGate(None, FakeHandle()),),
            {
                "A": (EventRegistration(NODE_ADD, self.hint_now),),
                "B": (EventRegistration(ClusterEvent(Resource.WILDCARD, Action.ALL)),),
                "LabelGate": (EventRegistration(LABELLED),),
            },
            self.key_now,
        )
        self.queue.profile_changed(name)

    def hint_now(self, waiting: Pod, old: object | None, new: object | None) -> Hint:
        """What the hint of the moment says."""
        return self.hint(waiting, old, new)

    def key_now(self, queued: QueuedPod) -> Any:
        """What the QueueSort plugin of the moment says."""
        return self.sort_key(queued)

    def withdraw(self, name: str) -> None:
        """Let a profile go."""
        del self.rules[name]
        self.queue.profile_changed(name)

    def add(self, *pods: Pod) -> None:
        """Pods come."""
        for each in pods:
            self.queue.add(COLUMNS.compile_pod(each))

    def pop(self) -> QueuedPod:
        """Take the next pod."""
        queued = self.queue.pop()
        assert queued is not None
        return queued

    def fail(self, queued: QueuedPod, by: Sequence[str] = (), pending: Sequence[str] = ()) -> None:
        """An attempt fails."""
        queued.rejected_by, queued.pending_on = frozenset(by) | frozenset(pending), frozenset(pending)
        self.queue.failed(queued)

    def fails(self, by: Sequence[str] = (), pending: Sequence[str] = ()) -> QueuedPod:
        """The next pod is tried and fails."""
        queued = self.pop()
        self.fail(queued, by, pending)
        return queued

    def place(self, wanted: Pod) -> str:
        """Where a pod is."""
        places = places_of(self.queue, wanted.metadata.uid)
        assert len(places) <= 1, places
        return places[0] if places else ""


WEB, OTHER = pod("web"), pod("other")
GATED = pod("web", labels={"gated": ""})


def test_first_come_first_served() -> None:
    """Among equals; the more important goes first."""
    world = World()
    world.add(WEB, OTHER, pod("vip", priority=9))
    assert [world.pop().info.pod.metadata.name for _ in range(3)] == ["vip", "web", "other"]
    assert world.queue.pop() is None


def test_a_pod_that_comes_twice_is_one_pod() -> None:
    """The second coming is an update."""
    world = World()
    world.add(WEB, pod("web", labels={"a": "b"}))
    assert world.pop().info.pod.metadata.labels == {"a": "b"}
    assert world.queue.pop() is None


def test_a_popped_pod_is_in_flight() -> None:
    """Until its attempt ends; it is counted and its last rejection forgotten."""
    world = World()
    world.add(WEB)
    queued = world.pop()
    assert (world.place(WEB), queued.attempts, queued.first_attempt) == ("inFlight", 1, 1000.0)
    assert world.queue.is_in_flight(WEB.metadata.uid)
    world.queue.done(WEB.metadata.uid)
    assert world.place(WEB) == ""


@pytest.mark.parametrize(
    ("by", "pending", "place"),
    [
        pytest.param(["A"], [], "unschedulable", id="rejected"),
        pytest.param([], ["A"], "unschedulable", id="pending"),
        pytest.param([], [], "errorBackoff", id="error"),
    ],
)
def test_where_a_failed_pod_waits(by: list[str], pending: list[str], place: str) -> None:
    """For an event if someone rejected it, for time if not."""
    world = World()
    world.add(WEB)
    world.fails(by, pending)
    assert world.place(WEB) == place


def test_a_rejected_pod_that_is_woken_backs_off() -> None:
    """One second after the first failure, counted from the failure."""
    world = World()
    world.add(WEB)
    world.fails(["A"])
    world.clock.advance(0.4)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "backoff"
    world.clock.advance(0.59)
    assert world.place(WEB) == "backoff"
    world.clock.advance(0.01)
    assert world.place(WEB) == "active"


def test_a_pod_whose_backoff_has_passed_is_woken_into_the_active_queue() -> None:
    """It has waited long enough."""
    world = World()
    world.add(WEB)
    world.fails(["A"])
    world.clock.advance(1)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "active"


def test_pending_skips_backoff() -> None:
    """The plugin that said Pending is the one that knows when to go on."""
    world = World()
    world.add(WEB)
    world.fails(["B"], pending=["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "active"


def test_another_plugins_event_does_not_skip_the_backoff_of_a_pending_pod() -> None:
    """Only the plugin that said Pending lets it skip."""
    world = World(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.add(WEB)
    world.fails(["B"], pending=["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "backoff"
    world.queue.close()


def _raise(_pod: Pod, _old: object | None, _new: object | None) -> Hint:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("hint", "by", "event", "place"),
    [
        pytest.param(Hint.QUEUE, ["A"], NODE_ADD, "backoff", id="queue"),
        pytest.param(Hint.SKIP, ["A"], NODE_ADD, "unschedulable", id="skip"),
        pytest.param(None, ["A"], NODE_ADD, "backoff", id="raises-is-queue"),
        pytest.param(Hint.QUEUE, ["A"], LABELLED, "unschedulable", id="not-registered"),
        pytest.param(Hint.SKIP, ["A", "B"], NODE_ADD, "backoff", id="one-of-two-agrees"),
        pytest.param(Hint.QUEUE, ["Gone"], NODE_ADD, "unschedulable", id="nobody-asks-for-it"),
        pytest.param(Hint.SKIP, ["A"], FORCE_ACTIVATE, "backoff", id="wildcard-asks-nobody"),
    ],
)
def test_hints(hint: Hint | None, by: list[str], event: ClusterEvent, place: str) -> None:
    """Only the plugins that rejected a pod are asked, and only about events that they registered."""
    world = World(hint=_raise if hint is None else lambda _pod, _old, _new: hint)
    world.add(WEB)
    world.fails(by)
    world.queue.on_event(event, None, None)
    assert world.place(WEB) == place
    world.queue.close()


def test_hints_see_the_objects() -> None:
    """The pod, and what the event was about before and after."""
    seen: list[tuple[object, ...]] = []

    def hint(*objects: object) -> Hint:
        seen.append(objects)
        return Hint.SKIP

    world = World(hint=hint)
    world.add(WEB)
    world.fails(["A"])
    world.queue.on_event(NODE_ADD, "before", "after")
    assert seen == [(WEB, "before", "after")]


@pytest.mark.parametrize(
    ("before", "during", "place"),
    [
        pytest.param(NODE_ADD, None, "unschedulable", id="earlier-does-not-count"),
        pytest.param(None, NODE_ADD, "backoff", id="meanwhile-counts"),
        pytest.param(None, LABELLED, "unschedulable", id="meanwhile-but-of-no-interest"),
    ],
)
def test_events_while_in_flight(before: ClusterEvent | None, during: ClusterEvent | None, place: str) -> None:
    """What would have woken a pod while its attempt was under way is not missed."""
    world = World()
    world.add(OTHER, WEB)
    world.pop()
    if before is not None:
        world.queue.on_event(before, None, None)
    queued = world.pop()
    if during is not None:
        world.queue.on_event(during, None, None)
    world.fail(queued, ["A"])
    assert world.place(WEB) == place
    world.queue.close()


def test_a_pending_pod_that_was_helped_in_flight_is_active_at_once() -> None:
    """Pending skips backoff there, too."""
    world = World()
    world.add(WEB)
    queued = world.pop()
    world.queue.on_event(NODE_ADD, None, None)
    world.fail(queued, pending=["A"])
    assert world.place(WEB) == "active"


def test_backoff_doubles_up_to_the_longest() -> None:
    """1, 2, 4, 8, 10, 10 seconds."""
    world = World()
    world.add(WEB)
    waits: list[float] = []
    for _ in range(6):
        queued = world.fails(["A"])
        world.queue.on_event(NODE_ADD, None, None)
        waits.append(queued.backoff_until - world.clock.now())
        world.clock.advance(10)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_errors_back_off_apart() -> None:
    """Rejections before do not lengthen an error's backoff, and a rejection ends the row of errors."""
    world = World()
    world.add(WEB)
    for _ in range(3):
        world.fails(["A"])
        world.clock.advance(100)
        world.queue.on_event(NODE_ADD, None, None)
    queued = world.fails()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (1, 1)
    world.clock.advance(1)
    queued = world.fails()
    assert (queued.error_count, queued.backoff_until - world.clock.now()) == (2, 2)
    world.clock.advance(2)
    assert world.fails(["A"]).error_count == 0


def test_an_error_in_backoff_is_not_tried_early() -> None:
    """The scheduler rather idles than hammer an API server that is away."""
    world = World()
    world.add(WEB)
    world.fails()
    assert world.queue.pop() is None
    assert world.queue.is_idle
    world.clock.advance(1)
    assert world.pop().uid == WEB.metadata.uid


def test_an_idle_scheduler_tries_the_next_of_the_backoff_early() -> None:
    """The one whose backoff ends first."""
    world = World()
    world.add(WEB, OTHER)
    world.fails(["A"])
    world.clock.advance(0.2)
    world.fails(["A"])
    world.queue.on_event(NODE_ADD, None, None)
    assert not world.queue.is_idle
    assert [world.pop().uid, world.pop().uid] == [WEB.metadata.uid, OTHER.metadata.uid]
    world.queue.close()


def test_flush() -> None:
    """After five minutes a pod is tried whatever hints said."""
    world = World(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.add(WEB)
    world.fails(["A"])
    world.clock.advance(299)
    world.queue.flush()
    assert world.place(WEB) == "unschedulable"
    world.clock.advance(1)
    world.queue.flush()
    assert world.place(WEB) == "active"


@pytest.mark.parametrize(
    ("by", "event"),
    [
        pytest.param(["A"], None, id="unschedulable"),
        pytest.param(["A"], NODE_ADD, id="backoff"),
        pytest.param([], None, id="error-backoff"),
    ],
)
def test_activate(by: list[str], event: ClusterEvent | None) -> None:
    """From wherever it waits; other pods stay."""
    world = World()
    world.add(WEB, OTHER)
    for _ in range(2):
        world.fails(by)
    if event is not None:
        world.queue.on_event(event, None, None)
    before = world.place(OTHER)
    world.queue.activate([WEB.metadata.uid, "nobody"])
    assert (world.place(WEB), world.place(OTHER)) == ("active", before)
    world.queue.close()


def test_activate_leaves_gated_pods() -> None:
    """Their gate is not a plugin's opinion of nodes."""
    world = World()
    world.add(GATED)
    world.queue.activate([GATED.metadata.uid])
    assert world.place(GATED) == "gated"


def test_a_pod_activated_in_flight_comes_back_to_be_tried() -> None:
    """And it alone: others that failed meanwhile wait on."""
    world = World()
    world.add(WEB, OTHER)
    first, second = world.pop(), world.pop()
    world.queue.activate([WEB.metadata.uid])
    world.fail(first, ["A"])
    world.fail(second, ["A"])
    assert (world.place(WEB), world.place(OTHER)) == ("backoff", "unschedulable")
    world.queue.close()


def test_a_gated_pod_waits_for_its_gate() -> None:
    """What the gate says is kept for status."""
    world = World()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    assert (world.place(GATED), queued.gated_by, queued.gate_reasons) == ("gated", "LabelGate", ("labelled",))
    assert world.queue.pop() is None


def test_an_update_opens_the_gate() -> None:
    """The pod is active at once: it never failed."""
    world = World()
    world.add(GATED)
    world.queue.update(COLUMNS.compile_pod(WEB), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place(WEB), queued.gated_by) == ("active", "")


def test_an_update_that_opens_no_gate() -> None:
    """The pod stays gated, as it is now."""
    world = World()
    world.add(GATED)
    newer = pod("web", labels={"gated": "", "more": ""})
    world.queue.update(COLUMNS.compile_pod(newer), [LABELLED], GATED)
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place(WEB), queued.info.pod) == ("gated", newer)


def test_an_event_that_the_gate_registered_asks_it_again() -> None:
    """Others do not."""
    world = World()
    world.add(GATED)
    queued = world.queue.find(GATED.metadata.uid)
    assert queued is not None
    queued.info = COLUMNS.compile_pod(WEB)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == "gated"
    world.queue.on_event(LABELLED, None, None)
    assert world.place(WEB) == "active"


def test_a_gate_that_closed_meanwhile_holds_a_failed_pod() -> None:
    """Gates are asked on each way back."""
    world = World()
    world.add(WEB)
    queued = world.pop()
    world.queue.update(COLUMNS.compile_pod(GATED), [LABELLED], WEB)
    world.fail(queued)
    assert world.place(WEB) == "gated"


PLACES = ["active", "backoff", "errorBackoff", "unschedulable", "gated", "parked", "inFlight"]


def put(world: World, place: str) -> None:
    """Bring the pod ``web`` to a place."""
    world.add(GATED if place == "gated" else WEB)
    if place in ("active", "gated"):
        return
    if place == "parked":
        world.withdraw(NAME)
        return
    queued = world.pop()
    if place != "inFlight":
        world.fail(queued, () if place == "errorBackoff" else ["A"])
    if place == "backoff":
        world.queue.on_event(NODE_ADD, None, None)


@pytest.mark.parametrize("place", PLACES)
def test_an_update_is_seen_in_every_place(place: str) -> None:
    """The pod is tried as it is now; an update that changes nothing for plugins moves it nowhere."""
    world = World()
    put(world, place)
    assert world.place(WEB) == place
    newer = pod("web", labels={"gated": ""} if place == "gated" else {"v": "2"})
    world.queue.update(COLUMNS.compile_pod(newer))
    queued = world.queue.find(WEB.metadata.uid)
    assert queued is not None
    assert (world.place(WEB), queued.info.pod) == (place, newer)
    world.queue.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_is_removed_from_every_place(place: str) -> None:
    """With its nomination, and nothing brings it back."""
    world = World()
    put(world, place)
    world.queue.nominator.nominate(COLUMNS.compile_pod(WEB), "n0")
    removed = world.queue.remove(WEB.metadata.uid)
    assert removed is not None
    assert (world.place(WEB), len(world.queue.nominator)) == ("", 0)
    if place == "inFlight":
        world.fail(removed, ["A"])
    world.clock.advance(100)
    world.queue.on_event(NODE_ADD, None, None)
    assert world.place(WEB) == ""
    assert world.queue.remove(WEB.metadata.uid) is None


def test_an_update_of_an_unknown_pod_is_its_coming() -> None:
    """The queue never drops what it is told of."""
    world = World()
    world.queue.update(COLUMNS.compile_pod(WEB))
    assert world.place(WEB) == "active"


def test_an_updated_pod_takes_its_new_place_in_the_order() -> None:
    """Its key is computed anew."""
    world = World()
    world.add(WEB, OTHER)
    world.queue.update(COLUMNS.compile_pod(pod("other", priority=5)))
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


@pytest.mark.parametrize("place", PLACES)
def test_a_withdrawn_profile_parks_its_pods(place: str) -> None:
    """In whatever place, those in flight when they fail; they are tried when the profile comes back."""
    world = World()
    put(world, place)
    flying = world.queue.find(WEB.metadata.uid)
    assert flying is not None
    if NAME in world.rules:
        world.withdraw(NAME)
    if place == "inFlight":
        assert world.place(WEB) == "inFlight"
        world.fail(flying, ["A"])
    assert world.place(WEB) == "parked"
    assert (len(world.queue), world.queue.parked_count, world.queue.is_idle) == (0, 1, True)
    world.serve(NAME)
    assert world.place(WEB) == ("gated" if place == "gated" else "active")


def test_a_pod_of_an_unknown_profile_is_parked() -> None:
    """It waits for the profile, not for nodes."""
    world = World()
    batch = pod("job", scheduler_name="batch")
    world.add(batch)
    assert world.place(batch) == "parked"
    world.serve("batch")
    assert world.place(batch) == "active"


@pytest.mark.parametrize(
    ("place", "after"),
    [
        pytest.param("unschedulable", "active", id="unschedulable-is-retried"),
        pytest.param("gated", "gated", id="gates-are-asked-again"),
        pytest.param("backoff", "backoff", id="backoff-runs-on"),
        pytest.param("errorBackoff", "errorBackoff", id="error-backoff-runs-on"),
        pytest.param("active", "active", id="active-stays"),
    ],
)
def test_a_replaced_profile_retries_its_pods(place: str, after: str) -> None:
    """What the old plugins said does not hold any more; other profiles' pods stay."""
    world = World()
    world.serve("batch")
    put(world, place)
    world.add(pod("job", scheduler_name="batch", labels={"gated": ""}))
    world.serve(NAME)
    assert world.place(WEB) == after
    world.queue.close()


def test_a_pod_in_flight_over_a_swap_is_retried() -> None:
    """Those who reject it then are nobody's plugins any more, so no event would wake it; other profiles' pods wait."""
    world = World()
    world.serve("batch")
    job = pod("job", scheduler_name="batch")
    world.add(WEB, job)
    first, second = world.pop(), world.pop()
    world.serve(NAME)
    world.fail(first, ["Gone"])
    world.fail(second, ["A"])
    assert (world.place(WEB), world.place(job)) == ("backoff", "unschedulable")
    world.queue.close()


def test_resort() -> None:
    """Keys of another QueueSort plugin need not compare with the old ones."""
    world = World()
    world.add(WEB, OTHER)
    world.sort_key = lambda queued: queued.info.pod.metadata.name
    world.queue.resort()
    assert [world.pop().uid, world.pop().uid] == [OTHER.metadata.uid, WEB.metadata.uid]


def test_a_sort_key_that_raises_delays_its_pod_only() -> None:
    """It is asked again after a backoff, and others go ahead."""

    def key(queued: QueuedPod) -> Any:
        if queued.info.pod.metadata.name == "web" and world.clock.now() < 1003:
            raise ValueError("no key")
        return by_priority(queued)

    world = World(sort_key=key)
    world.add(WEB, OTHER)
    assert (world.place(WEB), world.pop().uid) == ("errorBackoff", OTHER.metadata.uid)
    world.clock.advance(1)
    assert world.place(WEB) == "errorBackoff"
    world.clock.advance(2)
    assert world.place(WEB) == "active"


async def test_wait_ends_when_something_can_be_tried() -> None:
    """By coming, by the end of a backoff, by being woken."""
    world = World()
    assert world.queue.pop() is None
    waiting = asyncio.get_running_loop().create_task(world.queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.add(WEB)
    await waiting
    world.fails()
    assert world.queue.pop() is None
    waiting = asyncio.get_running_loop().create_task(world.queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    world.clock.advance(1)
    await waiting


def test_counts() -> None:
    """By profile and place; pods in flight and parked ones are not counted as waiting."""
    world = World()
    world.serve("batch")
    world.add(*(pod(f"p{number}") for number in range(5)))
    world.add(pod("job", scheduler_name="batch"), pod("g", labels={"gated": ""}), pod("x", scheduler_name="none"))
    world.fails(["A"])
    world.fails()
    world.fails(["B"])
    world.queue.on_event(LABELLED, None, None)
    world.pop()
    counts = world.queue.counts()
    of_default = counts[NAME]
    assert (of_default.active, of_default.backoff, of_default.unschedulable, of_default.gated) == (1, 2, 1, 1)
    assert (of_default.pending, counts["batch"].pending) == (5, 1)
    assert len(world.queue) == len(list(world.queue)) == 6
    assert (world.queue.in_flight_count, world.queue.parked_count) == (1, 1)
    world.queue.close()
    assert world.clock.pending == 0
