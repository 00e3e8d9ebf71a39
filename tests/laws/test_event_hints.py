"""Laws of queueing hints: an event costs little whatever waits, and is evaluated exactly once for each waiting pod.

The hints of one event are called in slices, with turns of the event loop between them. The laws compare them with hints
that are called at once, and count what runs between two turns.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD, Hint
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Container, Pod, ResourceRequirements, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import node, pod
from tests.support.queue_world import COLUMNS, QueueWorld
from tests.support.scheduling import Rig, default_rig
from tests.support.storage import mounts

TERMS = 160
WAITING = 60
CALLS_BETWEEN_TURNS = 110_000
"""Calls between two turns of the event loop; the interpreter makes about ten million a second."""


def _spread(number: int) -> Pod:
    pods = LabelSelector(match_labels={"app": f"a{number}", "tier": "web"})
    spread = [TopologySpreadConstraint(1, f"k{each}", "DoNotSchedule", pods) for each in range(TERMS)]
    return pod(f"p{number}", spread=spread)


def _spread_with_keys(number: int) -> Pod:
    pods = app(f"a{number}")
    spread = [
        TopologySpreadConstraint(1, f"k{each}", "DoNotSchedule", pods, match_label_keys=("version",))
        for each in range(TERMS)
    ]
    return pod(f"p{number}", spread=spread, labels={"version": "1"})


def _affinity(number: int) -> Pod:
    return pod(f"p{number}", affinity=affinity_to(*(term(f"a{number}", f"k{each}") for each in range(TERMS))))


def _anti_affinity(number: int) -> Pod:
    return pod(f"p{number}", affinity=anti_affinity_to(*(term(f"a{number}", f"k{each}") for each in range(TERMS))))


def _node_affinity(number: int) -> Pod:
    values = tuple(f"v{number}-{value}" for value in range(40))
    return pod(
        f"p{number}", affinity=node_affinity(*(Requirement(f"k{each}", "In", values) for each in range(TERMS // 2)))
    )


def _tolerations(number: int) -> Pod:
    return pod(
        f"p{number}", tolerations=[Toleration(key=f"k{number}-{each}", operator="Exists") for each in range(TERMS * 10)]
    )


def _ports(number: int) -> Pod:
    return pod(f"p{number}", ports=range(1, TERMS * 10))


def _claims(number: int) -> Pod:
    return pod(f"p{number}", volumes=mounts(*(f"c{number}-{each}" for each in range(TERMS * 2))))


def _resources(number: int) -> Pod:
    containers = [
        Container(f"c{each}", resources=ResourceRequirements({f"example.com/r{each}": "1"})) for each in range(TERMS)
    ]
    return pod(f"p{number}", containers=containers)


@dataclass
class Waiting:
    """Pods that wait, the plugin that rejected them, and the kinds of events that help none of them."""

    pods: Callable[[int], Pod]
    plugin: str
    kinds: tuple[str, ...] = ("node", "pod")


ROWS = {
    "spread constraints": Waiting(_spread, "PodTopologySpread"),
    "spread constraints with matchLabelKeys": Waiting(_spread_with_keys, "PodTopologySpread"),
    "affinity terms": Waiting(_affinity, "InterPodAffinity"),
    "anti-affinity terms": Waiting(_anti_affinity, "InterPodAffinity"),
    "node affinity with many values": Waiting(_node_affinity, "NodeAffinity"),
    "tolerations": Waiting(_tolerations, "TaintToleration"),
    "host ports": Waiting(_ports, "NodePorts"),
    "claims": Waiting(_claims, "VolumeRestrictions"),
    "resources and containers": Waiting(_resources, "NodeResourcesFit", ("node",)),
}


def _made(row: Waiting) -> Rig:
    """Return a scheduler in which a plugin has rejected pods, so that its hints are called on each event."""
    made = default_rig(node("n0", allocatable={"cpu": "8", "pods": "1k"}), _small(0))
    made.add(*(row.pods(number) for number in range(WAITING)))
    while (queued := made.queue.pop()) is not None:
        queued.rejected_by = frozenset((row.plugin,))
        made.queue.failed(queued)
    return made


def _small(version: int) -> Node:
    return node(
        "n1",
        labels={"rack": f"{version}"},
        allocatable={"cpu": "0", "pods": f"{version}"},
        taints=[f"t{version}-{each}:NoSchedule" for each in range(100)],
    )


@contextmanager
def _counting(names: frozenset[str] = frozenset()) -> Iterator[dict[str, int]]:
    """Count calls, as "all", and those of functions by name."""
    counts: dict[str, int] = defaultdict(int)

    def hook(frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            counts["all"] += 1
            if event == "call" and frame.f_code.co_name in names:
                counts[frame.f_code.co_name] += 1

    # Not collected here, because that takes longer than a slice in a process with many modules.
    gc.disable()
    sys.setprofile(hook)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        gc.enable()


def _events(made: Rig, row: Waiting, first: int) -> Iterator[Callable[[], None]]:
    """Yield events of nodes and pods; after each of them all pods still wait."""
    feed = made.scheduler.feed
    happens: list[Callable[[], None]] = []
    if "node" in row.kinds:
        happens += [lambda: feed.node_updated(_small(first), _small(first + 1))]
    if "pod" in row.kinds:
        running, relabelled = (pod("running", node_name="n0", labels={"app": app}) for app in ("other", "more"))
        happens += [
            lambda: feed.pod_added(running),
            lambda: feed.pod_updated(running, relabelled),
            lambda: feed.pod_deleted(relabelled),
        ]
    for each in happens:
        yield each
        assert made.queue.readings.counts()["default-scheduler"].unschedulable == WAITING


@pytest.mark.parametrize("name", ROWS)
def test_an_event_is_evaluated_in_short_slices(name: str) -> None:
    """Between two turns of the event loop hints make a bounded number of calls, whatever pods wait."""
    made = _made(ROWS[name])
    for happens in _events(made, ROWS[name], 0):
        with _counting() as counts:
            happens()
        assert counts["all"] <= CALLS_BETWEEN_TURNS
        while made.queue.wakeups.has_pending:
            with _counting() as counts:
                made.queue.wakeups.advance()
            assert counts["all"] <= CALLS_BETWEEN_TURNS


COMPILERS = frozenset(
    {
        "compile_label_selector",
        "compile_requirement",
        "compile_node_selector",
        "affinity_terms",
        "required_node_affinity",
        "compiled",
        "pod_volumes",
        "pod_requests",
        "host_ports",
        "in_units",
    }
)


@pytest.mark.parametrize("name", ROWS)
def test_an_event_compiles_no_waiting_pod(name: str) -> None:
    """After the first event, hints compile at most the objects of the event itself, once for all waiting pods."""
    made = _made(ROWS[name])

    def happen(first: int) -> None:
        for happens in _events(made, ROWS[name], first):
            happens()
            while made.queue.wakeups.has_pending:
                made.queue.wakeups.advance()

    happen(0)
    with _counting(COMPILERS) as counts:
        happen(1)
    # The feed compiles the pod of the event, too.
    assert sum(counts[each] for each in COMPILERS) < WAITING, counts


# -- slices -----------------------------------------------------------------------------------------------------------

PODS = 4
OPS = st.one_of(
    st.tuples(st.just("event"), st.integers(0, PODS)),
    st.tuples(st.sampled_from(("update", "remove", "flush", "activate")), st.integers(0, PODS - 1)),
    st.tuples(st.just("advance"), st.just(0)),
)
CALLS = "calls"


def _lives(ops: list[tuple[str, int]], helpful: frozenset[tuple[int, str]], budget: int, most: int) -> dict[str, Any]:
    """Return the hints that were called for each pod in order, and the final places."""
    calls: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def hint(waiting: Pod, _old: object | None, new: object | None) -> Hint:
        assert isinstance(new, Node)
        name, version = waiting.metadata.name, waiting.metadata.labels["version"]
        calls[name].append((new.metadata.name, version))
        return Hint.QUEUE if (int(name[1:]), new.metadata.name) in helpful else Hint.SKIP

    world = QueueWorld(hint=hint)
    wakeups = world.queue.wakeups
    wakeups.budget = wakeups.left = budget
    wakeups.max_events = most
    world.add(*(pod(f"p{each}", labels={"version": "0"}) for each in range(PODS)))
    for _ in range(PODS):
        world.pop_and_fail(by=["A"])
    for number, (kind, of) in enumerate(ops):
        uid = pod(f"p{of}").metadata.uid
        if kind == "event":
            world.queue.on_event(NODE_ADD, None, node(f"e{number}"), exclude=uid)
        elif kind == "advance":
            wakeups.advance()
        elif kind == "flush":
            world.clock.advance(1000.0 if of == 0 else 1.0)
            world.queue.flush()
        elif world.queue.find(uid) is not None:
            if kind == "update":
                world.queue.update(COLUMNS.compile_pod(pod(f"p{of}", labels={"version": f"{number}"})))
            elif kind == "activate":
                world.queue.activate((uid,))
            else:
                world.queue.remove(uid)
    while wakeups.has_pending:
        wakeups.advance()
    places = {f"p{each}": world.place_of(pod(f"p{each}")) for each in range(PODS)}
    return {CALLS: dict(calls), "places": places}


@settings(max_examples=300)
@given(
    st.lists(OPS.filter(lambda op: op[0] not in ("remove", "flush", "activate")), max_size=12),
    st.frozensets(st.tuples(st.integers(0, PODS - 1), st.sampled_from([f"e{each}" for each in range(12)])), max_size=6),
    st.integers(1, 6),
)
def test_slices_change_no_verdict(ops: list[tuple[str, int]], helpful: frozenset[tuple[int, str]], budget: int) -> None:
    """Each pod sees the same events in the same version and order, and ends where it would without slices."""
    assert _lives(ops, helpful, budget, 1000) == _lives(ops, helpful, 1 << 30, 1000)


@settings(max_examples=300)
@given(st.lists(OPS, max_size=14), st.integers(1, 3), st.sampled_from((3, 1000)))
def test_no_wakeup_is_lost_or_repeated(ops: list[tuple[str, int]], budget: int, most: int) -> None:
    """Whatever happens between slices, no event is evaluated twice for a pod, and none that helps a pod is lost."""
    names = [f"e{each}" for each in range(len(ops))]
    nothing = _lives(ops, frozenset(), budget, most)
    for seen in nothing[CALLS].values():
        events = [int(name[1:]) for name, _ in seen]
        assert events == sorted(set(events))
    helpful = frozenset((each, name) for each in range(PODS) for name in names)
    moved = _lives(ops, helpful, budget, most)
    at_once = _lives(ops, helpful, 1 << 30, most)
    assert moved["places"] == at_once["places"]


def test_pods_that_are_far_behind_are_requeued() -> None:
    """Pods for which more events are logged than the bound are requeued without their hints."""
    world = QueueWorld(hint=lambda _pod, _old, _new: Hint.SKIP)
    world.queue.wakeups.max_events = 3
    waiting = pod("p0")
    world.add(waiting)
    queued: QueuedPod = world.pop_and_fail(by=["A"])
    world.queue.wakeups.left = 0
    for number in range(5):
        world.queue.on_event(NODE_ADD, None, node(f"e{number}"))
    world.queue.wakeups.advance()
    assert world.place_of(waiting) == "backoff"
    assert not world.queue.wakeups.has_pending
    assert queued.rejected_by == {"A"}


def test_the_next_pop_continues() -> None:
    """A pop evaluates events that are left, and the scheduler is not idle before that."""
    world = QueueWorld()
    waiting = pod("p0")
    world.add(waiting)
    world.pop_and_fail(by=["A"])
    world.queue.wakeups.left = 0
    world.queue.on_event(NODE_ADD, None, node("e"))
    assert world.place_of(waiting) == "unschedulable"
    assert not world.queue.readings.is_idle
    assert world.pop().uid == waiting.metadata.uid
    assert world.queue.readings.in_flight_count == 1
