"""Law: an exception of a sink loses no change, whatever was applied before it.

Random events reach the scheduler's own feeds through an informer, while calls inside the feeds raise before or after
they have taken effect, and while cycles are suspended. When nothing raises any more, the cache, the queue and the
indexes are those of a scheduler that received the last state of every object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from bayplan.kube.watches.cluster_informers import FeedSink
from bayplan.kube.watches.informer import Informer, Resource
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import CsiNode, CsiNodeDriver, CsiNodeSpec
from scheduler_core.snapshot.cluster_cache import ClusterCache, differences
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

NAMES = ("a", "b", "c")
KINDS = ("node", "pod", "csinode")
BROKEN = (
    "cache.add_node", "cache.remove_node", "cache.add_pod", "cache.remove_pod", "queue.on_event", "queue.add",
    "queue.update", "queue.remove", "storage.assign", "storage.remove", "synced",
)  # fmt: skip

Step = tuple[str, str, str, int]
"""Kind, name, action and a number that decides the content."""

steps_of = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.sampled_from(("upsert", "upsert", "upsert", "delete", "recreate", "relist", "suspend", "resume", "time")),
        st.integers(0, 5),
    ),
    max_size=30,
)
faults_of = st.lists(st.sampled_from(("", "", "before", "after")), max_size=60)


class Faults:
    """Makes methods raise, before or after their effect, in a given order."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.left = list(reversed(faults))
        self.raised = 0

    def breaking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*args: Any, **kwargs: Any) -> Any:
            fault = self.left.pop() if self.left else ""
            if fault == "before":
                self.raised += 1
                raise RuntimeError("before")
            found = call(*args, **kwargs)
            if fault:
                self.raised += 1
                raise RuntimeError("after")
            return found

        return broken


class World:
    """A scheduler whose feeds receive events of three informers, without a connection."""

    def __init__(self, cluster: Rig, faults: Faults) -> None:
        self.cluster = cluster
        self.versions = 0
        self.objects: dict[tuple[str, str], Any] = {}
        scheduler = cluster.scheduler
        self.synced: list[str] = []
        feed, storage = scheduler.feed, scheduler.storage_feed
        end = faults.breaking(self.synced.append)
        suspension = scheduler.context.suspension
        sinks: dict[str, FeedSink[Any]] = {
            "node": FeedSink(feed.node_added, feed.node_updated, feed.node_deleted, lambda: end("node")),
            "pod": FeedSink(feed.pod_added, feed.pod_updated, feed.pod_deleted, lambda: end("pod")),
            "csinode": FeedSink(storage.added, storage.updated, storage.deleted, lambda: end("csinode")),
        }
        connection: Any = None
        self.informers: dict[str, Informer[Any]] = {
            kind: Informer(connection, Resource(f"/{kind}"), Pod, sink, cluster.clock, deferral=suspension)
            for kind, sink in sinks.items()
        }
        owners = {"cache": scheduler.context.cache, "queue": cluster.queue, "storage": self.columns.storage}
        for name in BROKEN[:-1]:
            owner, _, method = name.partition(".")
            setattr(owners[owner], method, faults.breaking(getattr(owners[owner], method)))

    @property
    def columns(self) -> Any:
        return self.cluster.scheduler.context.cache.columns

    def step(self, step: Step) -> None:
        kind, name, action, number = step
        informer, suspension = self.informers[kind], self.cluster.context.suspension
        if action == "time":
            self.cluster.clock.advance(float(number))
        elif action == "suspend":
            suspension.begin()
        elif action == "resume":
            suspension.end()
        elif action == "relist":
            known = {f"/{each}" for at, each in self.objects if at == kind}
            for (at, each), obj in self.objects.items():
                if at == kind:
                    informer._upsert(f"/{each}", obj)
            informer._finish_list(known, "1")
        elif action == "delete":
            self.objects.pop((kind, name), None)
            informer._delete(f"/{name}")
        else:
            self._upsert(kind, name, number, recreate=action == "recreate")

    def _upsert(self, kind: str, name: str, number: int, *, recreate: bool) -> None:
        self.versions += 1
        old = self.objects.get((kind, name))
        uid = f"{name}-{self.versions}" if recreate or old is None else old.metadata.uid
        new = made(kind, name, number, old if old is not None and old.metadata.uid == uid else None)
        meta = replace(new.metadata, uid=uid, resource_version=str(self.versions))
        self.objects[kind, name] = new = replace(new, metadata=meta)
        self.informers[kind]._upsert(f"/{name}", new)

    def settle(self) -> None:
        self.cluster.context.suspension.end()
        for _ in range(8):
            self.cluster.clock.advance(40.0)


def made(kind: str, name: str, number: int, old: Any) -> Any:
    """Make an object; a pod keeps its node, and stays ended."""
    if kind == "node":
        return node(name, allocatable={"cpu": str(number + 1), "pods": "10"}, labels={"zone": str(number % 2)})
    if kind == "csinode":
        return CsiNode(AnnotatedMeta(name), CsiNodeSpec(tuple(CsiNodeDriver(f"d{each}") for each in range(number))))
    bound = old.spec.node_name if old is not None and old.spec.node_name else ("", "", *NAMES, "d")[number]
    phase = "Succeeded" if (old is not None and old.is_terminal) or number == 5 else "Running"
    return pod(name, requests={"cpu": f"{number % 2 + 1}00m"}, node_name=bound, phase=phase)


def expected(world: World) -> ClusterCache:
    cache = ClusterCache()
    for (kind, _), each in world.objects.items():
        if kind == "node":
            cache.add_node(each)
    for (kind, _), each in world.objects.items():
        if kind == "pod" and each.spec.node_name and not each.is_terminal:
            cache.add_pod(each)
    return cache


def contents(objects: dict[str, Any]) -> dict[str, Any]:
    """Return what matters to the scheduler: updates that change nothing of it may be ignored."""
    return {
        name: each and (each.metadata.labels, each.spec, getattr(each, "status", None))
        for name, each in objects.items()
    }


def check(world: World) -> None:
    """Compare the scheduler with the last state of every object."""
    pods: dict[str, Pod] = {each.metadata.uid: each for (kind, _), each in world.objects.items() if kind == "pod"}
    nodes: dict[str, Node] = {each.metadata.name: each for (kind, _), each in world.objects.items() if kind == "node"}
    csi = {each.metadata.name: each for (kind, _), each in world.objects.items() if kind == "csinode"}
    context, columns = world.cluster.context, world.columns
    assert differences(context.cache, expected(world)) == []
    stored = {name: columns.nodes[columns.row_of(name)] for name in columns.names if name}
    assert contents(stored) == contents(nodes)
    drivers = {name: columns.storage.csi_nodes.get(name) for name in NAMES}
    assert contents(drivers) == contents({name: csi.get(name) for name in NAMES})
    placed = {uid: each for uid, each in pods.items() if each.spec.node_name and not each.is_terminal}
    assert contents({entry.info.uid: entry.info.pod for entry in context.cache.placed_pods()}) == contents(placed)
    waiting = {uid: each for uid, each in pods.items() if not each.spec.node_name and not each.is_terminal}
    assert contents({each.uid: each.info.pod for _, each in context.queue.readings.places()}) == contents(waiting)
    assert [len(informer.undelivered) for informer in world.informers.values()] == [0, 0, 0]
    assert all(not informer.synced or kind in world.synced for kind, informer in world.informers.items())


@given(steps=steps_of, faults=faults_of)
@settings(max_examples=200, deadline=None)
def test_an_exception_loses_nothing(steps: list[Step], faults: list[str]) -> None:
    """Whatever raises, and however often, the end is as without exceptions."""
    injected = Faults(faults)
    world = World(rig(), injected)
    for step in steps:
        world.step(step)
    world.settle()
    injected.left.clear()
    world.settle()
    check(world)


def test_a_half_applied_version_is_taken_back() -> None:
    """A change that raised after its effect, and is then reverted, does not stay applied."""
    faults = Faults(())
    world = World(rig(), faults)
    world.step(("node", "a", "upsert", 0))
    faults.left = ["after"]
    world.step(("node", "a", "upsert", 1))
    faults.left = ["before"]
    world.step(("node", "a", "upsert", 0))
    world.settle()
    assert faults.raised == 2
    check(world)


def test_a_change_that_an_informer_did_not_deliver_is_not_repeated_by_it() -> None:
    """A change of the scheduler itself that fails after a suspended cycle makes no informer deliver an object again."""
    world = World(rig(), Faults(()))
    suspension = world.cluster.context.suspension

    def fail() -> None:
        raise RuntimeError("broken")

    suspension.begin()
    world.step(("node", "a", "upsert", 1))
    suspension.run_or_defer(fail)
    suspension.end()
    assert {kind: len(each.undelivered) for kind, each in world.informers.items()} == {
        "node": 0,
        "pod": 0,
        "csinode": 0,
    }


def test_other_objects_are_delivered() -> None:
    """An object whose handling always fails delays no other object, and is retried ever more rarely."""
    cluster = rig()
    calls: list[str] = []

    def on_add(added: Node) -> None:
        calls.append(added.metadata.name)
        if added.metadata.name == "bad":
            raise RuntimeError("always")

    sink: FeedSink[Node] = FeedSink(on_add, lambda *_: None, lambda _: None)
    connection: Any = None
    informer = Informer(connection, Resource("/nodes"), Node, sink, cluster.clock)
    informer._upsert("/bad", node("bad"))
    for each in range(10):
        informer._upsert(f"/good{each}", node(f"good{each}"))
    cluster.clock.advance(600.0)
    assert [each for each in calls if each != "bad"] == [f"good{each}" for each in range(10)]
    assert 20 < calls.count("bad") < 60
    assert informer.sink_errors == calls.count("bad")
    assert informer.undelivered.keys == ["/bad"]


@pytest.mark.parametrize("broken", BROKEN)
def test_every_call_is_broken_by_the_law(broken: str) -> None:
    """Each of the calls of the law is one that an event reaches; else its faults would test nothing."""
    reached: list[str] = []
    world = World(rig(), Faults(()))
    owner, _, method = broken.partition(".")
    context = world.cluster.context
    owners: dict[str, Any] = {"cache": context.cache, "queue": context.queue, "storage": world.columns.storage}
    if owner == "synced":
        world.step(("node", "a", "relist", 0))
        assert world.synced == ["node"]
        return
    real = getattr(owners[owner], method)

    def counted(*args: Any, **kwargs: Any) -> Any:
        reached.append(method)
        return real(*args, **kwargs)

    setattr(owners[owner], method, counted)
    for kind in KINDS:
        for number in (0, 0, 1, 2, 3):
            world.step((kind, "a", "upsert", number))
        world.step((kind, "a", "delete", 0))
    assert reached
