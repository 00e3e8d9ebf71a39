"""Documents leave no trace: they change nothing that decisions, metrics or records read.

In simulated cluster lifetimes with faults, all documents of the running operator are built at random moments: explain,
status, page, metrics, and the commands that decide in memory what the operator decides (simulate, diff, explain without
an operator). Each leaves the state of the scheduler as it was, and the record of every process replays equally.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from bayplan.serving.deferred_server import Listener

from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup
from tests.simulation import operator_process
from tests.simulation.command_documents import command_documents
from tests.simulation.pod_groups import PodGroups
from tests.simulation.records import Records, replay_process
from tests.simulation.served_documents import ServedDocuments
from tests.simulation.simulation import Simulation, run_seed
from tests.support.scheduler_state import scheduler_state
from tests.support.tables import table

LOOKS = 8
"""Moments of a run at which all documents are built."""


class Observer:
    """Builds all documents at random moments of a run.

    Attributes:
        built: Number of documents by path without its query.
        failures: Changes of the state, and tracebacks of looks that failed.
        states: Numbers of looks by what existed: waiting pods, gangs, reservations, trees, nominations, devices.
    """

    def __init__(self, seed: int, listener: Listener) -> None:
        self._rng = random.Random(f"{seed}/documents")
        self._listener = listener
        self.built: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.failures: list[str] = []

    def __call__(self, simulation: Simulation) -> None:
        """Schedule the looks."""
        for _ in range(LOOKS):
            simulation.loop.call_later(1.0 + 60.0 * self._rng.random() ** 2, self._look_or_fail, simulation)

    def _look_or_fail(self, simulation: Simulation) -> None:
        try:
            self._look(simulation)
        except Exception:  # noqa: BLE001 - the event loop would only log it
            self.failures.append(traceback.format_exc())

    def _look(self, simulation: Simulation) -> None:
        process = simulation.supervisor.process
        scheduler = process.scheduler
        if process.is_over or not process.is_scheduling:
            return
        self._count(process)
        at = simulation.loop.virtual_now
        documents = ServedDocuments(process, lambda: at, self._listener, random.Random(self._rng.random()))
        before = scheduler_state(scheduler), random.getstate()
        for path in itertools.chain(documents.build(), command_documents(process, self._rng)):
            self.built[path.partition("?")[0]] += 1
            self.built.update(re.findall(r"&api=[^&]*", path))
            simulation.loop.virtual_now = at
            if process.ledger.requested:
                self.failures.append(f"{path} at {at:.3f} s left reservations: {process.ledger.requested}")
            after = scheduler_state(scheduler), random.getstate()
            differences = changed(before, after)
            if differences:
                self.failures.append(f"{path} at {at:.3f} s changed {'; '.join(differences)}")
            before = after

    def _count(self, process: operator_process.OperatorProcess) -> None:
        scheduler = process.scheduler
        queue = scheduler.context.queue
        self.states.update(
            waiting=bool(len(queue.readings)),
            gangs=any(gang.waiting for gang in queue.gangs),
            reservations=bool(scheduler.reservations.by_gang),
            trees=bool(queue.gangs.forest.trees),
            nominations=bool(len(queue.nominator)),
            devices=bool(list(scheduler.context.cache.columns.devices.claims)),
        )


def changed(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the paths of values that differ."""
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return [each for key in before for each in changed(before[key], after[key], f"{path}/{key}")]
    if isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        return [
            each
            for number, pair in enumerate(zip(before, after, strict=True))
            for each in changed(*pair, f"{path}/{_name(before, number)}")
        ]
    return [f"{path}: {before!r:.200} -> {after!r:.200}"]


def _name(values: list[Any] | tuple[Any, ...], number: int) -> str:
    """Return the name of an attribute, or the number of an item."""
    value = values[number]
    is_attribute = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return value[0] if is_attribute else str(number)


@pytest.fixture
def strict_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reserve nodes for gangs of the simulation that have failed for a second."""
    put, options_of = PodGroups.put, operator_process.core_options

    def put_strict(groups: PodGroups, group: PodGroup | CompositePodGroup) -> None:
        if isinstance(group, PodGroup) and group.key.source is GroupSource.BAYPLAN:
            group = dataclasses.replace(group, is_strict=True)
        put(groups, group)

    monkeypatch.setattr(PodGroups, "put", put_strict)
    monkeypatch.setattr(
        operator_process,
        "core_options",
        lambda options: msgspec.structs.replace(options_of(options), gang_reservation_seconds=1.0),
    )


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Return sockets of a server that accept no connection."""
    made = Listener(("127.0.0.1", 0))
    yield made
    made.close()


@pytest.mark.usefixtures("strict_gangs")
@table(
    "seed, contained",
    ("devices", 0, {"waiting", "devices"}),
    ("trees", 3, {"waiting", "gangs", "trees"}),
    ("shadow", 7, {"waiting", "nominations"}),
    ("contention-for-devices", 48, {"waiting", "devices", "nominations"}),
    ("preemption-under-way", 9, {"waiting", "gangs", "nominations"}),
    ("reservations", 89, {"waiting", "gangs", "reservations"}),
)
def test_documents_leave_no_trace(seed: int, contained: set[str], listener: Listener) -> None:
    """No document changes the state, whatever the cluster contains, and the record of each process replays equally."""
    observer, records = Observer(seed, listener), Records()
    outcome = run_seed(seed, records=records, observe=observer)
    # A problem ends the run, and with it the looks.
    assert outcome.problems == []
    assert observer.failures == []
    replays = [replay_process(process.content) for process in records.processes]
    assert [difference for _, difference in replays if difference is not None] == []
    assert min(observer.built.values()) > 0
    assert contained <= (+observer.states).keys()
