"""Invariants of the scheduling queue: after any operations, every pod is in exactly one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler_core.framework.cluster_events import (
    EVERY_EVENT,
    NODE_ADD,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
)
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queue_moves import MOVES
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.queue_world import LabelGate
from tests.support.scheduling import places_of
from tests.support.virtual_clock import VirtualClock

NAMES = st.sampled_from([f"p{number}" for number in range(6)])
PROFILES = st.sampled_from(["one", "two"])
HINTS = st.sampled_from([Hint.QUEUE, Hint.SKIP, None])
LABELLED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
EVENTS = [NODE_ADD, LABELLED, EVERY_EVENT]
INDEXES = st.integers(0, 9)
REJECTORS = st.sets(st.sampled_from(["A", "B", "Gone"]))


class QueueMachine(RuleBasedStateMachine):
    """State machine of all operations on a scheduling queue.

    Attributes:
        moves: Budget of moves between two pops.
        known: Existing pods, by name.
        in_flight: Popped pods whose attempt has not ended, by name.
        live: Queueing rules of the live profiles, by profile name.
    """

    moves = MOVES

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.columns = NodeColumns()
        self.live: dict[str, QueueingRules] = {}
        self.queue = SchedulingQueue(self.live.get, self.clock)
        self.queue.pending.budget = self.queue.pending.left = self.moves
        self.hint: Hint | None = Hint.QUEUE
        self.known: dict[str, Pod] = {}
        self.in_flight: dict[str, QueuedPod] = {}
        self.serve_profile("one")

    def _hint(self, _pod: Pod, _old: object | None, _new: object | None) -> Hint:
        if self.hint is None:
            raise ValueError("no hint")
        return self.hint

    def _key(self, queued: QueuedPod) -> Any:
        if "keyless" in queued.info.pod.metadata.labels:
            raise ValueError("no key")
        return -queued.info.priority, queued.timestamp, queued.sequence

    @rule(name=NAMES, profile=PROFILES, label=st.sampled_from(["", "gated", "keyless"]), priority=st.integers(0, 2))
    def add_or_update(self, name: str, profile: str, label: str, priority: int) -> None:
        old = self.known.get(name)
        profile = old.spec.scheduler_name if old else profile
        new = pod(name, scheduler_name=profile, labels={label: ""} if label else {}, priority=priority)
        self.known[name] = new
        if old is None:
            self.queue.add(self.columns.compile_pod(new))
        else:
            self.queue.update(self.columns.compile_pod(new), [LABELLED], old)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            assert self.queue.remove(f"uid-of-default-{name}") is not None

    @rule()
    def pop(self) -> None:
        queued = self.queue.pop()
        if queued is not None:
            assert queued.profile in self.live
            self.in_flight[queued.info.pod.metadata.name] = queued

    @precondition(lambda self: self.in_flight)
    @rule(index=INDEXES, by=REJECTORS, pending=st.booleans())
    def fail(self, index: int, by: set[str], pending: bool) -> None:
        name = sorted(self.in_flight)[index % len(self.in_flight)]
        queued = self.in_flight.pop(name)
        queued.rejected_by = frozenset(by)
        queued.pending_on = frozenset(by if pending else ())
        self.queue.failed(queued)

    @precondition(lambda self: self.in_flight)
    @rule(index=INDEXES)
    def succeed(self, index: int) -> None:
        name = sorted(self.in_flight)[index % len(self.in_flight)]
        queued = self.in_flight.pop(name)
        if self.queue.is_in_flight(queued.uid):
            del self.known[name]
        self.queue.done(queued.uid)

    @precondition(lambda self: self.in_flight)
    @rule(index=INDEXES)
    def pass_permit(self, index: int) -> None:
        name = sorted(self.in_flight)[index % len(self.in_flight)]
        self.queue.end_recording(self.in_flight[name].uid)

    @rule(event=st.sampled_from(EVENTS), hint=HINTS)
    def send_event(self, event: ClusterEvent, hint: Hint | None) -> None:
        self.hint = hint
        self.queue.on_event(event, None, None)

    @rule(names=st.lists(NAMES, max_size=3))
    def activate(self, names: list[str]) -> None:
        self.queue.activate([f"uid-of-default-{name}" for name in names])

    @rule(seconds=st.sampled_from([0.5, 1.0, 7.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def flush(self) -> None:
        self.queue.flush()

    @rule()
    def resort(self) -> None:
        self.queue.resort()

    @rule(profile=PROFILES)
    def serve_profile(self, profile: str) -> None:
        self.live[profile] = QueueingRules(
            (LabelGate(None, FakeHandle()),),
            {"A": (EventRegistration(NODE_ADD, self._hint),), "B": (EventRegistration(EVERY_EVENT),)},
            self._key,
        )
        self.queue.profile_changed(profile)

    @rule(profile=PROFILES)
    def withdraw_profile(self, profile: str) -> None:
        self.live.pop(profile, None)
        self.queue.profile_changed(profile)

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        places = {name: places_of(self.queue, each.metadata.uid) for name, each in self.known.items()}
        assert all(len(found) == 1 for found in places.values()), places
        assert len(self.queue.readings) + self.queue.readings.parked_count + self.queue.readings.in_flight_count == len(
            self.known
        )
        for name, (place,) in places.items():
            queued = present(self.queue.find(self.known[name].metadata.uid))
            assert queued.info.pod is self.known[name]
            assert place in ("parked", "inFlight") or queued.profile in self.live or self.queue.readings.is_behind
            assert (place == "gated") is bool(queued.gated_by) or place in ("parked", "inFlight")

    @invariant()
    def counts_equal_the_queue(self) -> None:
        """The counts equal those of a loop over the queue."""
        waiting = list(self.queue.readings)
        rejections = Counter((plugin, each.profile) for each in waiting for plugin in each.rejected_by)
        assert {key: count for key, count in self.queue.readings.unschedulable_by.items() if count} == rejections
        pending = {name: counts.pending for name, counts in self.queue.readings.counts().items()}
        assert pending == Counter(each.profile for each in waiting)

    @invariant()
    def no_event_is_stored_without_an_attempt(self) -> None:
        if not self.in_flight:
            assert self.queue._in_flight.event_count == 0

    def teardown(self) -> None:
        while not self.queue.pending.advance():
            pass
        self.every_pod_is_in_one_place()
        self.queue.close()
        assert self.clock.pending == 0


QueueMachine.TestCase.settings = settings(stateful_step_count=40)
TestQueue = QueueMachine.TestCase


class SlicedMachine(QueueMachine):
    """The same with two moves between two pops, so that everything may happen while moves are pending."""

    moves = 2


SlicedMachine.TestCase.settings = settings(stateful_step_count=40)
TestQueueWithPendingMoves = SlicedMachine.TestCase


@pytest.mark.parametrize("kind", [QueueMachine, SlicedMachine])
@pytest.mark.parametrize("seed", range(30))
def test_long_runs(seed: int, kind: type[QueueMachine]) -> None:
    """The invariants hold on long seeded runs, which hypothesis does not generate."""
    random = Random(seed)
    machine = kind()
    names, profiles = [f"p{number}" for number in range(6)], ["one", "two"]

    def add() -> None:
        label = random.choice(["", "", "", "gated", "keyless"])
        machine.add_or_update(random.choice(names), random.choice(profiles), label, random.randrange(3))

    def fail() -> None:
        if machine.in_flight:
            by = set(random.sample(["A", "B", "Gone"], random.randrange(3)))
            machine.fail(random.randrange(9), by, random.random() < 0.3)

    steps: list[tuple[int, Callable[[], object]]] = [
        (10, add),
        (2, lambda: machine.delete(random.choice(names))),
        (12, machine.pop),
        (10, fail),
        (2, lambda: machine.in_flight and machine.succeed(random.randrange(9))),
        (2, lambda: machine.in_flight and machine.pass_permit(random.randrange(9))),
        (5, lambda: machine.send_event(random.choice(EVENTS), random.choice([Hint.QUEUE, Hint.SKIP, None]))),
        (2, lambda: machine.activate(random.sample(names, 2))),
        (4, lambda: machine.wait(random.choice([0.5, 1.0, 7.0, 400.0]))),
        (1, machine.flush),
        (1, machine.resort),
        (2, lambda: machine.serve_profile(random.choice(profiles))),
        (1, lambda: machine.withdraw_profile(random.choice(profiles))),
    ]
    visited: set[str] = set()
    for _ in range(200):
        random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
        machine.every_pod_is_in_one_place()
        machine.no_event_is_stored_without_an_attempt()
        machine.counts_equal_the_queue()
        visited.update(*(places_of(machine.queue, each.metadata.uid) for each in machine.known.values()))
    machine.teardown()
    assert visited >= {"active", "errorBackoff"}
    assert "inFlight" in visited or kind is SlicedMachine
