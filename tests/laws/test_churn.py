"""The law of churn: a year in which every name is new leaves nothing behind, and pods cost what they cost before."""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import types
from collections import Counter, deque

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.churn_life import ChurnLife
from scheduler_core.scheduler import SchedulerOptions
from tests.laws.twins.twin import TINY
from tests.support.virtual_clock import VirtualClock

_SHARED = (
    int,
    float,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.GenericAlias,
)


def census(*roots: object) -> Counter[str]:
    """Count the objects that are reachable, by the name of their type.

    Args:
        roots: Where to begin.

    Returns:
        With entries of containers and bytes of arrays. Numbers are left out, and modules, types and the globals of
        functions, which all instances share.
    """
    gc.collect()
    seen: dict[int, object] = {}
    waiting = list(roots)
    counts: Counter[str] = Counter()
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen[id(found)] = found
        counts[type(found).__name__] += 1
        if isinstance(found, np.ndarray) and found.base is None:
            counts["bytes of arrays"] += found.nbytes
        if isinstance(found, (dict, list, set, frozenset, tuple, deque)):
            counts[f"entries of {type(found).__name__}"] += len(found)
        if isinstance(found, types.FunctionType):
            waiting += [found.__closure__, found.__defaults__, found.__kwdefaults__]
        else:
            waiting += gc.get_referents(found)
    return counts


THREE = replace(TINY.snapshot, resources=3)
MONTHS = 12
FULL = 5
"""Month by which all tables are as full as they get."""


async def _year(options: SchedulerOptions) -> tuple[list[Counter[str]], list[float]]:
    """Objects that the scheduler holds after each month, and calls for a pod that is tried."""
    clock = VirtualClock()
    life = ChurnLife(clock, nodes=6, pods=20, options=options)
    held, calls = [], []
    for _ in range(MONTHS):
        profiler = cProfile.Profile()
        with profiler:
            tried = await life.month()
        clock.advance(3600.0)
        total: int = pstats.Stats(profiler).total_calls  # type: ignore[attr-defined] # typeshed does not name it
        calls.append(total / tried)
        held.append(census(life.scheduler))
    life.close()
    return held, calls


def test_a_year_leaves_nothing_behind() -> None:
    """Objects of every type, and bytes of arrays."""
    held, _ = asyncio.run(_year(SchedulerOptions(bounds=THREE, reuses_results=False)))
    grown = {
        name: [month[name] for month in held]
        for name in held[-1]
        if held[-1][name] > max(month[name] for month in held[FULL - 2 : FULL + 1]) + 2
    }
    assert grown == {}


@pytest.mark.parametrize("remembers", [True, False])
def test_pods_cost_the_same_after_a_year(*, remembers: bool) -> None:
    """Measured in function calls, with tables of real size."""
    _, calls = asyncio.run(_year(SchedulerOptions(reuses_results=remembers)))
    assert calls[-1] <= 1.02 * max(calls[2:FULL])
