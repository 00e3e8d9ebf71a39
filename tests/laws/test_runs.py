"""Laws of a run: resources are conserved, no node is overcommitted, no pod is lost.

The laws hold with failing plugins at any extension point, failed binds and lost responses, deleted nodes and pods,
binds of another scheduler, and edited or deleted profiles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.errors import ConflictError, NotFoundError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult
from scheduler_core.framework.status import Code, Status, unschedulable
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, places_of, plugin_set, profile
from tests.support.virtual_clock import VirtualClock

OUTCOMES = ("bound", "unavailable", "lost-but-bound", "lost-and-not-bound")


@dataclass
class FaultyServer(RecordingWriter):
    """The API server's true state.

    Attributes:
        outcome: Outcome of the next bind; one of ``OUTCOMES``.
        cpu: CPU requests of the existing pods, by name.
        node_of: Nodes of bound pods, by name.
    """

    outcome: str = "bound"
    cpu: dict[str, int] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)

    def pod_state(self, name: str) -> Pod:
        return pod(name, requests={"cpu": self.cpu[name]}, node_name=self.node_of.get(name, ""))

    async def bind(self, binding: Binding) -> None:
        """Bind, fail, or lose the response."""
        name = binding.name
        if name not in self.cpu:
            raise NotFoundError(f"pod {name} is gone")
        if name in self.node_of:
            raise ConflictError(f"pod {name} is bound to {self.node_of[name]}")
        if self.outcome == "unavailable":
            raise ServerUnavailableError("away")
        if self.outcome != "lost-and-not-bound":
            self.node_of[name] = binding.node_name
        if self.outcome != "bound":
            raise WriteTimeoutError("no result")

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the current state of a pod; None if it does not exist."""
        return self.pod_state(name) if name in self.cpu else None


CPUS = 4
NODES = st.sampled_from(["n0", "n1", "n2"])
REJECTED = unschedulable("no")
FAULTS: list[tuple[str, object]] = [
    ("", None),
    ("preFilter", PreFilterResult(REJECTED)),
    ("filter", ValueError("boom")),
    ("score", None),
    ("reserve", REJECTED),
    ("reserve", ValueError("boom")),
    ("unreserve", ValueError("boom")),
    ("permit", PermitResult(REJECTED)),
    ("permit", PermitResult(Status(Code.PENDING))),
    ("permit", None),
    ("preBind", REJECTED),
    ("preBind", ValueError("boom")),
    ("bind", None),
    ("postBind", ValueError("boom")),
]
INDEXES = st.integers(0, 1000)


def pick(names: Iterable[str], index: int) -> str:
    """Return the element of the sorted names at *index*, modulo their number."""
    ordered = sorted(names)
    return ordered[index % len(ordered)]


class RunMachine(RuleBasedStateMachine):
    """A scheduler, an API server with the true state, and attempts in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.server = FaultyServer()
        self.clock = VirtualClock()
        registry = in_tree_registry()
        registry.register(recorder("Rec", self.journal))
        defaults = Plugins(multi_point=plugin_set("Rec", "PrioritySort", "NodeResourcesFit", "DefaultBinder"))
        self.made = Rig(Scheduler(self.clock, self.server, None, registry, defaults), self.clock, self.server)
        self.made.serve(profile())
        self.attempts: list[Attempt] = []
        self.seen: dict[str, str] = {}
        self.nodes: set[str] = set()
        self.serial = 0
        for name in ("n0", "n1"):
            self.add_node(name)
        for cpu in (1, 2, 3):
            self.create_pod(cpu)

    @rule(name=NODES)
    def add_node(self, name: str) -> None:
        if name not in self.nodes:
            self.nodes.add(name)
            self.made.scheduler.feed.node_added(node(name, allocatable={"cpu": CPUS, "pods": 110}))

    @rule(name=NODES)
    def delete_node(self, name: str) -> None:
        if name in self.nodes:
            self.nodes.discard(name)
            self.made.scheduler.feed.node_deleted(node(name))

    @rule(cpu=st.integers(1, 3))
    def create_pod(self, cpu: int) -> None:
        self.serial += 1
        name = f"p{self.serial}"
        self.server.cpu[name] = cpu
        self.seen[name] = ""
        self.made.scheduler.feed.pod_added(self.server.pod_state(name))

    @precondition(lambda self: self.server.cpu)
    @rule(index=INDEXES)
    def delete_pod(self, index: int) -> None:
        name = pick(self.server.cpu, index)
        last = self.server.pod_state(name)
        del self.server.cpu[name], self.seen[name]
        self.server.node_of.pop(name, None)
        self.made.scheduler.feed.pod_deleted(last)

    @rule(fault=st.sampled_from(FAULTS), times=st.integers(1, 4))
    def decide(self, fault: tuple[str, object], times: int) -> None:
        for _ in range(times):
            self._decide(fault)

    def _decide(self, fault: tuple[str, object]) -> None:
        point, result = fault
        self.journal.results = {f"Rec.{point}": result} if point else {}
        queued = self.made.queue.pop()
        if queued is not None:
            attempt = self.made.scheduler.cycles.pods.schedule(queued)
            if attempt is not None:
                self.attempts.append(attempt)

    @precondition(lambda self: self.attempts)
    @rule(index=INDEXES, outcome=st.sampled_from(OUTCOMES), fault=st.sampled_from(FAULTS))
    def finish(self, index: int, outcome: str, fault: tuple[str, object]) -> None:
        attempt = self.attempts.pop(index % len(self.attempts))
        self.server.outcome = outcome
        point, result = fault
        self.journal.results = {f"Rec.{point}": result} if point else {}
        asyncio.run(self.made.scheduler.cycles.binding.bind(attempt))

    @precondition(lambda self: self.seen)
    @rule(index=INDEXES)
    def deliver_event(self, index: int) -> None:
        name = pick(self.seen, index)
        if self.seen[name] != self.server.node_of.get(name, ""):
            self._deliver(name)

    def _deliver(self, name: str) -> None:
        new = self.server.pod_state(name)
        node_name = self.server.node_of.pop(name, "")
        old = self.server.pod_state(name)
        if node_name:
            self.server.node_of[name] = node_name
        self.seen[name] = node_name
        self.made.scheduler.feed.pod_updated(old, new)

    @precondition(lambda self: self.nodes)
    @rule(index=INDEXES)
    def rival_binds(self, index: int) -> None:
        """Bind a pod as another scheduler where it fits, and deliver the event at once."""
        unbound = sorted(set(self.server.cpu) - set(self.server.node_of))
        if not unbound:
            return
        name, node_name = pick(unbound, index), pick(self.nodes, index // 7)
        if self._used_cpu(node_name) + self.server.cpu[name] * 1000 <= CPUS * 1000:
            self.server.node_of[name] = node_name
            self._deliver(name)

    @rule(seconds=st.sampled_from([1.0, 20.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.made.queue.flush()

    @rule()
    def settle(self) -> None:
        asyncio.run(self.made.scheduler.unconfirmed_pods.settle(self.made.scheduler.feed, 15.0))
        for placed in self.made.context.cache.placed_pods():
            self.seen[placed.info.pod.metadata.name] = placed.info.pod.spec.node_name

    @rule(percentage=st.sampled_from([None, 50]))
    def edit_profile(self, percentage: int | None) -> None:
        self.made.serve(profile(percentage=percentage))

    @rule()
    def delete_profile(self) -> None:
        self.made.scheduler.withdraw("default-scheduler")

    def _used_cpu(self, node_name: str) -> int:
        columns = self.made.columns
        return int(columns.requested[columns.resources.find("cpu"), columns.row_of(node_name)])

    @invariant()
    def resources_are_conserved(self) -> None:
        """The requests in a node's columns are the sum over the pods that the cache has on the node."""
        cache = self.made.context.cache
        for name in self.nodes:
            there = [placed.info for placed in cache.placed_pods() if placed.info.node_name == name]
            assert self._used_cpu(name) == sum(info.requests.accounted["cpu"] for info in there)
            assert cache.columns.pod_count[cache.columns.row_of(name)] == len(there)

    @invariant()
    def no_node_is_overcommitted(self) -> None:
        """No node is overcommitted in the API server's state."""
        for name in ("n0", "n1", "n2"):
            used = sum(self.server.cpu[each] for each, where in self.server.node_of.items() if where == name)
            assert used <= CPUS

    @invariant()
    def no_pod_is_lost(self) -> None:
        """Every pod is bound or in one place of the queue; deleted pods are in none."""
        queue, cache = self.made.queue, self.made.context.cache
        for name in self.server.cpu:
            uid = f"uid-of-default-{name}"
            places = places_of(queue, uid)
            assert len(places) <= 1
            assert places or (name in self.server.node_of and cache.get(uid) is not None), name
            placed = cache.get(uid)
            assert placed is None or not places or places == ["inFlight"]
        waiting = len(queue.readings) + queue.readings.parked_count + queue.readings.in_flight_count
        assert waiting + len(cache) >= len(self.server.cpu)
        if not self.attempts:
            assert queue.readings.in_flight_count == 0
            assert waiting + len(cache) == len(self.server.cpu)

    @invariant()
    def attempts_in_flight_are_counted(self) -> None:
        """A framework instance counts its attempts in progress."""
        live = self.made.context.profiles.get("default-scheduler")
        mine = sum(attempt.instance is live for attempt in self.attempts)
        assert live is None or live.in_flight == mine

    def teardown(self) -> None:
        self.made.queue.close()


RunMachine.TestCase.settings = settings(stateful_step_count=40)
TestRuns = RunMachine.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_long_runs(seed: int) -> None:
    """The laws hold in long seeded runs.

    Most steps make progress, so that nodes are full and faults meet many attempts in progress.
    """
    random = Random(seed)
    run = RunMachine()
    steps: list[tuple[int, Callable[[], object]]] = [
        (8, lambda: run.create_pod(random.randint(1, 3))),
        (12, lambda: run.decide(random.choice(FAULTS) if random.random() < 0.3 else ("", None), random.randint(1, 3))),
        (12, lambda: run.attempts and run.finish(random.randrange(9), random.choice(OUTCOMES), random.choice(FAULTS))),
        (10, lambda: run.attempts and run.finish(random.randrange(9), "bound", ("", None))),
        (10, lambda: run.seen and run.deliver_event(random.randrange(99))),
        (3, lambda: run.server.cpu and run.delete_pod(random.randrange(99))),
        (2, lambda: run.delete_node(random.choice(["n0", "n1", "n2"]))),
        (4, lambda: run.add_node(random.choice(["n0", "n1", "n2"]))),
        (3, lambda: run.nodes and run.rival_binds(random.randrange(99))),
        (6, lambda: run.wait(random.choice([1.0, 20.0, 400.0]))),
        (3, run.settle),
        (4, lambda: run.edit_profile(random.choice([None, 50]))),
        (1, run.delete_profile),
    ]
    actions, weights = [step for _, step in steps], [weight for weight, _ in steps]
    bound = 0
    for _ in range(150):
        random.choices(actions, weights)[0]()
        bound = max(bound, len(run.server.node_of))
        run.resources_are_conserved()
        run.no_node_is_overcommitted()
        run.no_pod_is_lost()
        run.attempts_in_flight_are_counted()
    run.teardown()
    assert bound > 0
