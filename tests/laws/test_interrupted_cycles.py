"""An exception at any call of the cycle of a pod or a gang: it is in the queue afterwards, and it is bound later."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
)
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupSource
from tests.simulation.gang_invariants import gang_entry_problems
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, members
from tests.support.injected_errors import KINDS, InjectedErrors, Site
from tests.support.scheduling import Rig, rig

_COUNT = 3
_ROUNDS = 50
"""Turns of the event loop in which everything is bound, of a second each."""
_ROOTS = frozenset(
    ("gangs/group_cycle.py:GangScheduler.schedule", "cycle/scheduling_cycle.py:SchedulingCycle.schedule")
)
_ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _gang() -> Rig:
    made = rig(groups=[GroupSource.BAYPLAN])
    made.add(node("a"), node("b"))
    made.scheduler.group_feed.group_changed(group(min_member=_COUNT))
    made.add(*members(_COUNT))
    return made


def _pods() -> Rig:
    """Return a scheduler with pods of which the plugins read much; the first one is attempted with an exception."""
    made = rig(defaults=default_plugins())
    made.add(*(node(name, labels={_ZONE: name}, images={"web": 100}) for name in ("a", "b")))
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
