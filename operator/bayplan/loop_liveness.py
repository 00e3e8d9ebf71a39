"""Ends a process whose event loop stands still, so that a standby takes over.

Owns the heart that beats on the loop and the thread that listens. It must not know why the loop stands still: the
stacks that it leaves behind say so.

Why not /livez alone: the kubelet's restart takes a minute and keeps the pod on its node, and outside of a cluster
nobody asks. The thread cannot run while C code keeps the interpreter to itself; for that case the standard library's
own watchdog, which needs no interpreter, is set a little later.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time

STALLED_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h. The standard library's watchdog can only end with 1."""

_BEATS_PER_LIMIT = 10
_LONGEST_BEAT_SECONDS = 1.0


class LoopLiveness:
    """A watch over the running loop.

    Args:
        limit_seconds: So long the loop may stand still.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._beat_seconds = min(_LONGEST_BEAT_SECONDS, limit_seconds / _BEATS_PER_LIMIT)
        self._last = 0.0
        self._ended = threading.Event()
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch the loop that runs."""
        self._beat(asyncio.get_running_loop())
        self._postpone_last_resort()
        threading.Thread(target=self._listen, name="liveness of the loop", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()
        if self._next is not None:
            self._next.cancel()
        faulthandler.cancel_dump_traceback_later()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last = time.monotonic()
        self._next = loop.call_later(self._beat_seconds, self._beat, loop)

    def _listen(self) -> None:
        while not self._ended.wait(self._beat_seconds):
            self._postpone_last_resort()
            if time.monotonic() - self._last > self._limit:
                self._end()

    def _postpone_last_resort(self) -> None:
        faulthandler.dump_traceback_later(self._limit + 2 * self._beat_seconds, exit=True, file=2)

    def _end(self) -> None:
        # Neither logging nor print: whoever holds their locks may be what stands still.
        message = (
            f"The loop has stood still for {self._limit:g} s and the process ends (exit code {STALLED_EXIT_CODE}), so "
            "that another takes over. What it was doing, the last call first:\n"
        )
        os.write(2, message.encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
        os._exit(STALLED_EXIT_CODE)
