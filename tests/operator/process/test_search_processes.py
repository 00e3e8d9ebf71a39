"""Copies of the process in which searches continue: results, deaths, and what a copy must not do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from bayplan.process.copies import ForkedSearches, has_memory

from tests.support.moved_searches import AwaitedSearches
from tests.support.virtual_clock import VirtualClock


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
