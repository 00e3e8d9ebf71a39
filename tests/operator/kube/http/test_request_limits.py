"""Tests of Slots, a limit of concurrent requests with a first-in-first-out queue."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.http.api_request import Slots


async def take_slot(slots: Slots, name: str, order: list[str]) -> None:
    """Wait for a slot and record the name."""
    turn = slots.acquire()
    if turn is not None:
        await slots.wait(turn)
    order.append(name)


async def waiting(slots: Slots, name: str, order: list[str]) -> asyncio.Task[None]:
    """Start a task that waits for a slot."""
    task = asyncio.create_task(take_slot(slots, name, order))
    await asyncio.sleep(0)
    return task


async def run_loop() -> None:
    """Run every task that is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_given_in_the_order_of_arrival() -> None:
    """Callers beyond the limit get slots in the order of their arrival, as slots are released."""
    slots, order = Slots(2), list[str]()
    tasks = [await waiting(slots, name, order) for name in "abcd"]
    assert order == ["a", "b"]
    slots.release()
    await run_loop()
    assert order == ["a", "b", "c"]
    slots.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "d"]


async def test_a_newcomer_does_not_overtake() -> None:
    """A slot that is assigned to a waiting task is not free for a new caller before that task runs."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    task = await waiting(slots, "in line", order)
    slots.release()
    assert slots.acquire() is not None
    await task
    assert order == ["in line"]


async def test_a_cancelled_wait_is_skipped() -> None:
    """A released slot skips a cancelled task and goes to the next waiting task."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    gone.cancel()
    await run_loop()
    slots.release()
    await stays
    assert order == ["stays"]


async def test_a_cancelled_wait_releases_its_slot() -> None:
    """A task that is cancelled after a slot was assigned to it releases the slot."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    slots.release()
    gone.cancel()
    await asyncio.wait_for(stays, 5)
    assert order == ["stays"]
    slots.release()
    assert slots.acquire() is None


async def test_an_exception_set_on_a_wait_is_raised() -> None:
    """An exception that is set on a waiting turn is raised, and the slot is not lost."""
    slots = Slots(1)
    assert slots.acquire() is None
    turn = slots.acquire()
    assert turn is not None
    turn.set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await slots.wait(turn)
    slots.release()
    assert slots.acquire() is None
