"""The scheduling queue compared with a simple model of kube-scheduler's rules, after random operations."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    NODE_DELETE,
    PROFILE_SWAPPED,
    TARGET_POD_UPDATE,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    HintFunction,
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
from tests.support.plain_queue import PlainQueue, Registrations
from tests.support.queue_world import by_priority
from tests.support.virtual_clock import VirtualClock

LABELLED = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
NAMES = [f"p{number}" for number in range(8)]
PROFILES = ["one", "two"]
REGISTERED = {"A": NODE_ADD, "B": ClusterEvent(Resource.POD, Action.ALL), "First": LABELLED, "Second": NODE_ADD}


class First(PreEnqueuePlugin):
    """PreEnqueue plugin that rejects pods with the label of its name."""

    name = "First"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unschedulable("held") if self.name in pod.pod.metadata.labels else SUCCESS


class Second(First):
    """A second plugin with another label."""

    name = "Second"


class Pair:
    """The scheduling queue, the model, and the operations on both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.columns = NodeColumns()
        self.rules: dict[str, QueueingRules] = {}
        self.queue = SchedulingQueue(self.rules.get, self.clock)
        self.hint_results: dict[str, bool] = {}
        self.known: dict[str, Pod] = {}
        self.in_flight: dict[str, QueuedPod] = {}
        registrations: Registrations = {
            name: [(event, partial(self.hint_result, name))] for name, event in REGISTERED.items()
        }
        self.plain = PlainQueue(("First", "Second"), registrations, self.clock.now())
        self.serve_profile("one")

    def hint_result(self, plugin: str) -> bool:
        """Return the current result of a plugin's hint."""
        return self.hint_results.get(plugin, True)

    # -- steps --------------------------------------------------------------------------------------------------

    def add_or_update(self) -> None:
        random, name = self.random, self.random.choice(NAMES)
        old = self.known.get(name)
        new = pod(
            name,
            scheduler_name=old.spec.scheduler_name if old else random.choice(PROFILES),
            labels={label: "" for label in ("First", "Second") if random.random() < 0.15},
            priority=random.randrange(3),
            nominated_node=random.choice(["", "", "", "n0", "n1"]),
        )
        self.known[name] = new
        info = self.columns.compile_pod(new)
        if old is None and random.random() < 0.7:
            self.queue.add(info)
            self.plain.add(new)
        else:
            events = random.choice([[LABELLED], [TARGET_POD_UPDATE], [LABELLED, TARGET_POD_UPDATE], []])
            self.queue.update(info, events, old)
            self.plain.update(new, events)

    def delete(self) -> None:
        deleted = self.known.pop(self.random.choice(NAMES), None)
        if deleted is not None:
            self.queue.remove(deleted.metadata.uid)
            self.plain.delete(deleted.metadata.uid)

    def pop(self) -> None:
        queued = self.queue.pop()
        assert self.plain.pop() == ("" if queued is None else queued.uid)
        if queued is not None:
            self.in_flight[queued.uid] = queued

    def _one_in_flight(self) -> QueuedPod | None:
        return self.in_flight[self.random.choice(sorted(self.in_flight))] if self.in_flight else None

    def pass_permit(self) -> None:
        queued = self._one_in_flight()
        if queued is not None and queued.uid in self.plain.pods and self.queue.find(queued.uid) is queued:
            self.queue.end_recording(queued.uid)
            self.plain.passed_permit(queued.uid)

    def end_attempt(self) -> None:
        queued = self._one_in_flight()
        if queued is None:
            return
        del self.in_flight[queued.uid]
        is_current = self.queue.find(queued.uid) is queued
        if is_current and self.random.random() < 0.15:
            self.queue.nominator.withdraw(queued.uid)
            self.queue.scheduled(queued)
            self.plain.bound(queued.uid)
            del self.known[queued.info.pod.metadata.name]
            return
        by = {plugin for plugin in ("A", "B", "Gone") if self.random.random() < 0.35}
        pending = {plugin for plugin in by if self.random.random() < 0.3}
        queued.rejected_by, queued.pending_on = frozenset(by), frozenset(pending)
        self.queue.failed(queued)
        if is_current:
            self.plain.fail(queued.uid, by, pending)

    def nominate(self) -> None:
        queued = self.queue.find(f"uid-of-default-{self.random.choice(NAMES)}")
        if queued is not None and queued.place.label != "parked":
            self.queue.nominator.nominate(queued.info, "n2")
            self.plain.nominations[queued.uid] = "n2"

    def send_event(self) -> None:
        self.hint_results = {plugin: self.random.random() < 0.5 for plugin in REGISTERED}
        event = self.random.choice([NODE_ADD, NODE_ADD, NODE_DELETE, LABELLED, ASSIGNED_POD_DELETE])
        if event is ASSIGNED_POD_DELETE and self.random.random() < 0.5:
            highest = self.random.randrange(3)
            self.queue.on_event(event, None, None, max_priority=highest)
            self.plain.on_event(event, highest=highest)
        else:
            self.queue.on_event(event, None, None)
            self.plain.on_event(event)

    def activate(self) -> None:
        uids = [f"uid-of-default-{name}" for name in self.random.sample(NAMES, 2)]
        self.queue.activate(uids)
        self.plain.activate(uids, FORCE_ACTIVATE)

    def wait(self) -> None:
        seconds = self.random.choice([0.25, 0.5, 1.0, 3.75])
        self.clock.advance(seconds)
        self.plain.advance(seconds)

    def flush(self) -> None:
        if self.random.random() < 0.7:
            self.clock.advance(300.5)
            self.plain.advance(300.5)
        self.queue.flush()
        self.plain.flush()

    def serve_profile(self, profile: str = "") -> None:
        name = profile or self.random.choice(PROFILES)
        registrations = {
            plugin: (EventRegistration(event, self._hint_of(plugin)),) for plugin, event in REGISTERED.items()
        }
        gates = (First(None, FakeHandle()), Second(None, FakeHandle()))
        self.rules[name] = QueueingRules(gates, registrations, by_priority)
        self.queue.profile_changed(name)
        self.plain.serve_profile(name, PROFILE_SWAPPED)

    def _hint_of(self, plugin: str) -> HintFunction:
        def hint(_pod: Pod, _old: object | None, _new: object | None) -> Hint:
            return Hint.QUEUE if self.hint_result(plugin) else Hint.SKIP

        return hint

    def withdraw_profile(self) -> None:
        name = self.random.choice(PROFILES)
        self.rules.pop(name, None)
        self.queue.profile_changed(name)
        self.plain.withdraw_profile(name, PROFILE_SWAPPED)

    # -- comparison ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that every pod has the same place in the model, and that all counts are equal."""
        places_by_uid = {queued.uid: place for place, queued in self.queue.readings.places()}
        assert places_by_uid == self.plain.places()
        nominator = self.queue.nominator
        assert {
            uid: nominator.node_of(uid) for uid in places_by_uid if nominator.node_of(uid)
        } == self.plain.nominations
        assert dict(self.queue.readings.incoming) == dict(self.plain.incoming)
        assert {
            key: count for key, count in self.queue.readings.unschedulable_by.items() if count
        } == self.plain.unschedulable_by()
        assert self.queue.scheduled_after_flush == self.plain.after_flush
        for name, counts in self.queue.readings.counts().items():
            places = [each.place for each in self.plain.pods.values() if each.pod.spec.scheduler_name == name]
            backing_off = places.count("backoff") + places.count("errorBackoff")
            assert (counts.active, counts.backoff) == (places.count("active"), backing_off)
            assert (counts.unschedulable, counts.gated) == (places.count("unschedulable"), places.count("gated"))


STEPS = {
    Pair.add_or_update: 10,
    Pair.delete: 2,
    Pair.pop: 14,
    Pair.pass_permit: 2,
    Pair.end_attempt: 14,
    Pair.nominate: 2,
    Pair.send_event: 8,
    Pair.activate: 2,
    Pair.wait: 6,
    Pair.flush: 2,
    Pair.serve_profile: 1,
    Pair.withdraw_profile: 0.5,
}


@pytest.mark.parametrize("seed", range(150))
def test_the_queue_equals_the_model(seed: int) -> None:
    """After each of 200 steps every pod has the same place in the queue and the model."""
    pair = Pair(seed)
    steps = pair.random.choices(list(STEPS), list(STEPS.values()), k=200)
    for step in steps:
        step(pair)
        pair.check()
    pair.queue.close()


def test_the_random_steps_reach_every_place() -> None:
    """The random steps of the test above reach every place and the important events."""
    visited: set[str] = set()
    labels: set[str] = set()
    for seed in range(10):
        pair = Pair(seed)
        for step in pair.random.choices(list(STEPS), list(STEPS.values()), k=200):
            step(pair)
            visited.update(pair.plain.places().values())
        labels.update(label for label, _ in pair.plain.incoming)
        pair.queue.close()
    assert visited == {"active", "backoff", "errorBackoff", "unschedulable", "gated", "parked", "inFlight"}
    assert {"BackoffComplete", "PopFromBackoffQ", "ForceActivate", "UnschedulableTimeout", "NodeAdd"} <= labels
