"""Law of churn: after a year in which every name is new, memory has not grown and pods cost no more calls."""

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

from benchmarks.churn import ChurnRun
from scheduler_core.runtime import profile_table
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


def count_objects(*roots: object) -> Counter[str]:
    """Count the reachable objects by type, with entries of containers and bytes of arrays.

    Numbers, modules, types and globals of functions are left out, because all schedulers share them.

    Args:
        roots: Objects to start from.
    """
    gc.collect()
    seen: dict[int, object] = {}
    pending = list(roots)
    counts: Counter[str] = Counter()
    while pending:
        obj = pending.pop()
        if id(obj) in seen or isinstance(obj, _SHARED):
            continue
        seen[id(obj)] = obj
        counts[type(obj).__name__] += 1
        if isinstance(obj, np.ndarray) and obj.base is None:
            counts["bytes of arrays"] += obj.nbytes
        if isinstance(obj, (dict, list, set, frozenset, tuple, deque)):
            counts[f"entries of {type(obj).__name__}"] += len(obj)
        if isinstance(obj, types.FunctionType):
            pending += [obj.__closure__, obj.__defaults__, obj.__kwdefaults__]
        else:
            pending += gc.get_referents(obj)
    return counts


TINY_BOUNDS = replace(TINY.snapshot, resources=3)
MONTHS = 12
MONTH_OF_FULL_TABLES = 5
"""Month by which all tables are full."""


async def _year(options: SchedulerOptions) -> tuple[list[Counter[str]], list[float]]:
    """Return the objects of the scheduler after each month, and the function calls per attempt in that month."""
    clock = VirtualClock()
    run = ChurnRun(clock, nodes=6, pods=20, options=options)
    counts, calls = [], []
    for _ in range(MONTHS):
        profiler = cProfile.Profile()
        with profiler:
            attempts = await run.month()
        clock.advance(3600.0)
        total: int = pstats.Stats(profiler).total_calls  # type: ignore[attr-defined] # typeshed does not name it
        calls.append(total / attempts)
        counts.append(count_objects(run.scheduler))
    run.close()
    return counts, calls


def test_objects_do_not_grow_in_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of objects of each type and the bytes of arrays do not grow after all tables are full."""
    monkeypatch.setattr(profile_table, "MOST_SERVED_BEFORE", 3)
    counts, _ = asyncio.run(_year(SchedulerOptions(bounds=TINY_BOUNDS, reuses_results=False)))
    growing = {
        name: [month[name] for month in counts]
        for name in counts[-1]
        if counts[-1][name]
        > max(month[name] for month in counts[MONTH_OF_FULL_TABLES - 2 : MONTH_OF_FULL_TABLES + 1]) + 2
    }
    assert growing == {}


@pytest.mark.parametrize("reuses_results", [True, False])
def test_function_calls_per_pod_do_not_grow_in_a_year(*, reuses_results: bool) -> None:
    """The number of function calls per attempt does not grow, with bounds of real size."""
    _, calls = asyncio.run(_year(SchedulerOptions(reuses_results=reuses_results)))
    assert calls[-1] <= 1.02 * max(calls[2:MONTH_OF_FULL_TABLES])
