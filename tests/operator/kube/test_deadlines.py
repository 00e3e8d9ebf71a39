"""Many deadlines under one timer."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.deadlines import Deadlines


async def test_the_nearest_comes_first() -> None:
    """One that is nearer than those before it does not wait for them, and they are not forgotten over it."""
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


async def test_what_is_over_or_forgotten_is_left_alone() -> None:
    """A result stands, and whom nobody watches is not ended."""
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
    """When all is over the next one is watched as the first was."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    for _ in range(2):
        future = loop.create_future()
        deadlines.watch(future, loop.time() + 0.005)
        with pytest.raises(TimeoutError):
            await future
