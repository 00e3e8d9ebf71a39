"""Copies of the process: documents and searches, their results, deaths, and what a copy must not do."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from pathlib import Path

import msgspec
import pytest
from bayplan.explanation.building import explain_gang
from bayplan.process import copies
from bayplan.process.copies import BackgroundDocuments, Document, ForkedSearches, has_memory, run_charged

from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node
from tests.support.cluster_state import cluster_state
from tests.support.gangs import add_groups, gang_of, group, member
from tests.support.moved_searches import AwaitedSearches
from tests.support.scheduling import Rig, gang_rig
from tests.support.virtual_clock import VirtualClock

_MEMBERS = 60


def _cluster(dry_run_steps: int) -> Rig:
    made = gang_rig(options=SchedulerOptions(dry_run_steps=dry_run_steps))
    for number in range(20):
        made.add(node(f"n{number}", allocatable={"cpu": "4", "pods": "110"}))
    add_groups(made, group(min_member=_MEMBERS))
    for number in range(_MEMBERS):
        made.add(member(f"m{number}", requests={"cpu": f"{1_001 + number}m"}))
    return made


def _explained(made: Rig) -> Document:
    return Document(200, msgspec.json.encode(explain_gang(made.scheduler, gang_of(made))))


async def test_a_copy_explains_as_this_process_without_its_limit_of_steps() -> None:
    """The copy's document is that of a dry run with the steps of an attempt, and nothing changes here."""
    unbounded, made = _cluster(1_000_000), _cluster(100)
    documents = BackgroundDocuments(made.context, ForkedSearches(), fewest_nodes=1)
    before = cluster_state(made.context)
    limited = _explained(made)
    assert b"given up after 100 steps" in limited.body
    built = await documents.build(lambda: _explained(made))
    assert built == _explained(unbounded)
    assert documents.count == 1
    assert cluster_state(made.context) == before


async def test_requests_wait_for_each_other() -> None:
    """Two requests at once are answered by one copy after the other."""
    made = _cluster(1_000_000)
    documents = BackgroundDocuments(made.context, ForkedSearches(), fewest_nodes=1)
    built = await asyncio.gather(*(documents.build(lambda: _explained(made)) for _ in range(3)))
    assert len({each.body for each in built}) == 1
    assert documents.count == 3


async def test_a_copy_that_fails_is_replaced_by_this_process() -> None:
    """If the copy cannot build the document, this process builds it."""
    made = _cluster(100)
    documents = BackgroundDocuments(made.context, ForkedSearches(), fewest_nodes=1)

    def make() -> Document:
        if made.context.steps.dry_run_steps != 100:
            raise MemoryError
        return Document(404, b"here")

    assert await documents.build(make) == Document(404, b"here")
    assert documents.count == 0


async def test_a_request_that_is_cancelled_ends_its_copy() -> None:
    """The next request gets a copy of its own."""
    made, processes = _cluster(1_000_000), ForkedSearches()
    documents = BackgroundDocuments(made.context, processes, fewest_nodes=1)
    task = asyncio.create_task(documents.build(lambda: _explained(made)))
    await made.until(lambda: processes.pid != -1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes.pid == -1
    assert (await documents.build(lambda: Document(200, b"next"))).body == b"next"


async def test_a_small_cluster_needs_no_copy() -> None:
    """With few nodes the document is built at once."""
    made = _cluster(1_000_000)
    documents = BackgroundDocuments(made.context, ForkedSearches())
    assert (await documents.build(lambda: Document(200, b"at once"))).body == b"at once"
    assert documents.count == 0


async def test_only_the_time_of_this_process_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that takes long in a copy costs the time of the fork, and not the time that its request waits."""
    seconds = [0.0]
    monkeypatch.setattr(copies, "thread_time", lambda: seconds[0])
    made, charged = _cluster(1_000_000), list[float]()
    documents = BackgroundDocuments(made.context, ForkedSearches(), fewest_nodes=1)

    def make() -> Document:
        seconds[0] += 5.0
        return Document(200, b"late")

    assert [each.body for each in await asyncio.gather(*(documents.build(make, charged.append) for _ in range(2)))] == [
        b"late"
    ] * 2
    # The seconds pass in the copies.
    assert charged == [0.0, 0.0]
    at_once = list[float]()
    await BackgroundDocuments(made.context, None).build(make, at_once.append)
    assert at_once == [5.0]


async def test_no_garbage_collection_within_a_dry_run() -> None:
    """The collector is off until the next turn of the event loop, before which the response is written."""
    phases, kept, threshold = list[str](), list[list[int]](), gc.get_threshold()

    def note(phase: str, _: dict[str, int]) -> None:
        phases.append(phase)

    def make() -> Document:
        phases.clear()
        kept.extend([] for _ in range(10_000))
        return Document(200, b"made")

    gc.callbacks.append(note)
    gc.set_threshold(700)
    try:
        run_charged(make, lambda _: None)
        assert (phases, gc.isenabled()) == ([], False)
        await asyncio.sleep(0)
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*threshold)


def _check_reaped(pid: int) -> None:
    # Not any child: this process may have started a control plane for other tests.
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def _result(processes: ForkedSearches, result: bytes | None, pids: list[int] | None = None) -> bytes | None:
    """Return what arrives of a result that a copy sends; add its process ID to a list."""
    done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    send = processes.fork(done.set_result)
    if send is not None:
        logging.getLogger("copy").critical("a copy must not log")
        send(result)
    if pids is not None:
        pids.append(processes.pid)
    return await done


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_a_result_of_any_size_arrives(size: int, capfd: pytest.CaptureFixture[str]) -> None:
    """A result larger than the buffer of a pipe arrives, and the copy is reaped."""
    processes, pids = ForkedSearches(), list[int]()
    assert await _result(processes, b"x" * size, pids) == b"x" * size
    assert processes.pid == -1
    _check_reaped(*pids)
    assert "must not log" not in capfd.readouterr().err


def hanging_copy(processes: ForkedSearches) -> asyncio.Future[bytes | None]:
    """Fork a copy that waits forever, and return the future of its result."""
    done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    if processes.fork(done.set_result) is not None:
        signal.pause()
        os._exit(0)
    return done


async def test_a_copy_without_a_result(caplog: pytest.LogCaptureFixture) -> None:
    """A copy that ends without a result is reported as None, with a warning."""
    assert await _result(ForkedSearches(), None) is None
    assert "without a result" in caplog.text


async def test_a_killed_copy() -> None:
    """A copy that is killed has no result."""
    processes = ForkedSearches()
    done = hanging_copy(processes)
    os.kill(processes.pid, signal.SIGKILL)
    assert await done is None


async def test_a_copy_that_takes_too_long_is_killed() -> None:
    """A copy that waits, and takes no CPU time, ends after the limit."""
    assert await hanging_copy(ForkedSearches(longest_seconds=0.05)) is None


async def test_a_copy_that_hangs_is_killed() -> None:
    """A copy that waits ends long before its limit, because it takes no CPU time."""
    assert await hanging_copy(ForkedSearches(stall_seconds=0.05)) is None


async def test_a_copy_has_no_descriptors_of_the_process(tmp_path: Path) -> None:
    """Sockets and files are closed in the copy: a connection that the process closes ends."""
    done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
    with (tmp_path / "open").open("wb") as opened:
        processes = ForkedSearches()
        send = processes.fork(done.set_result)
        if send is not None:
            try:
                os.fstat(opened.fileno())
            except OSError:
                send(b"closed")
            send(b"open")
        assert await done == b"closed"


async def test_stop_ends_the_copy() -> None:
    """After stop no result arrives, and no process is left."""
    seen: list[bytes | None] = []
    processes = ForkedSearches()
    if processes.fork(seen.append) is not None:
        signal.pause()
        os._exit(0)
    pid = processes.pid
    processes.stop()
    await asyncio.sleep(0)
    assert (seen, processes.pid) == ([], -1)
    _check_reaped(pid)


def test_awaited_results_arrive_in_virtual_time() -> None:
    """A simulation gets the result after the given time, whatever the copy took."""
    clock, seen = VirtualClock(), list[bytes | None]()
    processes = AwaitedSearches(clock, 2.0)
    send = processes.fork(seen.append)
    if send is not None:
        send(b"found")
    clock.advance(1.9)
    assert seen == []
    clock.advance(0.2)
    assert seen == [b"found"]


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("max", "0", True), ("1000000", "700000", True), ("1000000", "900000", False), ("", "", True)],
)
def test_the_memory_limit_of_the_container(tmp_path: Path, limit: str, used: str, *, expected: bool) -> None:
    """There is room if used memory and more of it are below the limit; a limit that cannot be read is none."""
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    assert has_memory(200_000, tmp_path) is expected
    assert has_memory(200_000, tmp_path / "absent")
