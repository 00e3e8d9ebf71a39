"""An exception at any call of a gang's cycle: its entry is in the queue while its quorum waits, and it is bound."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator

import pytest

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod_group import GroupSource
from tests.simulation.gang_invariants import gang_entry_problems
from tests.support.builders import node
from tests.support.gangs import gang_of, group, members
from tests.support.injected_errors import KINDS, InjectedErrors, Site
from tests.support.scheduling import Rig, rig

_COUNT = 3
_ROUNDS = 200
"""Turns of the event loop in which the gang is bound, of a quarter of a second each."""
_ROOTS = frozenset(("gangs/group_cycle.py:GangScheduler.schedule",))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def _cycle(errors: InjectedErrors) -> Rig:
    """Run the cycle of a gang that is feasible, and start the binding cycles of its members."""
    made = rig(groups=[GroupSource.BAYPLAN])
    made.add(node("a"), node("b"))
    made.scheduler.group_feed.group_changed(group(min_member=_COUNT))
    made.add(*members(_COUNT))
    queued = made.queue.pop()
    assert isinstance(queued, QueuedGang)
    cycles = made.scheduler.cycles
    errors.arm()
    try:
        attempts = await cycles.gangs.schedule(queued)
    except Exception as fault:  # noqa: BLE001 - any exception
        sys.setprofile(None)
        cycles.errors.interrupted(queued, None, fault)
        attempts = []
    finally:
        sys.setprofile(None)
    for each in attempts:
        made.scheduler._start_binding(each)
    return made


async def test_a_gang_outlasts_an_exception_at_any_call() -> None:
    """One exception at the first call of each site, and one at the last."""
    first: dict[Site, int] = {}
    last: dict[Site, int] = {}

    def note(number: int, site: Site) -> None:
        first.setdefault(site, number)
        last[site] = number

    made = await _cycle(InjectedErrors(note, _ROOTS))
    made.queue.close()
    assert any("QuorumCommit" in caller for _, caller, _ in first)
    for number in sorted({*first.values(), *last.values()}):
        kind = KINDS[number % len(KINDS)]
        errors = InjectedErrors(lambda call, _site, at=number, kind=kind: kind if call == at else None, _ROOTS)  # type: ignore[misc]
        made = await _cycle(errors)
        gang = gang_of(made)
        assert list(gang_entry_problems(gang, made.queue)) == [], errors.injected
        async with made.running():
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)
                made.clock.advance(0.25)
        assert len(made.bound) == _COUNT, errors.injected
