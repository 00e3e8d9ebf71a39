"""Tests of Deadlines, which ends many futures with one timer."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.http.keep_alive_pool import Deadlines


async def test_futures_end_in_the_order_of_their_deadlines() -> None:
    """Futures end in the order of their deadlines, whatever the order in which they were registered."""
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


async def test_done_and_removed_futures_do_not_time_out() -> None:
    """A future that has a result and a removed future do not time out."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    completed, removed, watched = loop.create_future(), loop.create_future(), loop.create_future()
    now = loop.time()
    deadlines.watch(completed, now + 0.01)
    deadlines.watch(removed, now + 0.01)
    deadlines.watch(watched, now + 0.01)
    completed.set_result("in time")
    deadlines.forget(removed)
    with pytest.raises(TimeoutError):
        await watched
    assert (await completed, removed.done()) == ("in time", False)
    deadlines.forget(completed)


async def test_a_deadline_after_all_others_have_passed() -> None:
    """A deadline that is set after all others have passed ends its future."""
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    for _ in range(2):
        future = loop.create_future()
        deadlines.watch(future, loop.time() + 0.005)
        with pytest.raises(TimeoutError):
            await future
