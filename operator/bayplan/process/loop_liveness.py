"""Ends a process whose event loop is stalled, so that a standby takes over; it writes all stacks before.

/livez is not enough: the kubelet takes a minute to restart a container and keeps the pod on its node, and outside of a
cluster nothing probes it. The watching thread cannot run while C code holds the interpreter; for that case the standard
library's faulthandler, which does not need the interpreter, is armed with a slightly later deadline.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time

STALLED_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h. The standard library's faulthandler always exits with 1."""

_BEATS_PER_LIMIT = 10
_LONGEST_BEAT_SECONDS = 1.0


class LoopLiveness:
    """Liveness check of the running loop."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._beat_seconds = min(_LONGEST_BEAT_SECONDS, limit_seconds / _BEATS_PER_LIMIT)
        self._last = 0.0
        self._ended = threading.Event()
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to watch the running loop."""
        self._beat(asyncio.get_running_loop())
        self._postpone_last_resort()
        threading.Thread(target=self._listen, name="liveness of the loop", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
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
        # Neither logging nor print: the stalled code may hold their locks.
        message = (
            f"The event loop has been stalled for {self._limit:g} s; the process exits with code {STALLED_EXIT_CODE}, "
            "so that a standby takes over. Stacks, most recent call first:\n"
        )
        os.write(2, message.encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
        os._exit(STALLED_EXIT_CODE)
