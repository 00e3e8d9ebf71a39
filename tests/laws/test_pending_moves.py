"""Moves of many pods in slices: short between two turns of the event loop, and in the end as if made at once."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import NODE_ADD, Hint
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing import gang_entries
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, group, member
from tests.support.injected_errors import InjectedErrors, at
from tests.support.queue_world import NAME, QueueWorld
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig, profile

WAITING = 5_000
CALLS_BETWEEN_TURNS = 90_000
"""Calls between two turns of the event loop; the interpreter makes about ten million a second."""


def _made() -> Rig:
    return default_rig(node("n0", allocatable={"cpu": "0", "pods": "1k"}))


def _active() -> Rig:
    made = _made()
    made.add(*(pod(f"p{number}", priority=number % 7) for number in range(WAITING)))
    return made


def _failed(by: frozenset[str]) -> Rig:
    made = _active()
    popped = [made.pop() for _ in range(WAITING)]
    for queued in popped:
        queued.rejected_by = by
        made.queue.failed(queued)
    return made


def _unschedulable() -> Rig:
    return _failed(frozenset(("NodeResourcesFit",)))


def _backing_off() -> Rig:
    """Return pods that back off after an error, all of them until the same time."""
    return _failed(frozenset())


def _gangs(size: int = 10) -> Rig:
    made = _made()
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    for number in range(WAITING // size):
        add_groups(made, group(f"g{number}", min_member=size))
        made.add(*(member(f"g{number}-{each}", of=f"g{number}") for each in range(size)))
    return made


_LARGE = group("g0", min_member=WAITING)
_SMALL = group("g", min_member=3)


def _without_group() -> Rig:
    made = _gangs(WAITING)
    _delete_large(made)
    while not made.queue.pending.advance():
        pass
    return made


def _create_large(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(_LARGE)


def _delete_large(made: Rig) -> None:
    made.scheduler.group_feed.group_deleted(_LARGE.key)


def _activate(made: Rig) -> None:
    made.queue.activate([queued.uid for queued in made.queue.readings])


def _swap(made: Rig) -> None:
    made.serve(profile())


def _withdraw(made: Rig) -> None:
    made.scheduler.withdraw(DEFAULT_NAME)


def _resort(made: Rig) -> None:
    made.queue.resort()


def _wait(made: Rig) -> None:
    made.clock.advance(60.0)


ROWS: dict[str, tuple[Callable[[], Rig], Callable[[Rig], None], str]] = {
    "activation of unschedulable pods": (_unschedulable, _activate, "active"),
    "activation of pods that back off": (_backing_off, _activate, "active"),
    "end of backoffs": (_backing_off, _wait, "active"),
    "swap with unschedulable pods": (_unschedulable, _swap, "active"),
    "swap with active pods": (_active, _swap, "active"),
    "swap with gangs": (_gangs, _swap, "active"),
    "swap with a large gang": (lambda: _gangs(WAITING), _swap, "active"),
    "withdrawal": (_active, _withdraw, "parked"),
    "withdrawal with gangs": (_gangs, _withdraw, "parked"),
    "withdrawal with a large gang": (lambda: _gangs(WAITING), _withdraw, "parked"),
    "another order": (_active, _resort, "active"),
    "group of a large gang": (_without_group, _create_large, "active"),
    "deletion of the group of a large gang": (lambda: _gangs(WAITING), _delete_large, "gated"),
}


def _pop(made: Rig, popped: list[QueuedPod | None]) -> None:
    popped.append(made.queue.pop())


def _calls(step: Callable[[], object]) -> int:
    count = 0

    def hook(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(hook)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ROWS)
def test_moves_of_all_pods_are_made_in_short_slices(name: str) -> None:
    """Between two turns of the event loop a bounded number of calls is made; no pod is popped before the last move."""
    make, happen, place = ROWS[name]
    made = make()
    calls = [_calls(lambda: happen(made))]
    while made.queue.pending.moves:
        assert not made.queue.readings.is_idle
        popped = list[QueuedPod | None]()
        calls.append(_calls(partial(_pop, made, popped)))
        assert popped == [None] or not made.queue.pending.moves
    assert len(calls) > 3
    assert max(calls) <= CALLS_BETWEEN_TURNS, calls
    readings = made.queue.readings
    counts = readings.counts().get(DEFAULT_NAME)
    found = {"parked": readings.parked_count}
    if counts is not None:
        found |= {"active": counts.active, "gated": counts.gated}
    assert found[place] >= WAITING - 10


# -- equal results ----------------------------------------------------------------------------------------------------

PODS = 6
OPS = st.one_of(
    st.tuples(st.sampled_from(("pop", "fail", "error", "activate")), st.integers(0, PODS - 1)),
    st.tuples(st.just("wait"), st.integers(1, 20)),
    st.tuples(st.sampled_from(("swap", "withdraw", "resort", "event", "activate all")), st.just(0)),
)


def _make_all_moves(world: QueueWorld) -> None:
    """Make all moves, and those of timers that are due: a slice may set the timer of a backoff that has ended."""
    pending = world.queue.pending
    while True:
        while not pending.advance():
            pass
        world.clock.advance(0.0)
        if not pending.moves:
            return


def _popped(world: QueueWorld) -> QueuedPod | None:
    _make_all_moves(world)
    while (queued := world.queue.pop()) is None and world.queue.pending.moves:
        pass
    return queued


def _life(ops: list[tuple[str, int]], budget: int) -> tuple[list[str], list[str]]:
    """Return the pods in the order in which they were popped, and the final places."""
    is_reversed = False

    def key(queued: QueuedPod) -> Any:
        # The keys of the two orders do not compare.
        return f"{queued.sequence:03}" if is_reversed else (-queued.info.priority, queued.sequence)

    world = QueueWorld(hint=lambda _pod, _old, _new: Hint.QUEUE, sort_key=key)
    world.serve(NAME)
    pending = world.queue.pending
    pending.budget = pending.left = budget
    pods = [pod(f"p{number}", priority=number % 3) for number in range(PODS)]
    world.add(*pods)
    order, attempts = list[str](), list[QueuedPod]()
    for kind, of in ops:
        if kind == "pop":
            queued = _popped(world)
            order.append("" if queued is None else queued.info.pod.metadata.name)
            attempts += [] if queued is None else [queued]
        elif kind in ("fail", "error"):
            if attempts:
                world.fail(attempts.pop(of % len(attempts)), by=["A"] if kind == "fail" else [])
        elif kind == "wait":
            world.clock.advance(float(of))
        elif kind == "event":
            world.queue.on_event(NODE_ADD, None, node("n"))
        elif kind == "resort":
            is_reversed = not is_reversed
            world.queue.resort()
        elif kind == "activate":
            world.queue.activate([pods[of].metadata.uid])
        elif kind == "activate all":
            world.queue.activate([each.metadata.uid for each in pods])
        else:
            while not pending.advance():
                pass
            if kind == "swap" or NAME not in world.rules:
                world.serve(NAME)
            else:
                world.remove_profile(NAME)
    _make_all_moves(world)
    places = [world.place_of(each) for each in pods]
    while (last := _popped(world)) is not None:
        order.append(last.info.pod.metadata.name)
    world.queue.close()
    return order, places


@settings(max_examples=400)
@example([("pop", 0), ("resort", 0), ("fail", 0), ("swap", 0), ("event", 0)], 1)
@example([("pop", 0), ("swap", 0), ("fail", 0), ("wait", 1), ("wait", 1), ("resort", 0)], 1)
@given(st.lists(OPS, max_size=25), st.integers(1, 4))
def test_slices_change_no_order(ops: list[tuple[str, int]], budget: int) -> None:
    """Pods are popped in the same order, and wait in the same places, as if all moves were made at once."""
    assert _life(ops, budget) == _life(ops, 1 << 30)


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_move_that_raises_ends_no_other_move() -> None:
    """It is made twice; the moves behind it are made by the next pops, and moves that it started follow."""
    world = QueueWorld()
    made, tried = list[int](), list[int]()
    pending = world.queue.pending

    def move(number: int) -> None:
        if number == 1:
            tried.append(number)
            raise MemoryError
        made.append(number)
        if number == 2:
            pending.start([(made.append, 9, 1)])

    with pytest.raises(MemoryError):
        pending.start((move, number, 1) for number in range(4))
    assert (made, tried) == ([0], [1, 1])
    assert world.queue.readings.is_behind
    assert world.queue.pop() is None
    assert made == [0, 2, 3, 9]
    assert not world.queue.readings.is_behind


def test_moves_whose_start_is_interrupted_are_made_by_the_next_pop() -> None:
    """Nothing of the budget is used then."""
    world = QueueWorld()
    made: list[int] = []
    run = "queueing/queue_moves.py:PendingMoves._run"
    errors = InjectedErrors(lambda _number, site: MemoryError if site[0] == run else None, frozenset((run,)))
    with pytest.raises(MemoryError), errors.active():
        world.queue.pending.start([(made.append, 1, 1)])
    assert made == []
    assert world.queue.pop() is None
    assert made == [1]


_SAMPLE = 30


def _settle(made: Rig) -> None:
    """Make all moves, and what the scheduler does periodically."""
    for _ in range(4):
        while made.queue.pending.moves:
            with suppress(Exception):
                made.queue.pending.advance()
        made.clock.advance(60.0)
        with suppress(Exception):
            made.queue.flush()


def _small() -> Rig:
    made = _made()
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    add_groups(made, _SMALL)
    made.add(*(member(f"m{number}", of="g") for number in range(3)), *(pod(f"p{number}") for number in range(2)))
    return made


def _places_after(happen: Callable[[Rig], None], errors: InjectedErrors, budget: int) -> dict[str, str]:
    made = _small()
    made.queue.pending.budget = made.queue.pending.left = budget
    with errors.active():
        with suppress(Exception):
            happen(made)
        _settle(made)
    _settle(made)
    made.queue.close()
    return {queued.uid: place for place, queued in made.queue.readings.places()}


def _withdraw_and_serve(made: Rig) -> None:
    made.scheduler.withdraw(DEFAULT_NAME)
    made.serve(profile())


def _delete_group(made: Rig) -> None:
    made.scheduler.group_feed.group_deleted(_SMALL.key)


def _create_group_again(made: Rig) -> None:
    _delete_group(made)
    made.scheduler.group_feed.group_changed(_SMALL)


def _complete_and_lose_gang(made: Rig) -> None:
    made.scheduler.group_feed.group_changed(group("g", min_member=0))
    made.scheduler.group_feed.group_changed(_SMALL)


_OF_GANGS = [_delete_group, _create_group_again, _complete_and_lose_gang]


@pytest.mark.parametrize("happen", _OF_GANGS)
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_members_of_a_large_gang_end_where_those_of_a_small_one_do(
    happen: Callable[[Rig], None], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that are moved in slices, while the group changes again, are in the same places as if moved at once."""
    none = InjectedErrors(lambda _number, _site: None, frozenset())
    at_once = _places_after(happen, none, 1 << 30)
    monkeypatch.setattr(gang_entries, "_MOST_AT_ONCE", 0)
    assert _places_after(happen, none, budget) == at_once


@pytest.mark.parametrize("happen", [_swap, _withdraw, _withdraw_and_serve, _resort, _delete_group])
@pytest.mark.parametrize("budget", [2, 1 << 30])
def test_an_exception_in_a_move_loses_no_pod(
    happen: Callable[[Rig], None], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exception at a sample of the calls of the moves: all pods end where they would without it."""
    monkeypatch.setattr(gang_entries, "_MOST_AT_ONCE", 0)
    roots, rng = frozenset(("queueing/queue_moves.py:PendingMoves._run",)), random.Random(budget)
    counted = InjectedErrors(lambda _number, _site: None, roots)
    expected = _places_after(happen, counted, budget)
    found = {}
    logging.disable(logging.CRITICAL)
    try:
        for number in rng.sample(range(1, counted.calls + 1), min(_SAMPLE, counted.calls)):
            errors = InjectedErrors(at(number, MemoryError), roots, is_single=True)
            places = _places_after(happen, errors, budget)
            if places != expected:
                found[str(errors.injected)] = places
    finally:
        logging.disable(logging.NOTSET)
    assert found == {}
