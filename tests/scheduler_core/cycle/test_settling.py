"""Bound pods that no watch confirms are read, and what is read decides."""

from __future__ import annotations

import pytest

from scheduler_core.cycle.settling import settle_overdue
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

WEB = pod("web", requests={"cpu": "3"})


async def bound() -> Rig:
    """A pod whose bind was answered 20 seconds ago."""
    made = rig(defaults=default_plugins())
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.clock.advance(20)
    return made


async def settle(made: Rig, after: float = 15.0) -> None:
    await settle_overdue(made.context, made.scheduler.feed, after)


@pytest.mark.parametrize(
    ("found", "assumed", "placed", "place"),
    [
        pytest.param(pod("web", requests={"cpu": "3"}, node_name="n0"), 0, 1, "", id="bound"),
        pytest.param(None, 0, 0, "", id="gone"),
        pytest.param(pod("web", uid="another"), 0, 0, "", id="another-pod"),
        pytest.param(WEB, 0, 0, "active", id="never-bound"),
        pytest.param(pod("web", node_name="n0", phase="Succeeded"), 0, 0, "", id="ended"),
    ],
)
async def test_what_is_read_decides(found: Pod | None, assumed: int, placed: int, place: str) -> None:
    """Confirmed, freed or scheduled again."""
    made = await bound()
    if found is not None:
        made.writer.pods["default/web"] = found
    await settle(made)
    assert made.context.cache.assumed_count == assumed
    assert made.context.cache.columns.pod_count.tolist() == [placed]
    assert made.place(WEB) == place


async def test_time_alone_decides_nothing() -> None:
    """A pod that cannot be read keeps its place, however late it is."""
    made = await bound()
    made.writer.read_failure = ServerUnavailableError("away")
    made.clock.advance(100_000)
    await settle(made)
    assert made.context.cache.columns.pod_count.tolist() == [1]


async def test_a_pod_that_is_not_late_is_not_read() -> None:
    """Reading costs a request."""
    made = await bound()
    await settle(made, after=25)
    assert made.context.cache.assumed_count == 1


async def test_a_place_that_is_given_back_wakes_others() -> None:
    """Who did not fit beside a bind that never happened is tried again."""
    made = await bound()
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    assert made.place(other) == "unschedulable"
    made.writer.pods["default/web"] = WEB
    await settle(made)
    assert made.place(other) == "backoff"
    made.queue.close()
