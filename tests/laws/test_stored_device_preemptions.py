"""Preemption for devices decides the same with stored outcomes of rows and without them.

Pods of a few classes preempt one after the other in small clusters. Between two attempts pods start, share claims, are
deleted before or with the allocation of their claims, devices and budgets change, and preemptors are bound, so that
stored outcomes become outdated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.equivalence import ReuseBounds, RowResults
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from tests.support.device_preemption import held, holder, pending
from tests.support.devices import claim, device, device_class, exactly, slice_of, using, with_group, with_reserved
from tests.support.gang_devices import report
from tests.support.gang_preemption import small_node
from tests.support.preemption import budget, count_reads, started
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig

_STEPS = 30
_NODES = tuple(f"n{number}" for number in range(14))


def _served(*, reuses: bool, bounds: ReuseBounds) -> tuple[Rig, RecordingClaimWriter]:
    writer = RecordingClaimWriter()
    options = SchedulerOptions(reuses_results=reuses, reuse_bounds=bounds)
    made = default_rig(options=options, ports=SchedulerPorts(claims=writer), serve=False)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=PreemptionSettings(devices=True)))
    made.columns.devices.assign(device_class())
    return made, writer


class _World:
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
        for name in _NODES:
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
        name = self.draw.choice(_NODES)
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
        for each in _NODES:
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
async def test_stored_outcomes_change_no_decision(seed: int) -> None:
    """Both write the same after each step."""
    world = _World(Random(seed))
    for _ in range(_STEPS):
        for _ in range(world.draw.choice((0, 0, 1, 2))):
            world.change()
        await world.preempt()
        first, second = (world.written(made) for made, _ in world.parts)
        assert first == second
    for made, _ in world.parts:
        made.queue.close()


async def test_outcomes_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds above read outcomes."""
    found = count_reads(monkeypatch, of_devices=True)
    for seed in range(4):
        await test_stored_outcomes_change_no_decision(seed)
    assert found[True] > 50


async def test_rows_that_do_not_become_outdated_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law finds that outcomes are used again although devices or pods of the row have changed."""
    monkeypatch.setattr(RowResults, "refresh", lambda *_: True)

    async def run_all() -> None:
        for seed in range(12):
            await test_stored_outcomes_change_no_decision(seed)

    with pytest.raises(AssertionError):
        await run_all()
