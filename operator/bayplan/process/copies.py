"""Copies of this process, made by ``fork``, in which long searches and the dry runs of documents continue.

A copy has no event loop and no other threads. It shares sockets and files with this process, and must not use them: it
computes, writes its result to a pipe, and ends by ``_exit``, so that nothing is flushed, closed or reported twice.

Memory is shared until either process writes to it. Reference counts are writes, so a copy that runs for seconds takes a
large part of the memory that this process takes. No copy is made if the control group has too little room for that, and
a copy ends without a result if memory gets scarce: at its limit, the kernel may kill the whole container.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import os
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import thread_time
from typing import NoReturn

import msgspec
from msgspec import Struct

from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.ports import SearchProcesses

log = logging.getLogger(__name__)

LONGEST_SECONDS = 120.0
"""CPU time after which a copy is ended: a search has a limit of steps, which takes less."""
_WALL_PER_CPU = 5
"""Share of a CPU that a copy must get at its low priority: one in this many."""
_NICENESS = 5
_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20
_CONTROL_GROUP = Path("/sys/fs/cgroup")
_NO_LIMIT = "max"
_HEADROOM = 4
"""Room beyond the memory of this process for a copy, as its part of that memory: both processes allocate meanwhile."""
_SCARCE = 8
"""Room below which a copy ends, as its part of the memory of this process."""
_CHECK_SECONDS = 0.1
"""CPU time between two checks of the memory in a copy."""
STALL_SECONDS = 15.0
"""Time without any CPU time after which a copy is ended: it waits for what only the other process has."""
_DIES_WITH_PARENT = 1
"""``PR_SET_PDEATHSIG`` of ``prctl``."""
_STANDARD_ERROR = 2
_running: set[int] = set()
"""Process IDs of the copies of this process, of all kinds."""

Done = Callable[[bytes | None], None]
Send = Callable[[bytes | None], NoReturn]


def fork(longest_seconds: float = LONGEST_SECONDS, niceness: int = _NICENESS) -> tuple[int, int, Send | None]:
    """Start a copy of this process.

    Args:
        longest_seconds: CPU time after which the kernel ends the copy, which could have survived this process.
        niceness: How much less than this process the copy gets of the CPU if both want it.

    Returns:
        In this process the copy's process ID and the end of a pipe to read from; in the copy a function that writes a
        result to the pipe and ends the process.

    Raises:
        OSError: No process or pipe can be created.
    """
    own = _resident_bytes()
    if not has_memory((own + own // _HEADROOM) * (1 + len(_running))):
        raise OSError(errno.ENOMEM, "the memory limit of the container leaves no room for a copy of the process")
    set_parent_death = _parent_death()
    reader, writer = os.pipe()
    parent = os.getpid()
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of other threads, whose locks a copy could wait for: it takes no locks but its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid:
        os.close(writer)
        _running.add(pid)
        return pid, reader, None
    try:
        set_parent_death()
        if os.getppid() != parent:
            os._exit(1)
        _close_all_but(writer)
        _become_copy(longest_seconds, niceness, own // _SCARCE)
    except BaseException:  # noqa: BLE001 - nothing but _exit may end a copy
        os._exit(1)
    return 0, reader, partial(_send, writer)


def _resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 if it cannot be read."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def has_memory(more: int, group: Path = _CONTROL_GROUP) -> bool:
    """Return whether the memory limit of a control group, if any, has room for some more bytes."""
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == _NO_LIMIT:
            return True
        return int((group / "memory.current").read_text()) + more <= int(limit)
    except (OSError, ValueError):
        # The limit cannot be read: version 1 of control groups, or another system.
        return True


def _parent_death() -> Callable[[], object]:
    """Return a function after whose call the kernel ends this process with its parent; without effect elsewhere."""
    if sys.platform != "linux":
        return lambda: None
    return partial(ctypes.CDLL(None).prctl, _DIES_WITH_PARENT, signal.SIGKILL)


def _close_all_but(writer: int) -> None:
    """Close the descriptors of sockets and files, so that connections end when the other process closes them."""
    try:
        numbers: Iterable[int] = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - no paths
    except OSError:
        numbers = range(os.sysconf("SC_OPEN_MAX"))
    for number in numbers:
        if number > _STANDARD_ERROR and number != writer:
            with contextlib.suppress(OSError):
                os.close(number)


def _become_copy(longest_seconds: float, niceness: int, scarce_bytes: int) -> None:
    signal.set_wakeup_fd(-1)
    # Not SIGALRM, which interrupts plugins that exceed their time budget, here as well.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, longest_seconds)
    signal.signal(signal.SIGVTALRM, lambda *_: None if has_memory(scarce_bytes) else os._exit(1))
    signal.setitimer(signal.ITIMER_VIRTUAL, _CHECK_SECONDS, _CHECK_SECONDS)
    gc.disable()
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(OSError):
        os.nice(niceness)
        # If the node gets out of memory, the copy is killed first.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _send(writer: int, result: bytes | None) -> NoReturn:
    status = 1
    try:
        if result is not None:
            left = memoryview(_LENGTH.pack(len(result)) + result)
            while left:
                left = left[os.write(writer, left) :]
            status = 0
    finally:
        os._exit(status)


def result_of(received: bytes | bytearray) -> bytes | None:
    """Return the result; None if the copy ended before it was written."""
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    return bytes(received[_LENGTH.size :]) if len(received) == _LENGTH.size + length else None


def reap(pid: int) -> None:
    """Wait for the end of a copy."""
    _running.discard(pid)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _cpu_ticks(pid: int) -> str:
    """Return the CPU time of a process, as the kernel writes it; "" if it cannot be read."""
    try:
        # The name of the process, in parentheses, may contain spaces.
        return " ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    except OSError:
        return ""


class ForkedSearches:
    """Copies of this process, one at a time; implements :class:`scheduler_core.ports.SearchProcesses`.

    Attributes:
        longest_seconds: CPU time after which a copy is ended without a result; by the clock it may take five times as
            long.
        stall_seconds: Time without any CPU time after which a copy is ended without a result.
        longest_fork_seconds: The longest time that a fork has taken, during which the event loop did not run.
    """

    def __init__(self, longest_seconds: float = LONGEST_SECONDS, stall_seconds: float = STALL_SECONDS) -> None:
        self.longest_seconds = longest_seconds
        self.stall_seconds = stall_seconds
        self.longest_fork_seconds = 0.0
        self._pid = self._reader = -1
        self._received = bytearray()
        self._done: Done = lambda _: None
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """Process ID of the copy; -1 for none."""
        return self._pid

    def fork(self, done: Done) -> Send | None:
        """Start a copy of this process; see the protocol."""
        began = time.perf_counter()
        pid, reader, send = fork(self.longest_seconds)
        if send is not None:
            return send
        self.longest_fork_seconds = max(self.longest_fork_seconds, time.perf_counter() - began)
        loop = asyncio.get_running_loop()
        os.set_blocking(reader, False)
        self._pid, self._reader, self._done = pid, reader, done
        self._received.clear()
        loop.add_reader(reader, self._read)
        self._ends_at = loop.time() + _WALL_PER_CPU * self.longest_seconds
        self._watch(pid, "")
        return None

    def _watch(self, pid: int, before: str) -> None:
        """End a copy that is late, or has taken no CPU time since the last call; otherwise check it later."""
        loop, ticks = asyncio.get_running_loop(), _cpu_ticks(pid)
        left = self._ends_at - loop.time()
        if left <= 0 or (ticks and ticks == before):
            _kill(pid)
        else:
            self._timer = loop.call_later(min(left, self.stall_seconds), self._watch, pid, ticks)

    def stop(self) -> None:
        """End the copy, whose result is dropped."""
        pid = self._pid
        if pid != -1:
            _kill(pid)
            self._forget()
            reap(pid)

    def _read(self) -> None:
        try:
            received = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        self._received += received
        if received:
            return
        pid, done, result = self._pid, self._done, result_of(self._received)
        self._forget()
        # It has closed the pipe by its end, after its memory was released.
        reap(pid)
        if result is None:
            log.warning("a process that made a long search ended without a result; the search is made again")
        done(result)

    def _forget(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._pid, self._reader, self._done = None, -1, -1, lambda _: None


_FEWEST_NODES = 100


class Document(Struct, frozen=True):
    """A response: its HTTP status, and a JSON document or the text of a refusal."""

    status: int
    body: bytes


_decode = msgspec.msgpack.Decoder(Document).decode


class BackgroundDocuments:
    """Builds documents of dry runs in a copy of the process, so that the scheduling loop runs meanwhile.

    In the copy, a dry run may take as many steps as an attempt. One copy builds a document at a time; further requests
    wait for its end. In a small cluster most dry runs take less time than a fork: they are made at once, and repeated
    in a copy if they are given up.

    Args:
        processes: Starts copies of this process; None to build every document at once.
        fewest_nodes: Number of nodes from which a document is built in a copy.

    Attributes:
        count: Number of documents that a copy has built.
    """

    def __init__(
        self, context: CycleContext, processes: SearchProcesses | None, fewest_nodes: int = _FEWEST_NODES
    ) -> None:
        self.count = 0
        self._context = context
        self._processes = processes
        self._fewest_nodes = fewest_nodes
        self._turn = asyncio.Lock()

    async def build(
        self,
        make: Callable[[], Document],
        charge: Callable[[float], None] = lambda _: None,
        is_given_up: Callable[[Document], bool] = lambda _: False,
        *,
        is_long: bool = False,
    ) -> Document:
        """Return what a function returns that reads the scheduler's state.

        If the copy ends without a document, the function is called in this process, with the limits of dry runs there.

        Args:
            charge: Called with the CPU time of the fork, or of the function, during which the event loop does not run.
            is_given_up: Returns whether the dry run of a document, made in this process, took more steps than it may.
            is_long: Whether it is built in a copy in small clusters, too.
        """
        processes, context = self._processes, self._context
        if processes is None or (context.cache.columns.count < self._fewest_nodes and not is_long):
            built = run_charged(make, charge)
            # A request may have many pods in a cluster of few nodes.
            if processes is None or not is_given_up(built):
                return built
        async with self._turn:
            await context.suspension.over()
            done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

            def ended(result: bytes | None) -> None:
                if not done.done():
                    done.set_result(result)

            try:
                with charged(charge):
                    send = processes.fork(ended)
            except OSError as error:
                log.warning("no process can be started for a document: %s", error)
                return run_charged(make, charge)
            if send is not None:
                try:
                    context.background.become_copy(send)
                    context.steps.dry_run_steps = context.steps.attempt_steps
                    result = msgspec.msgpack.encode(make())
                except BaseException:  # noqa: BLE001 - the copy must not continue as the process that it copies
                    send(None)
                send(result)
            try:
                found = await done
            except asyncio.CancelledError:
                processes.stop()
                raise
        if found is None:
            await context.suspension.over()
            return run_charged(make, charge)
        self.count += 1
        return _decode(found)


def run_charged(make: Callable[[], Document], charge: Callable[[float], None]) -> Document:
    """Return what a function returns that makes a dry run in this process, and charge its CPU time.

    No garbage collection runs until the next turn of the event loop, before which the response is written: a collection
    can take longer than the dry run, nearly all objects of which are freed by reference counting.
    """
    if gc.isenabled():
        gc.disable()
        asyncio.get_running_loop().call_soon(gc.enable)
    with charged(charge):
        return make()


@contextmanager
def charged(charge: Callable[[float], None]) -> Iterator[None]:
    """Call a function with the CPU time of the block."""
    began = thread_time()
    try:
        yield
    finally:
        charge(thread_time() - began)
