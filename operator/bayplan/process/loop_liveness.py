"""Ends the process when the event loop stalls, and interrupts calls into plugins that take too long."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from scheduler_core.errors import PluginError

STALLED_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h. The standard library's faulthandler always exits with 1."""

_BEATS_PER_LIMIT = 10
_LONGEST_BEAT_SECONDS = 1.0


class LoopLiveness:
    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._beat_seconds = min(_LONGEST_BEAT_SECONDS, limit_seconds / _BEATS_PER_LIMIT)
        self._last = 0.0
        self._ended = threading.Event()
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._beat(asyncio.get_running_loop())
        self._postpone_last_resort()
        threading.Thread(target=self._listen, name="liveness of the loop", daemon=True).start()

    def stop(self) -> None:
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


P = ParamSpec("P")
T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.001
# Packages that change state which outlives a plugin's call, or hold locks that others need.
_UNINTERRUPTIBLE = frozenset({"scheduler_core", "bayplan", "asyncio", "importlib", "logging"})
# Parts of those packages that only delegate or read.
_HARMLESS = ("scheduler_core.runtime.node_adapters", "scheduler_core.framework.")


SHADOW_CALL_SECONDS = 0.05
"""Maximum duration of one call into a plugin of a shadow profile."""


class OutOfTimeError(BaseException):
    """Raised in a plugin whose time budget is used up.

    A BaseException, so that a plugin that continues after any Exception does not continue after this one; the caller of
    the plugin gets a PluginError.
    """


class PluginWatchdog:
    """Implementation of :class:`scheduler_core.ports.Watchdog` by SIGALRM, which nothing else may use."""

    def __init__(self, budget_seconds: float) -> None:
        self._budget = budget_seconds
        self._thread = 0
        self._armed = False
        self._before: Any = signal.SIG_DFL

    def start(self) -> None:
        """Install the signal handler; call this in the main thread, where plugins are called."""
        self._before = signal.signal(signal.SIGALRM, self._time_is_up)
        self._thread = threading.get_ident()

    def stop(self) -> None:
        if self._thread:
            self._thread = 0
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def shorter(self, budget_seconds: float) -> ShorterWatchdog:
        """Return a watchdog for calls of other plugins, with a budget that is not longer."""
        return ShorterWatchdog(self, min(budget_seconds, self._budget))

    def guarded(
        self, plugin: str, point: str, call: Callable[P, T], budget_seconds: float | None = None
    ) -> Callable[P, T]:
        """Wrap a call into a plugin with the time budget; a call nested in a watched call shares its budget."""
        budget = self._budget if budget_seconds is None else budget_seconds

        remedy = "or raise the setting pluginTimeBudget"
        if budget < self._budget:
            remedy = "because a shadow profile may not delay live profiles"

        def in_time(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._armed or self._thread != threading.get_ident():
                return call_named(*args, **kwargs)
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, budget, _LOOK_AGAIN_SECONDS)
            try:
                return call_named(*args, **kwargs)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._armed = False

        def call_named(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return call(*args, **kwargs)
            except OutOfTimeError as interruption:
                message = f"was interrupted after its time budget of {budget:g} s; make it faster, {remedy}"
                raise PluginError(plugin, point, message) from interruption

        return in_time

    def _time_is_up(self, _number: int, frame: FrameType | None) -> None:
        if self._armed and _is_in_plugin(frame):
            raise OutOfTimeError


class ShorterWatchdog:
    """Implementation of :class:`scheduler_core.ports.Watchdog` by another watchdog, with a shorter budget."""

    def __init__(self, watchdog: PluginWatchdog, budget_seconds: float) -> None:
        self._watchdog = watchdog
        self._budget = budget_seconds

    def guarded(self, plugin: str, point: str, call: Callable[P, T]) -> Callable[P, T]:
        """Wrap a call into a plugin with the shorter time budget."""
        return self._watchdog.guarded(plugin, point, call, self._budget)


def _is_in_plugin(frame: FrameType | None) -> bool:
    """Return whether only the plugin's own code runs above the innermost watched call."""
    above = frame
    while above is not None:
        module = str(above.f_globals.get("__name__", ""))
        if module == __name__:
            return above is not frame
        if module.partition(".")[0] in _UNINTERRUPTIBLE and not module.startswith(_HARMLESS):
            return False
        above = above.f_back
    return False
