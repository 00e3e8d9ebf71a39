"""Laws of memory.

After a year in which every name is new, memory has not grown and pods cost no more calls. Of all revisions of a
profile, only the live one stays in memory.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import types
import weakref
from collections import Counter, deque

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.churn import ChurnRun
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod import Pod
from scheduler_core.runtime import profile_table
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import SchedulerOptions
from tests.laws.twins.twin import TINY
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.scheduling import DEFAULT_NAME, Rig, gang_rig
from tests.support.tables import table
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


# -- revisions of a profile --------------------------------------------------------------------------------------------


_REVISIONS = 4
_PODS = 25
"""Number of pods, larger than the sampling interval of plugin timings."""


def _serve(world: Rig, number: int) -> weakref.ref[FrameworkInstance]:
    (instance,) = world.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, pod_max_backoff_seconds=10 + number))
    return weakref.ref(instance)


def _pods(revision: int) -> list[Pod]:
    placed = [pod(f"p{revision}-{each}", requests={"cpu": "10m"}, labels={"app": "x"}) for each in range(_PODS)]
    with_selector = [pod(f"s{revision}-{each}", node_selector={"zone": "ab"[each % 2]}) for each in range(_PODS)]
    too_large = pod(f"large{revision}", requests={"cpu": "99"})
    return [*placed, *with_selector, too_large, *members(4, f"g{revision}", requests={"cpu": "10m"})]


async def _decide_all(world: Rig) -> None:
    """Schedule, bind and confirm all pending pods."""
    while (queued := world.queue.pop()) is not None:
        if isinstance(queued, QueuedGang):
            attempts = await world.scheduler.cycles.gangs.schedule(queued)
        else:
            attempt = world.scheduler.cycles.pods.schedule(queued)
            attempts = [] if attempt is None else [attempt]
        bound = [(each.info.pod, each.node_name) for each in attempts]
        # Bind all at once, because members of a gang wait for each other.
        assert all(await asyncio.gather(*(world.scheduler.cycles.binding.bind(each) for each in attempts)))
        for old, node_name in bound:
            world.scheduler.feed.pod_updated(old, replace(old, spec=replace(old.spec, node_name=node_name)))


@table("reuses_results", ("reuse", True), ("no reuse", False))
async def test_only_the_live_revision_stays(*, reuses_results: bool) -> None:
    """A retired revision is freed although pods were scheduled, rejected and timed by it, also in gangs."""
    world = gang_rig(
        *(node(f"n{each}", labels={"zone": "ab"[each % 2]}) for each in range(6)),
        options=SchedulerOptions(reuses_results=reuses_results),
        serve=False,
    )
    served = []
    for revision in range(_REVISIONS):
        served.append(_serve(world, revision))
        world.scheduler.group_feed.group_changed(group(f"g{revision}", 4))
        world.add(*_pods(revision))
        await _decide_all(world)
        gc.collect()
        assert [reference() is not None for reference in served] == [*[False] * revision, True]
    assert len(world.bound) == _REVISIONS * (2 * _PODS + 4)
