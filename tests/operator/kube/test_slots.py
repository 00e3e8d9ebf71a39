"""Slots, and the line for them."""

from __future__ import annotations

import asyncio

import pytest
from bayplan.kube.slots import Slots


async def held(slots: Slots, name: str, order: list[str]) -> None:
    """Wait for a slot and keep it."""
    turn = slots.take()
    if turn is not None:
        await slots.turn(turn)
    order.append(name)


async def waiting(slots: Slots, name: str, order: list[str]) -> asyncio.Task[None]:
    """Somebody in line."""
    task = asyncio.create_task(held(slots, name, order))
    await asyncio.sleep(0)
    return task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_in_the_order_of_coming() -> None:
    """As many as there are slots go at once, the others one by one as slots are given back."""
    slots, order = Slots(2), list[str]()
    tasks = [await waiting(slots, name, order) for name in "abcd"]
    assert order == ["a", "b"]
    slots.give()
    await settle()
    assert order == ["a", "b", "c"]
    slots.give()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c", "d"]


async def test_a_newcomer_does_not_overtake() -> None:
    """A slot that was given to somebody in line is not there for who comes before he has noticed."""
    slots, order = Slots(1), list[str]()
    assert slots.take() is None
    task = await waiting(slots, "in line", order)
    slots.give()
    assert slots.take() is not None
    await task
    assert order == ["in line"]


async def test_who_leaves_the_line_is_passed_over() -> None:
    """The slot goes to the next one."""
    slots, order = Slots(1), list[str]()
    assert slots.take() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    gone.cancel()
    await settle()
    slots.give()
    await stays
    assert order == ["stays"]


async def test_who_leaves_with_a_slot_gives_it_back() -> None:
    """Cancelled when the slot was given and before that was noticed."""
    slots, order = Slots(1), list[str]()
    assert slots.take() is None
    gone, stays = await waiting(slots, "gone", order), await waiting(slots, "stays", order)
    slots.give()
    gone.cancel()
    await asyncio.wait_for(stays, 5)
    assert order == ["stays"]
    slots.give()
    assert slots.take() is None


async def test_a_wait_that_is_ended_from_outside() -> None:
    """What ended it comes out, and its slot is not lost."""
    slots = Slots(1)
    assert slots.take() is None
    turn = slots.take()
    assert turn is not None
    turn.set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await slots.turn(turn)
    slots.give()
    assert slots.take() is None
