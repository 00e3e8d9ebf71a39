"""Tests of Slots, a limit of concurrent requests with a first-in-first-out queue."""

from __future__ import annotations

import asyncio
from datetime import UTC

import pytest
from bayplan.kube.http.api_request import Slots, TokenBucket
from bayplan.kube.timing import Backoff, SystemClock, delay_of_try

from scheduler_core.ports import Clock
from tests.support.presence import present
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock


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
    turn = present(slots.acquire())
    turn.set_exception(TimeoutError())
    with pytest.raises(TimeoutError):
        await slots.wait(turn)
    slots.release()
    assert slots.acquire() is None


def test_backoff_doubles_up_to_its_maximum() -> None:
    """Every delay is between half of a step and the step, which doubles; a reset starts over."""
    backoff = Backoff(1.0, 10.0, seed=3)
    for step in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert step / 2 <= backoff.next_delay() <= step
    backoff.reset()
    assert backoff.next_delay() <= 1.0


@table("tries, step", ("first", 1, 0.2), ("third", 3, 0.8), ("many", 5000, 30.0))
def test_delay_of_try(tries: int, step: float) -> None:
    """The delay depends only on the number of the attempt."""
    assert step / 2 <= delay_of_try(tries, 0.2, 30.0) <= step


async def test_callers_get_tokens_in_order_at_the_rate() -> None:
    """After the burst, callers get tokens at the rate, in the order of their arrival."""
    clock = VirtualClock()
    bucket = TokenBucket(2.0, 2, clock)
    taken: list[int] = []

    async def take(number: int) -> None:
        await bucket.take()
        taken.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(4)]
    await asyncio.sleep(0)
    assert taken == [0, 1]
    clock.advance(0.5)
    await tasks[2]
    assert taken == [0, 1, 2]
    clock.advance(0.5)
    await asyncio.gather(*tasks)
    assert taken == [0, 1, 2, 3]


def test_try_take_returns_the_wait() -> None:
    """Without a token, try_take() takes nothing and returns the wait."""
    clock = VirtualClock()
    bucket = TokenBucket(4.0, 1, clock)
    assert bucket.try_take() == 0.0
    assert bucket.try_take() == pytest.approx(0.25)
    assert bucket.try_take() == pytest.approx(0.25)
    clock.advance(0.25)
    assert bucket.try_take() == 0.0


async def test_system_clock() -> None:
    """The system clock moves forward, returns UTC, and runs callbacks on the event loop."""
    clock: Clock = SystemClock()
    before, called = clock.now(), asyncio.Event()
    clock.call_later(0.001, called.set)
    cancelled = clock.call_later(0.0, lambda: pytest.fail("was cancelled"))
    cancelled.cancel()
    await clock.sleep(0)
    await called.wait()
    assert clock.now() > before
    assert clock.wall().tzinfo is UTC
