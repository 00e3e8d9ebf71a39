"""Laws of exceptions at any call.

Of a feed: the change is repeated, and nothing that cycles read differs afterwards.

A small cluster in which every kind of object is added, changed and deleted is reported to a scheduler. One exception is
raised at one call between functions of the scheduler, wherever that is: in a feed, the queue, the columns, their
indexes, or the devices. The change is then delivered again, as informers do. At the end all sums, indexes and places in
the queue are those of a scheduler that received only the last version of each object.

An exception at any call of the cycle of a pod or a gang: it is in the queue afterwards, and it is bound later.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bayplan.kube.watches.undelivered_changes import UndeliveredChanges
from msgspec.structs import replace

from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup
from scheduler_core.model.selectors import PodQuery, compile_label_selector
from scheduler_core.model.workloads import (
    LabelPairsSpec,
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    Service,
)
from tests.simulation.cache_comparison import cache_differences
from tests.simulation.gang_invariants import gang_entry_problems
from tests.support import devices as device_objects
from tests.support import storage
from tests.support.builders import node, pod
from tests.support.gangs import composite_group, gang_of, group, leaf_group, member, members
from tests.support.injected_errors import KINDS, InjectedErrors, Site
from tests.support.scheduling import Rig, default_rig, rig

Change = tuple[Any, Any]
"""The version before and the new one; None for an object that does not exist."""

_ZONE, _DRIVER = "topology.kubernetes.io/zone", "csi.example.com"
_SAMPLE = 40
"""One call in so many is interrupted in `make test`."""


def _shown(of: Any, version: int) -> Any:
    uid = of.metadata.uid or f"uid-of-{_key(of)}"
    return replace(of, metadata=replace(of.metadata, uid=uid, resource_version=str(version)))


def _apart() -> Affinity:
    term = PodAffinityTerm(label_selector=LabelSelector({"app": "web"}), topology_key=_ZONE)
    return Affinity(pod_affinity=PodAffinity((term,)), pod_anti_affinity=PodAffinity((term,)))


def _changes() -> list[Change]:
    """Return a lifetime: every object is added, most are changed, and many are deleted."""
    a = node("a", labels={_ZONE: "1"}, taints=["x=y:NoSchedule"], images={"web": 100}, allocatable=_sizes(gpus=2))
    b = node("b", labels={_ZONE: "2"}, images={"web": 100, "db": 50}, allocatable=_sizes(fpgas=1))
    web = pod("web", labels={"app": "web"}, ports=[80], requests={"cpu": "1"}, affinity=_apart(), priority=5)
    data = pod("data", namespace="ns", volumes=storage.mounts("data"), requests={"example.com/gpu": 1}, node_name="a")
    data = device_objects.using(data, "held")
    volume = storage.volume("pv", csi=(_DRIVER, "handle"), storage_class="fast")
    claim = storage.claim("data", namespace="ns", storage_class="fast")
    held = device_objects.allocated_claim({"device": "d0", "pool": "a"})
    slices = [
        device_objects.slice_of([device_objects.device(f"d{n}") for n in range(2)], node=name, name=f"slice-{name}")
        for name in ("a", "b")
    ]
    rule = device_objects.taint_rule(
        "rule", {"key": "broken", "effect": "NoSchedule"}, {"driver": device_objects.DRIVER}
    )
    service = Service(ObjectMeta(name="web", namespace="default"), LabelPairsSpec({"app": "web"}))
    budget = PodDisruptionBudget(
        ObjectMeta(name="web", namespace="default"), PodDisruptionBudgetSpec(LabelSelector({"app": "web"}))
    )
    space = Namespace(ObjectMeta(name="default", labels={"team": "one"}))
    ended = replace(web, status=replace(web.status, phase="Succeeded"))
    return _versions(
        [
            (None, data),
            (None, space),
            (None, service),
            (None, storage.storage_class("fast", _DRIVER)),
            (None, claim),
            (None, volume),
            (None, storage.csi_node("a", {_DRIVER: 2})),
            (None, storage.attachment("attached", _DRIVER, "a", "pv")),
            (None, a),
            (None, device_objects.device_class("gpu")),
            (None, slices[0]),
            (None, held),
            (None, rule),
            (None, b),
            (None, slices[1]),
            (None, web),
            (web, replace(web, spec=replace(web.spec, node_name="b"))),
            (None, pod("gated", gates=["later"])),
            (None, group(min_member=2)),
            (None, member("one")),
            (None, member("two", node_name="a", labels={"app": "web"}, ports=[80])),
            (None, composite_group("root")),
            (None, leaf_group("leaf", "root")),
            (None, pod("leaf", group="leaf")),
            (None, group("pair")),
            (None, group("solo", min_member=1)),
            (None, member("p1", "pair")),
            (None, member("p2", "pair")),
            (None, budget),
            (None, storage.capacity("room", "fast", "10Gi", on={_ZONE: "1"})),
            (claim, storage.claim("data", namespace="ns", storage_class="fast", volume="pv")),
            (volume, storage.volume("pv", csi=(_DRIVER, "handle"), storage_class="fast", claim_ref="ns/data")),
            (service, Service(service.metadata, LabelPairsSpec({"app": "db"}))),
            (space, Namespace(ObjectMeta(name="default", labels={"team": "two"}))),
            (a, node("a", labels={_ZONE: "2"}, images={"db": 50}, allocatable=_sizes(fpgas=3), unschedulable=True)),
            (held, device_objects.allocated_claim({"device": "d1", "pool": "a"})),
            (slices[1], device_objects.slice_of([device_objects.device("d7")], node="a", name="slice-b", pool="b")),
            (member("one"), replace(member("one"), spec=replace(member("one").spec, node_name="b"))),
            (data, _relabelled(data)),
            (group(min_member=2), group(min_member=3)),
            (_relabelled(data), None),
            (rule, None),
            (replace(web, spec=replace(web.spec, node_name="b")), _on(ended, "b")),
            (composite_group("root"), None),
            (held, None),
            (slices[1], None),
            (budget, None),
            (member("p2", "pair"), None),
            (None, member("p3", "pair")),
            (member("p3", "pair"), member("p3", "solo")),
            (b, None),
            (storage.attachment("attached", _DRIVER, "a", "pv"), None),
            (service, None),
            (None, node("c", labels={_ZONE: "3"}, allocatable=_sizes(gpus=1))),
            (None, pod("late", node_name="c", deleted=datetime(2026, 1, 1, tzinfo=UTC), affinity=_apart())),
            (pod("gated", gates=["later"]), pod("gated", requests={"example.com/gpu": 1})),
            (group(min_member=3), None),
        ]
    )


def _sizes(**extended: int) -> dict[str, str | int]:
    return {
        "cpu": "4",
        "memory": "16Gi",
        "pods": "110",
        **{f"example.com/{name[:-1]}": n for name, n in extended.items()},
    }


def _relabelled(of: Any) -> Any:
    return replace(of, metadata=replace(of.metadata, labels={"app": "web", "tier": "front"}))


def _on(of: Any, node_name: str) -> Any:
    return replace(of, spec=replace(of.spec, node_name=node_name))


def _versions(changes: list[Change]) -> list[Change]:
    """Give each version a resource version, and each change the version before."""
    known: dict[str, Any] = {}
    found = []
    for number, (old, new) in enumerate(changes, 1):
        key = _key(old if new is None else new)
        before, after = known.pop(key, None), new
        if new is not None:
            after = known[key] = new if isinstance(new, PodGroup | CompositePodGroup) else _shown(new, number)
        found.append((before, after))
    return found


def _key(of: Any) -> str:
    if isinstance(of, PodGroup | CompositePodGroup):
        return f"{type(of).__name__}/{of.key}"
    return f"{type(of).__name__}/{of.metadata.namespace}/{of.metadata.name}"


def _scheduler() -> Rig:
    made = default_rig(groups=GroupSource)
    made.scheduler.device_feed.withhold("")
    return made


@dataclass
class Reported:
    """A scheduler to which changes are reported as informers do.

    Attributes:
        known: The last version of each object.
        undelivered: Changes that were not handled, by kind.
    """

    made: Rig = field(default_factory=_scheduler)
    known: dict[str, Any] = field(default_factory=dict)
    undelivered: dict[str, UndeliveredChanges[Any]] = field(default_factory=dict)

    def report(self, change: Change) -> None:
        old, new = change
        shown = old if new is None else new
        key = _key(shown)
        if new is None:
            self.known.pop(key, None)
        else:
            self.known[key] = new
        if isinstance(shown, PodGroup | CompositePodGroup):
            self._report_group(old, new)
            return
        kind = type(shown).__name__
        if kind not in self.undelivered:
            sink = self._sink(kind)
            self.undelivered[kind] = UndeliveredChanges(kind, sink, (self.known, {}), self.made.clock, None)
        self.undelivered[kind].deliver(key, old, new)

    def _report_group(self, old: Any, new: Any) -> None:
        feed = self.made.scheduler.group_feed
        handle: Callable[[], None] = (
            (lambda: feed.group_deleted(old.key)) if new is None else lambda: feed.group_changed(new)
        )
        try:
            handle()
        except Exception:  # noqa: BLE001 - any exception
            handle()

    def _sink(self, kind: str) -> Any:
        scheduler = self.made.scheduler
        if kind in ("Pod", "Node"):
            feed, name = scheduler.feed, kind.lower()
            methods = [getattr(feed, f"{name}_{verb}") for verb in ("added", "updated", "deleted")]
        else:
            of_devices = kind in ("ResourceClaim", "DeviceClass", "ResourceSlice", "DeviceTaintRule")
            of_workloads = kind in ("Namespace", "Service", "PodDisruptionBudget")
            other: Any = scheduler.device_feed if of_devices else scheduler.storage_feed
            feed_of_kind = scheduler.workload_feed if of_workloads else other
            methods = [getattr(feed_of_kind, verb) for verb in ("added", "updated", "deleted")]
        return SimpleNamespace(on_add=methods[0], on_update=methods[1], on_delete=methods[2], on_synced=lambda: None)

    def settle(self) -> None:
        """Wait until every change has been handled."""
        self.made.clock.advance(2.0)
        # As the scheduler does periodically: it calls plugins of gates again that raised.
        self.made.queue.flush()
        assert not any(len(changes) for changes in self.undelivered.values())


def _read(made: Rig) -> None:
    """Let every table exist that is created on first use."""
    columns = made.columns
    for app in ("web", "db"):
        columns.pod_index.query(
            PodQuery(compile_label_selector(LabelSelector({"app": app})), frozenset(("default", "ns")))
        )
    columns.label_column(_ZONE)
    for name in columns.names:
        if name is not None:
            columns.devices.hardware.inventory.pools(name, {})


def _facts(made: Rig) -> dict[str, Any]:
    columns, queue = made.columns, made.queue
    inventory = columns.devices.hardware.inventory
    names = sorted(name for name in columns.names if name is not None)
    pools = {
        name: [
            (
                view.key,
                view.is_incomplete,
                view.names.names,
                [[taint.key for taint in record.taints] for record in view.records],
            )
            for view in inventory.pools(name, {})
        ]
        for name in names
    }
    free = {
        name: [known.volume.metadata.name for known in columns.storage.free_volumes(name)] for name in ("fast", "local")
    }
    images = {
        name: sorted(columns.names[row] or "" for row in state.rows)
        for name in ("web", "db")
        if (state := columns.images.get(name)) is not None
    }
    gangs = {str(gang.key): (gang.has_quorum, sorted(gang.pods), gang.group, gang.tree is None) for gang in queue.gangs}
    return {
        "places": sorted((each.uid, place) for place, each in queue.readings.places()),
        "gangs": gangs,
        "pools": pools,
        "budgets": len(columns.disruption_budgets),
        "default selector": repr(columns.workloads.default_selector(pod("x", labels={"app": "web"}))),
        "labels": columns.namespaces.get("default"),
        "free volumes": free,
        "held": len(columns.held),
        "images": images,
        "capacities": [each.metadata.name for each in columns.storage.capacities_of("fast")],
    }


def _problems(tested: Reported, fresh: Reported) -> list[str]:
    ours, reference = _facts(tested.made), _facts(fresh.made)
    found = [f"{key} is {ours[key]}, expected {reference[key]}" for key in reference if ours[key] != reference[key]]
    return [*found, *cache_differences(tested.made.context, fresh.made.context)]


def _run(errors: InjectedErrors | None) -> Reported:
    tested = Reported()
    for change in _changes():
        _read(tested.made)
        if errors is None:
            tested.report(change)
        else:
            with errors.active():
                tested.report(change)
        tested.made.clock.advance(0.5)
    tested.settle()
    return tested


def _fresh(tested: Reported) -> Reported:
    fresh = Reported()
    # Nodes after pods: pods of unknown nodes are counted when their node is added.
    for each in sorted(tested.known.values(), key=lambda each: type(each).__name__, reverse=True):
        fresh.report((None, each))
    _read(fresh.made)
    return fresh


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _failures(chosen: Callable[[int], bool]) -> list[str]:
    """Interrupt the chosen calls, one in each run, and return what differs afterwards."""
    counted = InjectedErrors(lambda _number, _site: None)
    fresh = _fresh(_run(counted))
    found = []
    for number in filter(chosen, range(1, counted.calls + 1)):
        kind = KINDS[number % len(KINDS)]
        errors = InjectedErrors(lambda call, _site, at=number, kind=kind: kind if call >= at else None, is_single=True)  # type: ignore[misc]
        problems = _problems(_run(errors), fresh)
        if problems:
            found.append(f"{errors.injected}: {problems[:3]}")
    return found


def test_without_exceptions() -> None:
    """The last versions give the same as all of them."""
    tested = _run(None)
    assert _problems(tested, _fresh(tested)) == []


@pytest.mark.parametrize("part", range(4))
def test_an_interrupted_change_is_completed(part: int) -> None:
    """One exception at a sample of the calls."""
    rng = random.Random(f"interrupted/{part}")
    assert _failures(lambda _: rng.random() < 1 / (4 * _SAMPLE)) == []


_NODE = node("a")
_HOLDING: dict[str, list[Change]] = {
    "node": [(None, _NODE), (_NODE, node("a", unschedulable=True))],
    "CSINode": [
        (None, storage.csi_node("a", {_DRIVER: 2})),
        (storage.csi_node("a", {_DRIVER: 2}), storage.csi_node("a", {_DRIVER: 1})),
    ],
    "VolumeAttachment": [
        (None, storage.volume("pv", csi=(_DRIVER, "handle"), storage_class="fast")),
        (None, storage.attachment("attached", _DRIVER, "a", "pv")),
    ],
    "pod": [(None, pod("there", node_name="a", requests={"cpu": "1"}))],
}
"""Changes of which the last one lets a node accept fewer pods."""


_BEFORE_THE_CHANGE = ("._node_updated", "._guarded", "._added", "._updated", "._assigned", "._pod_added_or_read")
"""Calls before anything of a change is handled: the same as a change that is delivered later."""


def _is_applied(tested: Reported, fresh: Reported) -> bool:
    """Return whether all that decisions depend on is as after the change; pods may wait for its event."""
    return not [each for each in _problems(tested, fresh) if not each.startswith("places")]


@pytest.mark.parametrize("changes", _HOLDING.values(), ids=_HOLDING)
def test_a_node_is_held_until_its_change_is_complete(changes: list[Change]) -> None:
    """One exception at each call of the last change: until it is delivered again, the node accepts no pods."""
    *before, last = _versions([(None, _NODE), *changes] if changes[0][1] is not _NODE else changes)

    def interrupted(number: int) -> tuple[Reported, InjectedErrors]:
        tested = Reported()
        for change in before:
            tested.report(change)
        _read(tested.made)
        errors = InjectedErrors(lambda call, _site: RuntimeError if call == number else None, is_single=True)
        with errors.active():
            tested.report(last)
        return tested, errors

    whole, counted = interrupted(0)
    held = 0
    for number in range(1, counted.calls + 1):
        tested, errors = interrupted(number)
        reason = tested.made.context.cache.columns.held.reason("a")
        held += bool(reason)
        if not errors.injected[0].site[0].endswith(_BEFORE_THE_CHANGE):
            assert reason or _is_applied(tested, whole), errors.injected
        tested.made.clock.advance(0.5)
        tested.settle()
        assert not tested.made.context.cache.columns.held.reason("a"), errors.injected
    assert held


def _pair() -> list[Change]:
    return [(None, node("a")), *((None, pod(name, group="leaf")) for name in ("one", "two"))]


_GATING: dict[str, tuple[list[Change], Change]] = {
    "a group is created": ([*_pair(), (None, composite_group("root"))], (None, leaf_group("leaf", "root"))),
    "a group requires more": (
        [*_pair(), (None, composite_group("root")), (None, leaf_group("leaf", "root", min_member=1))],
        (leaf_group("leaf", "root", min_member=1), leaf_group("leaf", "root", min_member=3)),
    ),
    "a group is deleted": (
        [*_pair(), (None, composite_group("root")), (None, leaf_group("leaf", "root"))],
        (leaf_group("leaf", "root"), None),
    ),
    "a parent is created": ([*_pair(), (None, leaf_group("leaf", "root"))], (None, composite_group("root"))),
    "a parent requires more": (
        [*_pair(), (None, composite_group("root")), (None, leaf_group("leaf", "root"))],
        (composite_group("root"), composite_group("root", min_groups=2)),
    ),
    "a parent is deleted": (
        [*_pair(), (None, composite_group("root")), (None, leaf_group("leaf", "root"))],
        (composite_group("root"), None),
    ),
}
"""Changes before, and a change of a group of the gang ``leaf``."""
_OF_GROUPS = ("._group_changed", "._composite_changed", "._group_deleted")


@pytest.mark.parametrize(("before", "last"), _GATING.values(), ids=_GATING)
def test_members_wait_until_the_change_of_their_group_is_complete(before: list[Change], last: Change) -> None:
    """One exception at each call of the last change: until it is delivered again, no member is to be popped."""

    def interrupted(number: int) -> tuple[Reported, InjectedErrors]:
        tested = Reported()
        for change in _versions(before):
            tested.report(change)
        feed, (old, new) = tested.made.scheduler.group_feed, last
        errors = InjectedErrors(lambda call, _site: RuntimeError if call == number else None, is_single=True)
        with errors.active(), suppress(RuntimeError):
            feed.group_deleted(old.key) if new is None else feed.group_changed(new)
        return tested, errors

    whole, counted = interrupted(0)
    gated = 0
    for number in range(1, counted.calls + 1):
        tested, errors = interrupted(number)
        if errors.injected[0].site[0].endswith(_OF_GROUPS):
            continue
        places = {uid: place for uid, place in _facts(tested.made)["places"] if place in ("active", "backoff")}
        is_gated = bool(tested.made.queue.gangs.interrupted)
        gated += is_gated
        assert not places if is_gated else _is_applied(tested, whole), errors.injected
        tested._report_group(*last)
        tested.settle()
        assert not _problems(tested, whole), errors.injected
    assert gated


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(10))
def test_every_call(part: int) -> None:
    """One exception at each call."""
    assert _failures(lambda number: number % 10 == part) == []


# -- cycles ------------------------------------------------------------------------------------------------------------


_COUNT = 3
_ROUNDS = 50
"""Turns of the event loop in which everything is bound, of a second each."""
_ROOTS = frozenset(
    ("gangs/group_cycle.py:GangScheduler.schedule", "cycle/scheduling_cycle.py:SchedulingCycle.schedule")
)


def _gang() -> Rig:
    made = rig(groups=[GroupSource.BAYPLAN])
    made.add(node("a"), node("b"))
    made.scheduler.group_feed.group_changed(group(min_member=_COUNT))
    made.add(*members(_COUNT))
    return made


def _pods() -> Rig:
    """Return a scheduler with pods of which the plugins read much; the first one is attempted with an exception."""
    made = default_rig(*(node(name, labels={_ZONE: name}, images={"web": 100}) for name in ("a", "b")))
    made.add(*(_web(f"web-{number}") for number in range(_COUNT)))
    return made


def _web(name: str) -> Pod:
    term = PodAffinityTerm(label_selector=LabelSelector({"app": "db"}), topology_key=_ZONE)
    return pod(
        name,
        labels={"app": "web"},
        requests={"cpu": "1", "memory": "1Gi"},
        ports=[80 + int(name[-1])],
        affinity=Affinity(pod_anti_affinity=PodAffinity((term,))),
        spread=[TopologySpreadConstraint(5, _ZONE, label_selector=LabelSelector({"app": "web"}))],
    )


async def _cycle(made: Rig, errors: InjectedErrors) -> QueuedPod:
    """Run one cycle, and start the binding cycles that follow."""
    queued, cycles = made.pop(), made.scheduler.cycles
    errors.arm()
    try:
        if isinstance(queued, QueuedGang):
            attempts = await cycles.gangs.schedule(queued)
        else:
            attempt = cycles.pods.schedule(queued)
            attempts = [] if attempt is None else [attempt]
    except Exception as fault:  # noqa: BLE001 - any exception
        sys.setprofile(None)
        cycles.errors.interrupted(queued, None, fault)
        attempts = []
    finally:
        sys.setprofile(None)
    for each in attempts:
        made.scheduler._start_binding(each)
    return queued


@pytest.mark.parametrize("begin", [_gang, _pods], ids=["gang", "pod"])
async def test_a_cycle_outlasts_an_exception_at_any_call(begin: Callable[[], Rig]) -> None:
    """One exception at the first call of each site, and one at the last."""
    first: dict[Site, int] = {}
    last: dict[Site, int] = {}

    def note(number: int, site: Site) -> None:
        first.setdefault(site, number)
        last[site] = number

    made = begin()
    await _cycle(made, InjectedErrors(note, _ROOTS))
    made.queue.close()
    assert len(first) > _COUNT
    for number in sorted({*first.values(), *last.values()}):
        kind = KINDS[number % len(KINDS)]
        errors = InjectedErrors(lambda call, _site, at=number, kind=kind: kind if call == at else None, _ROOTS)  # type: ignore[misc]
        made = begin()
        queued = await _cycle(made, errors)
        if isinstance(queued, QueuedGang):
            assert list(gang_entry_problems(gang_of(made), made.queue)) == [], errors.injected
        async with made.running():
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
                made.clock.advance(1.0)
        assert len(made.bound) == _COUNT, errors.injected
