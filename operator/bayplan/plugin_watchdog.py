"""Interrupts a plugin that uses up its time budget.

Owns the interval timer and its signal. It must not know extension points or what follows from an interruption: the
plugin seems to have raised.

    idle --call--> armed --answer--> idle
                     |
                     +--time is up--> in the plugin's own code? --yes--> interrupted --> idle
                                       no: look again in a moment

Why it looks where the plugin is before it interrupts: an exception between two lines of the scheduler's code would
leave columns, queue or a lock half changed. Such code is short, so the next look finds the plugin's own. What Python
cannot interrupt (one long call into C) ends first; see the liveness limit for what never ends.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from scheduler_core.errors import PluginError

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_AGAIN_SECONDS = 0.001
# Packages that change what outlives a plugin's call, or hold locks that others need.
_NOT_TO_BE_INTERRUPTED = frozenset({"scheduler_core", "bayplan", "asyncio", "importlib", "logging"})
# Of those, the parts that only hand on or read.
_HARMLESS = ("scheduler_core.runtime.node_adapters", "scheduler_core.framework.")


class OutOfTimeError(BaseException):
    """A plugin's time is up.

    No SchedulerCoreError and no Exception, so that a plugin that goes on after any error does not go on after this one;
    outside of the call it is a PluginError.
    """


class PluginWatchdog:
    """Implements :class:`scheduler_core.ports.Watchdog` by SIGALRM, which nothing else may use.

    Args:
        budget_seconds: For one call into a plugin, with all that it calls.
    """

    def __init__(self, budget_seconds: float) -> None:
        self._budget = budget_seconds
        self._thread = 0
        self._armed = False
        self._before: Any = signal.SIG_DFL

    def start(self) -> None:
        """Take the signal; call it in the main thread, where plugins are called."""
        self._before = signal.signal(signal.SIGALRM, self._time_is_up)
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Give the signal back; plugins are watched no more."""
        if self._thread:
            self._thread = 0
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def guarded(self, plugin: str, point: str, call: Callable[P, T]) -> Callable[P, T]:
        """Put a call into a plugin under watch; a call within a watched one shares its budget."""

        def in_time(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._armed or self._thread != threading.get_ident():
                return call_named(*args, **kwargs)
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._budget, _LOOK_AGAIN_SECONDS)
            try:
                return call_named(*args, **kwargs)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._armed = False

        def call_named(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return call(*args, **kwargs)
            except OutOfTimeError as interruption:
                message = (
                    f"was interrupted after its time budget of {self._budget:g} s; make it quicker, "
                    "or raise the setting pluginTimeBudget"
                )
                raise PluginError(plugin, point, message) from interruption

        return in_time

    def _time_is_up(self, _number: int, frame: FrameType | None) -> None:
        if self._armed and _is_in_plugin(frame):
            raise OutOfTimeError


def _is_in_plugin(frame: FrameType | None) -> bool:
    """Whether nothing but the plugin's own code runs above the innermost watched call."""
    above = frame
    while above is not None:
        module = str(above.f_globals.get("__name__", ""))
        if module == __name__:
            return above is not frame
        if module.partition(".")[0] in _NOT_TO_BE_INTERRUPTED and not module.startswith(_HARMLESS):
            return False
        above = above.f_back
    return False
