"""Tests of slots and their queue."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.http.request_limits import Slots


async def held(slots: Slots, name: str, order: list[str]) -> None:
    """Wait for a slot and hold it."""
    turn = slots.acquire()
    if turn is not None:
        await slots.wait(turn)
    order.append(name)


async def waiting(slots: Slots, name: str, order: list[str]) -> asyncio.Task[None]:
    """Start a task that waits for a slot."""
    task = asyncio.create_task(held(slots, name, order))
    await asyncio.sleep(0)
    return task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_in_the_order_of_arrival() -> None:
    """As many callers as there are slots proceed at once, the others as slots are released."""
    slots, order = Slots(2), list[str]()
    tasks = [await waiting(slots, name, order) for name in "abcd"]
    assert order == ["a", "b"]
    slots.release()
    await settle()
    assert order == ["a", "b", "c"]
    slots.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "d"]


async def test_a_newcomer_does_not_overtake() -> None:
    """A slot that was given to a waiting task is not free for a new caller before that task runs."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    task = await waiting(slots, "in line", order)
    slots.release()
    assert slots.acquire() is not None
    await task
    assert order == ["in line"]


async def test_a_cancelled_wait_is_skipped() -> None:
    """The slot goes to the next one."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    gone.cancel()
    await settle()
    slots.release()
    await stays
    assert order == ["stays"]


async def test_a_cancelled_wait_releases_its_slot() -> None:
    """The wait is cancelled when the slot was given to it, before its task ran."""
    slots, order = Slots(1), list[str]()
    assert slots.acquire() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    slots.release()
    gone.cancel()
    await asyncio.wait_for(stays, 5)
    assert order == ["stays"]
    slots.release()
    assert slots.acquire() is None


async def test_a_wait_that_is_ended_from_outside() -> None:
    """The exception is raised, and the slot is not lost."""
    slots = Slots(1)
    assert slots.acquire() is None
    turn = slots.acquire()
    assert turn is not None
    turn.set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await slots.wait(turn)
    slots.release()
    assert slots.acquire() is None
