"""Exceptions raised at calls between functions of the scheduler, wherever they are.

A profile function counts the calls and raises at chosen ones, as if the called function had raised at once. So nothing
that is called must be listed, and a new function is covered without a change here.

The law holds after an exception at any call: a change is applied wholly, or its object fails closed until the
change is delivered again. Further exceptions may hit each repetition of a change. None is raised inside ``try_twice``,
and what runs twice by itself: of a step of the recovery and its repetition, one ends.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

import scheduler_core

P = ParamSpec("P")
R = TypeVar("R")
ROOT = str(Path(scheduler_core.__file__).parent)
KINDS = (RuntimeError, RecursionError, TypeError, MemoryError, KeyError, AssertionError)
"""Kinds of injected exceptions."""
_MESSAGE = "injected"
_CALLERS = (
    "scheduler.py",
    "cycle/",
    "gangs/",
    "queueing/",
    "runtime/",
    "plugins/",
    "framework/",
    "metrics/",
    "explain/",
    "feeds/",
    "snapshot/",
    "devices/",
    "cel/",
    "placement/",
    "shadows/",
    "kernels/",
    "model/",
    "change_log.py",
    "step_counter.py",
)
"""Where calls are made at which exceptions are injected."""
PRIMITIVES = {
    "queueing/sub_queues.py": "counts, places and heaps; called by the queue, at whose calls exceptions are raised",
    "cycle/internal_errors.py": "runs after an exception, and repeats a step that raises",
    "metrics/cycle_recorder.py": "appends to arrays",
}
"""Modules at whose own calls no exception is injected, with the reason. The calls of these modules are included."""
_ROOTS = frozenset(
    (
        "scheduler.py:Scheduler._batch_of_cycles",
        "scheduler.py:Scheduler._bind",
        "scheduler.py:Scheduler._flush",
        "scheduler.py:Scheduler._profile_changed",
        "scheduler.py:Scheduler._settle",
        "cycle/plugin_handle.py:ReportedDeletions._answered",
        "queueing/queue_moves.py:Moves._end_backoffs",
        "framework/waiting_pods.py:WaitingPod._time_out",
        "gangs/reservation_lifecycle.py:GangReservations._due",
        "gangs/gated_member_reports.py:GatedMembers._report_some",
        "plugins/coscheduling.py:Coscheduling._backoff_over",
    )
)
"""Loops, tasks and timers of the scheduler: exceptions are raised only at calls inside of them, or of a feed."""
_FEEDS = "feeds/"
_RECOVERY = frozenset(
    (
        "cycle/internal_errors.py:try_twice",
        "cycle/internal_errors.py:try_all",
        "plugins/default_preemption/eviction.py:Evictions._end",
    )
)
_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

FINAL = {
    "runtime/binding.py:run_post_binds": "PostBind cannot fail a bound pod: what a plugin raises is logged",
    "runtime/binding.py:_is_unreserved": "an exception here is one of a plugin that must not fail",
}
"""Functions at whose calls no exception is injected, with the reason."""
_BEFORE_A_BIND = "cycle/binding_cycle.py:BindingCycle._steps"
_LATE = frozenset(
    {"cycle/binding_cycle.py:node_of_rival", "metrics/cycle_recorder.py:CycleRecorder.__init__.<locals>.enter"}
)
"""Calls of :data:`_BEFORE_A_BIND` when the binds of the gang may have been sent: one member fails, as by a 403."""

_BEFORE_A_CHANGE = frozenset(
    {"feeds/pod_and_node_feed.py:EventHandling.take", "cycle/suspension.py:Suspension.run_or_defer"}
)
"""What a feed calls before it handles anything of a change: the same as a change that is delivered later."""

NAMES = sorted({*_ROOTS, *_RECOVERY, *FINAL, *_BEFORE_A_CHANGE, _BEFORE_A_BIND, "cycle/binding_cycle.py:node_of_rival"})
"""All functions that this module names."""

Site = tuple[str, str, int]
"""A call: the called function, the calling function, and the line of the call."""


@dataclass
class Injection:
    """An exception that was raised."""

    number: int
    site: Site
    kind: str


@dataclass
class InjectedErrors:
    """Raises at some calls while :meth:`active` is entered.

    Attributes:
        choose: Returns the exception for a call by its number and site; None to let it pass.
        roots: Names of functions; exceptions are raised only at calls inside one of them, or inside a feed.
        injected: The exceptions that were raised.
        calls: Number of calls so far.
        is_single: Whether only one exception is raised.
        is_over: Whether no further exception will be raised.
    """

    choose: Callable[[int, Site], type[BaseException] | None]
    roots: frozenset[str] = _ROOTS
    injected: list[Injection] = field(default_factory=list)
    calls: int = 0
    is_single: bool = False
    is_over: bool = False
    _eligible: dict[tuple[CodeType, CodeType], bool] = field(default_factory=dict)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Raise inside the block."""
        self.arm()
        try:
            yield
        finally:
            sys.setprofile(None)

    def arm(self) -> None:
        """Count calls from now on; an exception that is raised ends that."""
        if not self.is_over:
            sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or frame.f_back is None:
            return
        code, caller = frame.f_code, frame.f_back.f_code
        eligible = self._eligible.get((code, caller))
        if eligible is None:
            eligible = self._eligible[code, caller] = _is_eligible(code, caller)
        if not eligible:
            return
        self.calls += 1
        site = (_name(code), _name(caller), frame.f_back.f_lineno)
        kind = self.choose(self.calls, site)
        if kind is None or not self._is_inside(frame):
            return
        self.injected.append(Injection(self.calls, site, kind.__name__))
        self.is_over = self.is_single
        raise kind(_MESSAGE)

    def _is_inside(self, frame: FrameType) -> bool:
        """Return whether a call is made inside of a root, and not by the recovery from an earlier exception."""
        names = []
        above: FrameType | None = frame
        while above is not None:
            names.append(_name(above.f_code))
            above = above.f_back
        is_inside = not self.roots.isdisjoint(names) or any(map(_is_of_feed, names))
        return is_inside and _RECOVERY.isdisjoint(names)


def is_injected(fault: BaseException) -> bool:
    """Return whether an exception was injected."""
    return fault.args == (_MESSAGE,)


def _path(code: CodeType) -> str:
    return code.co_filename.removeprefix(ROOT).lstrip("/") if code.co_filename.startswith(ROOT) else ""


def _name(code: CodeType) -> str:
    return f"{_path(code)}:{code.co_qualname}"


def _is_of_feed(name: str) -> bool:
    return name.startswith(_FEEDS) and "__init__" not in name


def _is_eligible(code: CodeType, caller: CodeType) -> bool:
    called, calling = _path(code), _path(caller)
    if not called or not calling or code.co_flags & _SUSPENDABLE or code.co_name.startswith("<"):
        return False
    if _name(code) in _BEFORE_A_CHANGE or _name(caller) == "cycle/suspension.py:Suspension.run_or_defer":
        return False
    if _name(code) in _LATE and _name(caller) == _BEFORE_A_BIND:
        return False
    return calling.startswith(_CALLERS) and calling not in PRIMITIVES and _name(caller) not in FINAL


def now_and_then(seed: object, calls: int) -> Callable[[int, Site], type[BaseException] | None]:
    """Choose about one call in a number of calls, each with one of :data:`KINDS`."""
    generator = random.Random(f"{seed}/errors")
    following = [generator.randrange(1, 2 * calls)]

    def choose(number: int, _site: Site) -> type[BaseException] | None:
        if number < following[0]:
            return None
        following[0] = number + generator.randrange(1, 2 * calls)
        return generator.choice(KINDS)

    return choose


def at(number: int, kind: type[BaseException]) -> Callable[[int, Site], type[BaseException] | None]:
    """Choose one call."""
    return lambda call, _site: kind if call == number else None


def raising(errors: list[BaseException], function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises one of the errors in each call until none is left, and then calls another one."""

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if errors:
            raise errors.pop()
        return function(*args, **kwargs)

    return called
