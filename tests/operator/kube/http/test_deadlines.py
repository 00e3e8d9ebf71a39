"""Tests of many deadlines with one timer."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.http.keep_alive_pool import Deadlines


async def test_the_nearest_comes_first() -> None:
    """A deadline that is nearer than earlier ones is in time, and the earlier ones are kept."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    late, early, never = loop.create_future(), loop.create_future(), loop.create_future()
    now = loop.time()
    deadlines.watch(never, now + 1000)
    deadlines.watch(late, now + 0.04)
    deadlines.watch(early, now + 0.01)
    with pytest.raises(TimeoutError):
        await early
    assert not late.done()
    with pytest.raises(TimeoutError):
        await late
    assert loop.time() >= now + 0.03
    assert not never.done()


async def test_done_and_removed_futures_are_left_alone() -> None:
    """A result stays, and a future without a deadline is not ended."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    answered, forgotten, watched = loop.create_future(), loop.create_future(), loop.create_future()
    now = loop.time()
    deadlines.watch(answered, now + 0.01)
    deadlines.watch(forgotten, now + 0.01)
    deadlines.watch(watched, now + 0.01)
    answered.set_result("in time")
    deadlines.forget(forgotten)
    with pytest.raises(TimeoutError):
        await watched
    assert (await answered, forgotten.done()) == ("in time", False)
    deadlines.forget(answered)


async def test_after_a_rest() -> None:
    """After all deadlines are over, the next one works like the first."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    for _ in range(2):
        future = loop.create_future()
        deadlines.watch(future, loop.time() + 0.005)
        with pytest.raises(TimeoutError):
            await future
