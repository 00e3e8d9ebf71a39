"""Exceptions at the end of a scheduling cycle, after its pod was handed over or requeued."""

from __future__ import annotations

import pytest

from scheduler_core.cycle.background_search import BackgroundSearches
from tests.support.builders import node, pod
from tests.support.scheduling import rig


async def test_a_pod_is_bound_although_its_cycle_raises_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is not requeued while its binding cycle runs."""
    made = rig()
    made.add(node("n0"), pod("web"))

    def end(_self: BackgroundSearches) -> None:
        raise MemoryError

    monkeypatch.setattr(BackgroundSearches, "end", end)
    # As if the search of the cycle could continue in another process.
    made.context.steps.on_long_search = lambda: None
    async with made.running():
        await made.until(lambda: "web" in made.bound)
        assert made.queue.find(pod("web").metadata.uid) is None
    assert made.context.metrics.internal_errors == 0
