"""Law of revisions: of all revisions of a profile, only the live one stays in memory."""

from __future__ import annotations

import asyncio
import gc
import weakref

from msgspec.structs import replace

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.scheduling import DEFAULT_NAME, Rig, rig
from tests.support.tables import table

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
    world = rig(
        defaults=default_plugins(),
        options=SchedulerOptions(reuses_results=reuses_results),
        serve=False,
        groups=[GroupSource.BAYPLAN],
    )
    world.add(*(node(f"n{each}", labels={"zone": "ab"[each % 2]}) for each in range(6)))
    served = []
    for revision in range(_REVISIONS):
        served.append(_serve(world, revision))
        world.scheduler.group_feed.group_changed(group(f"g{revision}", 4))
        world.add(*_pods(revision))
        await _decide_all(world)
        gc.collect()
        assert [reference() is not None for reference in served] == [*[False] * revision, True]
    assert len(world.bound) == _REVISIONS * (2 * _PODS + 4)
