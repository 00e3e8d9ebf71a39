"""Starts, watches and stops child processes that cannot outlive their parent, and stops recorded ones.

The kernel kills a child when its parent dies (PR_SET_PDEATHSIG), also on `kill -9`, but the "parent" there is the
*thread* that forked. A server started from a short-lived worker thread of a test would die with that thread; so one
thread, which runs until the interpreter ends, forks all of them. A wrapper sets the signal and becomes the program by
exec, which is safe in a threaded parent; `preexec_fn` is not.

    started --pause()--> stopped --resume()--> started --stop()|kill()|its own death--> ended
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORDS_FILE = "processes.json"
"""Name of the file in a state directory that records its processes."""

_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_STOP_SECONDS = 10.0

# argv: parent's pid, program, its arguments. If the parent died before prctl, no signal would follow.
_TIED_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ProcessFailed(Exception):  # noqa: N818 - names the event, as the standard library's ProcessLookupError does
    """A process did not start, or ended when it should not have."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run.

    Args:
        argv: Absolute path of the program, then its arguments.
        log: File for stdout and stderr; appended to, so a restart keeps the earlier output.
        env: Added to this process's environment.
        detached: Let it outlive the parent.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Permanent identity of a process: pids are reused, a pid with its start time is not.

    Args:
        started: Start time in clock ticks since boot, field 22 of /proc/PID/stat.
        boot: The boot that `pid` and `started` belong to.
    """

    name: str
    pid: int
    started: int
    boot: str

    def is_running(self) -> bool:
        """Return whether this very process, not a later one with its pid, is running and no zombie."""
        stat = _stat(self.pid)
        return stat is not None and stat.state != "Z" and stat.started == self.started and _boot_id() == self.boot


class Process:
    def __init__(self, command: Command, popen: subprocess.Popen[bytes]) -> None:
        self.command = command
        self._popen = popen
        stat = _stat(popen.pid)
        self.record = Record(command.name, popen.pid, stat.started if stat else 0, _boot_id())
        self._last_usage = (0.0, 0)

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        """Process id, also after its end."""
        return self._popen.pid

    @property
    def log(self) -> Path:
        """File with its stdout and stderr."""
        return self.command.log

    @property
    def alive(self) -> bool:
        """Whether it is still running; a paused process is alive."""
        return self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal, None while it is alive."""
        return self._popen.poll()

    def cpu_seconds(self) -> float:
        """Return user and system CPU time in seconds; after `stop`, the value at its call."""
        return self._usage()[0]

    def peak_rss(self) -> int:
        """Return the largest resident set in bytes; after `stop`, the value at its call."""
        return self._usage()[1]

    def pause(self) -> None:
        """Freeze it: its connections stay open and get no answer.

        Returns when all threads are stopped: on a busy machine, one may answer until another has received the signal.

        Raises:
            ProcessFailed: A thread still runs after ten seconds.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_SECONDS
        while not self._is_stopped():
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.command.name} does not stop within {_STOP_SECONDS:.0f} s of SIGSTOP")
            time.sleep(0.001)

    def _is_stopped(self) -> bool:
        threads = Path(f"/proc/{self._popen.pid}/task").glob("*/stat")
        try:
            # The state is the first field after the name, which is in parentheses.
            return all(thread.read_text().rpartition(")")[2].split()[0] in "TXZ" for thread in threads)
        except (FileNotFoundError, ProcessLookupError):
            return False  # a thread has just ended

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, as a crash would, and wait for its end."""
        self._usage()
        self._signal(signal.SIGKILL)
        self._popen.wait()

    def stop(self, grace: float = 5.0) -> None:
        """Stop it by SIGTERM, then by SIGKILL after the grace period; do nothing if it has ended."""
        self._usage()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self._popen.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        # Popen polls before it sends, so a pid that was reaped and reused is never signalled.
        self._popen.send_signal(number)

    def _usage(self) -> tuple[float, int]:
        stat = _stat(self.pid) if self.alive else None
        if stat is not None:
            self._last_usage = (stat.cpu_seconds, _peak_rss(self.pid))
        return self._last_usage


def start(command: Command) -> Process:
    """Start a program in its own process group, which ends with this process unless it is detached.

    Raises:
        ProcessFailed: The program cannot be executed.
    """
    argv = list(command.argv)
    if not os.access(argv[0], os.X_OK):
        raise ProcessFailed(f"cannot run {command.name}: {argv[0]} is not an executable file, delete or replace it")
    if not command.detached:
        argv = [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *argv]
    command.log.parent.mkdir(parents=True, exist_ok=True)

    def spawn() -> subprocess.Popen[bytes]:
        with command.log.open("ab") as sink:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(command.env),
                # Its own session: a terminal's Ctrl-C reaches only the parent, which then stops things in order.
                start_new_session=True,
            )

    return Process(command, _SPAWNER.run(spawn))


def end_recorded(record: Record, grace: float = 5.0) -> bool:
    """Stop a process that another interpreter started; *grace* is the time in seconds from SIGTERM to SIGKILL.

    Returns:
        False if it was no longer running, or if its pid now belongs to another process.
    """
    if not record.is_running():
        return False
    # A pidfd names the process itself; the check after opening it closes the gap in which the pid could be reused.
    handle = os.pidfd_open(record.pid)
    try:
        if not record.is_running():
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        signal.pidfd_send_signal(handle, signal.SIGCONT)
        deadline = time.monotonic() + grace
        while record.is_running():
            if time.monotonic() > deadline:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.02)
    finally:
        os.close(handle)
    return True


def write_records(directory: Path, records: Sequence[Record]) -> None:
    """Replace the process record of a state directory, in the order in which the processes were started."""
    scratch = directory / f"{RECORDS_FILE}.new"
    scratch.write_text(json.dumps([asdict(record) for record in records], indent=2))
    scratch.replace(directory / RECORDS_FILE)


def read_records(directory: Path) -> list[Record]:
    """Return the recorded processes of a state directory, running or not; an empty list if there is no record."""
    path = directory / RECORDS_FILE
    return [Record(**row) for row in json.loads(path.read_text())] if path.exists() else []


class _Spawner:
    """Runs calls on one thread that ends with the interpreter."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[
            tuple[Future[subprocess.Popen[bytes]], Callable[[], subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, call: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or self._pid != os.getpid():  # threads do not survive a fork
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._serve, name="controlplane-spawner", daemon=True)
                self._thread.start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._calls.put((future, call))
        return future.result()

    def _serve(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as problem:  # noqa: BLE001 - handed to the caller's thread
                future.set_exception(problem)


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    cpu_seconds: float
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the program's name in brackets, may contain spaces and brackets.
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS_PER_SECOND, int(fields[19]))


def _peak_rss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


_SPAWNER = _Spawner()
