"""The laws of a run: resources are conserved, no node is overcommitted, no pod is lost.

Whatever fails on the way: plugins at any point, binds with or without an answer, nodes and pods that go half-way,
rivals that bind first, profiles that are replaced or withdrawn.
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
    """The cluster.

    Attributes:
        outcome: What becomes of the next bind; one of ``OUTCOMES``.
        cpu: What the pods that exist ask for, by name.
        node_of: Where pods are bound, by name.
    """

    outcome: str = "bound"
    cpu: dict[str, int] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)

    def as_seen(self, name: str) -> Pod:
        """A pod as a watch shows it."""
        return pod(name, requests={"cpu": self.cpu[name]}, node_name=self.node_of.get(name, ""))

    async def bind(self, binding: Binding) -> None:
        """Bind, refuse, or lose the answer."""
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
            raise WriteTimeoutError("no answer")

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The truth."""
        return self.as_seen(name) if name in self.cpu else None


CPUS = 4
NODES = st.sampled_from(["n0", "n1", "n2"])
NO = unschedulable("no")
FAULTS: list[tuple[str, object]] = [
    ("", None),
    ("preFilter", PreFilterResult(NO)),
    ("filter", ValueError("boom")),
    ("score", None),
    ("reserve", NO),
    ("reserve", ValueError("boom")),
    ("unreserve", ValueError("boom")),
    ("permit", PermitResult(NO)),
    ("permit", PermitResult(Status(Code.PENDING))),
    ("permit", None),
    ("preBind", NO),
    ("preBind", ValueError("boom")),
    ("bind", None),
    ("postBind", ValueError("boom")),
]
INDEXES = st.integers(0, 1000)


def chosen(names: Iterable[str], index: int) -> str:
    """Draw one of some names."""
    ordered = sorted(names)
    return ordered[index % len(ordered)]


class RunMachine(RuleBasedStateMachine):
    """A scheduler, a server with the true state, and attempts in progress."""

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
            self.node_comes(name)
        for cpu in (1, 2, 3):
            self.pod_comes(cpu)

    @rule(name=NODES)
    def node_comes(self, name: str) -> None:
        if name not in self.nodes:
            self.nodes.add(name)
            self.made.scheduler.feed.node_added(node(name, allocatable={"cpu": CPUS, "pods": 110}))

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        if name in self.nodes:
            self.nodes.discard(name)
            self.made.scheduler.feed.node_deleted(node(name))

    @rule(cpu=st.integers(1, 3))
    def pod_comes(self, cpu: int) -> None:
        self.serial += 1
        name = f"p{self.serial}"
        self.server.cpu[name] = cpu
        self.seen[name] = ""
        self.made.scheduler.feed.pod_added(self.server.as_seen(name))

    @precondition(lambda self: self.server.cpu)
    @rule(index=INDEXES)
    def pod_goes(self, index: int) -> None:
        name = chosen(self.server.cpu, index)
        last = self.server.as_seen(name)
        del self.server.cpu[name], self.seen[name]
        self.server.node_of.pop(name, None)
        self.made.scheduler.feed.pod_deleted(last)

    @rule(fault=st.sampled_from(FAULTS), times=st.integers(1, 4))
    def decide(self, fault: tuple[str, object], times: int) -> None:
        for _ in range(times):
            self._decide(fault)

    def _decide(self, fault: tuple[str, object]) -> None:
        point, answer = fault
        self.journal.results = {f"Rec.{point}": answer} if point else {}
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
        point, answer = fault
        self.journal.results = {f"Rec.{point}": answer} if point else {}
        asyncio.run(self.made.scheduler.cycles.binding.bind(attempt))

    @precondition(lambda self: self.seen)
    @rule(index=INDEXES)
    def watch_shows(self, index: int) -> None:
        name = chosen(self.seen, index)
        if self.seen[name] != self.server.node_of.get(name, ""):
            self._show(name)

    def _show(self, name: str) -> None:
        new = self.server.as_seen(name)
        node_name = self.server.node_of.pop(name, "")
        old = self.server.as_seen(name)
        if node_name:
            self.server.node_of[name] = node_name
        self.seen[name] = node_name
        self.made.scheduler.feed.pod_updated(old, new)

    @precondition(lambda self: self.nodes)
    @rule(index=INDEXES)
    def rival_binds(self, index: int) -> None:
        """A rival binds a pod where it fits as the scheduler sees it, and the watch shows it at once."""
        unbound = sorted(set(self.server.cpu) - set(self.server.node_of))
        if not unbound:
            return
        name, node_name = chosen(unbound, index), chosen(self.nodes, index // 7)
        if self._taken(node_name) + self.server.cpu[name] * 1000 <= CPUS * 1000:
            self.server.node_of[name] = node_name
            self._show(name)

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
    def swap(self, percentage: int | None) -> None:
        self.made.serve(profile(percentage=percentage))

    @rule()
    def withdraw(self) -> None:
        self.made.scheduler.withdraw("default-scheduler")

    def _taken(self, node_name: str) -> int:
        columns = self.made.context.cache.columns
        return int(columns.requested[columns.resources.find("cpu"), columns.row_of(node_name)])

    @invariant()
    def resources_are_conserved(self) -> None:
        """What a node's columns hold is the sum of the pods that the cache places there."""
        cache = self.made.context.cache
        for name in self.nodes:
            there = [placed.info for placed in cache.placed_pods() if placed.info.node_name == name]
            assert self._taken(name) == sum(info.requests.accounted["cpu"] for info in there)
            assert cache.columns.pod_count[cache.columns.row_of(name)] == len(there)

    @invariant()
    def no_node_is_overcommitted(self) -> None:
        """No node is overcommitted in the server's true state."""
        for name in ("n0", "n1", "n2"):
            taken = sum(self.server.cpu[each] for each, where in self.server.node_of.items() if where == name)
            assert taken <= CPUS

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
    def nobody_holds_what_no_attempt_holds(self) -> None:
        """An instance counts its attempts in progress, so that it is closed after the last one."""
        live = self.made.context.profiles.get("default-scheduler")
        mine = sum(attempt.instance is live for attempt in self.attempts)
        assert live is None or live.in_flight == mine

    def teardown(self) -> None:
        self.made.queue.close()


RunMachine.TestCase.settings = settings(stateful_step_count=40)
TestRuns = RunMachine.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_long_runs(seed: int) -> None:
    """The same laws on long seeded runs, which hypothesis does not draw, and at their end every bind is accounted for.

    Most steps make progress, so that nodes fill up and things go wrong while much is under way.
    """
    random = Random(seed)
    run = RunMachine()
    steps: list[tuple[int, Callable[[], object]]] = [
        (8, lambda: run.pod_comes(random.randint(1, 3))),
        (12, lambda: run.decide(random.choice(FAULTS) if random.random() < 0.3 else ("", None), random.randint(1, 3))),
        (12, lambda: run.attempts and run.finish(random.randrange(9), random.choice(OUTCOMES), random.choice(FAULTS))),
        (10, lambda: run.attempts and run.finish(random.randrange(9), "bound", ("", None))),
        (10, lambda: run.seen and run.watch_shows(random.randrange(99))),
        (3, lambda: run.server.cpu and run.pod_goes(random.randrange(99))),
        (2, lambda: run.node_goes(random.choice(["n0", "n1", "n2"]))),
        (4, lambda: run.node_comes(random.choice(["n0", "n1", "n2"]))),
        (3, lambda: run.nodes and run.rival_binds(random.randrange(99))),
        (6, lambda: run.wait(random.choice([1.0, 20.0, 400.0]))),
        (3, run.settle),
        (4, lambda: run.swap(random.choice([None, 50]))),
        (1, run.withdraw),
    ]
    doings, weights = [step for _, step in steps], [weight for weight, _ in steps]
    bound = 0
    for _ in range(150):
        random.choices(doings, weights)[0]()
        bound = max(bound, len(run.server.node_of))
        run.resources_are_conserved()
        run.no_node_is_overcommitted()
        run.no_pod_is_lost()
        run.nobody_holds_what_no_attempt_holds()
    run.teardown()
    assert bound > 0
