"""Preemption decides the same with stored outcomes of rows and without them.

Pods of a few classes preempt one after the other in small clusters. Between two attempts pods start, are labelled,
deleted or added, budgets and nodes change, and preemptors are bound, so that stored outcomes become outdated.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from scheduler_core.model.pod import Pod
from scheduler_core.runtime.equivalence import ReuseBounds
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.preemption import budget, count_reads
from tests.support.scheduling import Rig, default_rig

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
