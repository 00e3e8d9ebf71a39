"""Preemption decides the same with stored outcomes of rows and without them.

Pods of a few classes preempt one after the other in small clusters. Between two attempts pods start, are labelled,
deleted or added, budgets and nodes change, and preemptors are bound, so that stored outcomes become outdated. Where
pods preempt for devices, pods share claims and are deleted before or with the allocation of their claims.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.equivalence import ReuseBounds, RowResults
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from tests.support.builders import node, pod
from tests.support.device_preemption import held, holder, pending
from tests.support.devices import claim, device, device_class, exactly, slice_of, using, with_group, with_reserved
from tests.support.gang_devices import report
from tests.support.gang_preemption import small_node
from tests.support.preemption import budget, count_reads, started
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig

_STEPS = 60
_NODES = 8


def _with_status(known: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, **fields))


class _World:
    """Two schedulers that receive the same events, one of which stores outcomes."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        bounds = ReuseBounds(row_results=draw.choice([1, 4]))
        self.rigs = [
            default_rig(options=SchedulerOptions(reuses_results=reuses, reuse_bounds=bounds))
            for reuses in (True, False)
        ]
        self.running: dict[str, Pod] = {}
        self.made = 0
        self.start_rate = draw.choice([0, 0.6, 1, 1])
        for number in range(_NODES):
            self.each_node(number)
            for _ in range(draw.randint(1, 4)):
                self.start_pod(number)

    def each_node(self, number: int) -> None:
        cpu = self.draw.choice(["4", "4", "4", "2"])
        for made in self.rigs:
            made.add(node(f"n{number}", allocatable={"cpu": cpu, "pods": "9"}))

    def start_pod(self, number: int) -> None:
        self.made += 1
        name = f"running-{self.made}"
        found = pod(
            name,
            node_name=f"n{number}",
            priority=self.draw.choice([0, 0, 1]),
            labels={"app": self.draw.choice("ab")},
            requests={"cpu": self.draw.choice(["500m", "1", "2"])},
        )
        if self.draw.random() < self.start_rate:
            found = _with_status(found, start_time=self.some_time())
        self.running[name] = found
        for made in self.rigs:
            made.add(found)

    def some_time(self) -> datetime:
        """Return a time near now; clocks of nodes may be ahead."""
        return self.rigs[0].clock.wall() + timedelta(seconds=self.draw.randint(-90, 60))

    def change(self) -> None:
        """Change a pod, a node or a budget."""
        kinds = ["start", "label", "delete", "add", "budget", "node"]
        kind = self.draw.choices(kinds, [6, 3, 2, 6, 1, 0.3])[0]
        if kind == "add":
            self.start_pod(self.draw.randrange(_NODES))
        elif kind == "node":
            self.each_node(self.draw.randrange(_NODES))
        elif kind == "budget":
            found = budget("b", {"app": self.draw.choice("ab")}, self.draw.randint(0, 2))
            for made in self.rigs:
                made.columns.disruption_budgets.assign(found)
        elif self.running:
            self.change_pod(kind, self.draw.choice(sorted(self.running)))

    def change_pod(self, kind: str, name: str) -> None:
        old = self.running[name]
        if kind == "delete":
            del self.running[name]
            for made in self.rigs:
                made.scheduler.feed.pod_deleted(old)
            return
        if kind == "label":
            labels = {"app": self.draw.choice("ab")}
            new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=labels))
        else:
            new = _with_status(old, start_time=self.some_time())
        self.running[name] = new
        for made in self.rigs:
            made.scheduler.feed.pod_updated(old, new)

    async def preempt(self) -> None:
        """Attempt a new pod, whose victims may be deleted at once or later."""
        self.made += 1
        for made in self.rigs:
            made.clock.advance(10)
        preemptor = pod(
            f"preemptor-{self.made}", priority=self.draw.choice([5, 5, 5, 1]), requests={"cpu": self.draw.choice("113")}
        )
        for made in self.rigs:
            made.add(preemptor)
            await made.attempt()
        if self.draw.random() < 0.7:
            for name in [each.name for each in self.rigs[0].writer.deletions if each.name in self.running]:
                self.change_pod("delete", name)
        if self.draw.random() < 0.7:
            # It was bound elsewhere, or is deleted: it is nominated no longer.
            for made in self.rigs:
                made.scheduler.feed.pod_deleted(preemptor)

    def written(self, made: Rig) -> object:
        writer = made.writer
        patches = [(each.name, each.nominated_node_name, each.condition) for each in writer.patches]
        return [(each.name, each.uid) for each in writer.deletions], patches, made.bound


@pytest.mark.parametrize("seed", range(25))
async def test_stored_outcomes_change_no_decision(seed: int) -> None:
    """Both write the same after each step."""
    world = _World(random.Random(seed))
    for _ in range(_STEPS):
        if world.draw.random() < 0.5:
            world.change()
        await world.preempt()
        first, second = map(world.written, world.rigs)
        assert first == second
    for made in world.rigs:
        made.queue.close()


async def test_outcomes_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds above read outcomes, and find some of them outdated."""
    found = count_reads(monkeypatch)
    for seed in range(4):
        await test_stored_outcomes_change_no_decision(seed)
    assert found[True] > 50
    assert found[False] > 3


# -- preemption for devices --------------------------------------------------------------------------------------------


_DEVICE_STEPS = 30
_DEVICE_NODES = tuple(f"n{number}" for number in range(14))


def _served(*, reuses: bool, bounds: ReuseBounds) -> tuple[Rig, RecordingClaimWriter]:
    writer = RecordingClaimWriter()
    options = SchedulerOptions(reuses_results=reuses, reuse_bounds=bounds)
    made = default_rig(options=options, ports=SchedulerPorts(claims=writer), serve=False)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=PreemptionSettings(devices=True)))
    made.columns.devices.assign(device_class())
    return made, writer


class _DeviceWorld:
    """Two schedulers that receive the same events, one of which stores outcomes.

    Attributes:
        devices: Number of devices by node.
        holders: Running pods with claims, by name; each has a device by a claim ``of-<name>``, or shares one.
        used: Node and number of the device of each claim of theirs, by name.
    """

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        bounds = ReuseBounds(row_results=draw.choice([1, 4]))
        self.parts = [_served(reuses=reuses, bounds=bounds) for reuses in (True, False)]
        self.devices: dict[str, int] = {}
        self.holders: dict[str, Pod] = {}
        self.used: dict[str, tuple[str, int]] = {}
        self.made = 0
        for name in _DEVICE_NODES:
            self.report(small_node(name, 8))
            self.change_devices(name)
            for _ in range(self.devices[name]):
                self.start(name)

    def report(self, *objects: Node | ResourceSlice | ResourceClaim | Pod) -> None:
        for made, writer in self.parts:
            report(made, writer, *objects)

    def change_devices(self, name: str) -> None:
        self.devices[name] = self.draw.randint(2, 4)
        self.report(slice_of([device(f"d{number}") for number in range(self.devices[name])], node=name))

    def start(self, name: str) -> None:
        """Start a pod on a free device of a node, or one that shares a claim there."""
        self.made += 1
        pod_name = f"h{self.made}"
        taken = {number for node, number in self.used.values() if node == name}
        free = [number for number in range(self.devices[name]) if number not in taken]
        here = [each for each, (node, _) in self.used.items() if node == name]
        labels = {"app": self.draw.choice("ab")}
        if free and not (here and self.draw.random() < 0.2):
            claim_name = f"of-{pod_name}"
            self.used[claim_name] = name, free[0]
            of_pod = held(claim_name, f"d{free[0]}", pod_name, pool=name)
            self.report(with_group(of_pod, "train") if self.draw.random() < 0.1 else of_pod)
        elif here:
            claim_name = self.draw.choice(here)
            self.change_claim(claim_name, lambda old: with_reserved(old, *self.consumers(old), pod_name))
        else:
            return
        found = holder(pod_name, name, claim_name, priority=self.draw.choice((0, 0, 1)))
        found = replace(found, metadata=replace(found.metadata, labels=labels))
        if self.draw.random() < 0.7:
            found = replace(found, status=replace(found.status, start_time=started(self.draw.randint(0, 9))))
        self.holders[pod_name] = found
        self.report(found)

    @staticmethod
    def consumers(of: ResourceClaim) -> list[str]:
        return [each.uid for each in of.status.reserved_for if each.resource == "pods"]

    def change_claim(self, name: str, change: Callable[[ResourceClaim], ResourceClaim]) -> None:
        for made, writer in self.parts:
            old = writer.claims[f"ns/{name}"]
            made.scheduler.device_feed.updated(old, writer.store(change(old)))

    def delete(self, name: str) -> None:
        pod = self.holders.pop(name)
        for made, _ in self.parts:
            made.scheduler.feed.pod_deleted(pod)

    def end_claims(self) -> None:
        """Deallocate claims whose pods are all gone, as kube-controller-manager does later."""
        for name in list(self.used):
            stored = self.parts[0][1].claims[f"ns/{name}"]
            consumers = self.consumers(stored)
            if consumers and not any(each in self.holders for each in consumers) and self.draw.random() < 0.7:
                del self.used[name]
                self.change_claim(name, lambda old: replace(old, status=ResourceClaimStatus()))

    def change(self) -> None:
        kind = self.draw.choices(("start", "status", "delete", "devices", "budget", "node"), (6, 3, 1, 0.3, 0.5, 0.2))[
            0
        ]
        name = self.draw.choice(_DEVICE_NODES)
        if kind == "start":
            self.start(name)
        elif kind == "devices":
            self.change_devices(name)
        elif kind == "node":
            self.report(small_node(name, 8))
        elif kind == "budget":
            found = budget("b", {"app": self.draw.choice("ab")}, self.draw.randint(0, 2), namespace="ns")
            for made, _ in self.parts:
                made.columns.disruption_budgets.assign(found)
        elif self.holders:
            chosen = self.draw.choice(sorted(self.holders))
            if kind == "delete":
                self.delete(chosen)
                return
            old = self.holders[chosen]
            new = replace(old, status=replace(old.status, start_time=started(self.draw.randint(0, 9))))
            self.holders[chosen] = new
            for made, _ in self.parts:
                made.scheduler.feed.pod_updated(old, new)

    async def preempt(self) -> None:
        """Attempt a new pod, whose victims may be deleted at once or later."""
        self.made += 1
        name, count = f"p{self.made}", self.draw.choice((1, 1, 1, 2))
        wanted = claim(exactly("r", count=count), name=name)
        preemptor = using(pending(name, priority=self.draw.choice((5, 5, 5, 1))), name)
        self.report(wanted, preemptor)
        for made, _ in self.parts:
            made.clock.advance(10)
            await made.attempt()
        if self.draw.random() < 0.7:
            for each in [each.name for each in self.parts[0][0].writer.deletions if each.name in self.holders]:
                self.delete(each)
        self.end_claims()
        in_use = Counter(node for node, _ in self.used.values())
        for each in _DEVICE_NODES:
            if in_use[each] < self.devices[each]:
                self.start(each)
        if self.draw.random() < 0.8:
            # It is deleted, and its claim with it.
            for made, writer in self.parts:
                made.scheduler.feed.pod_deleted(preemptor)
                made.scheduler.device_feed.deleted(writer.claims[f"ns/{name}"])

    @staticmethod
    def written(made: Rig) -> object:
        writer = made.writer
        patches = [(each.name, each.nominated_node_name, each.condition) for each in writer.patches]
        return [(each.name, each.uid) for each in writer.deletions], patches, made.bound


@pytest.mark.parametrize("seed", range(12))
async def test_stored_outcomes_of_devices_change_no_decision(seed: int) -> None:
    """Both write the same after each step."""
    world = _DeviceWorld(Random(seed))
    for _ in range(_DEVICE_STEPS):
        for _ in range(world.draw.choice((0, 0, 1, 2))):
            world.change()
        await world.preempt()
        first, second = (world.written(made) for made, _ in world.parts)
        assert first == second
    for made, _ in world.parts:
        made.queue.close()


async def test_outcomes_of_devices_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds above read outcomes."""
    found = count_reads(monkeypatch, of_devices=True)
    for seed in range(4):
        await test_stored_outcomes_of_devices_change_no_decision(seed)
    assert found[True] > 50


async def test_rows_that_do_not_become_outdated_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that outcomes are used again although devices or pods of the row have changed."""
    monkeypatch.setattr(RowResults, "refresh", lambda *_: True)

    async def run_all() -> None:
        for seed in range(12):
            await test_stored_outcomes_of_devices_change_no_decision(seed)

    with pytest.raises(AssertionError):
        await run_all()
