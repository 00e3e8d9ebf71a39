"""Puts plugins that are not built in under a watchdog, and turns what they raise into errors that name them.

The methods are replaced on the plugin when it is created, so built-in plugins cost nothing and call sites stay as they
are. The methods are those of the classes of :mod:`scheduler_core.framework` that the plugin subclasses, so a new method
of the API is covered too. Methods that await are watched between two awaits, and a plugin that takes one node at a time
over all nodes of a call.

``SystemExit`` and other exceptions that are no ``Exception`` are errors of the plugin as well: only
``KeyboardInterrupt`` passes, and the cancellation of the task that calls the method.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from scheduler_core.errors import PluginError, SchedulerCoreError
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.device_choices import DeviceChoice
from scheduler_core.framework.extension_points import FilterPlugin, ScorePlugin
from scheduler_core.framework.plugin import Plugin, always
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.waiting_pods import is_task_cancelled
from scheduler_core.ports import Watchdog
from scheduler_core.runtime.node_adapters import FilterRunner, NodeFilterAdapter, NodeScoreAdapter, ScoreRunner

Runner = TypeVar("Runner", bound=FilterRunner | ScoreRunner)
Watched = TypeVar("Watched", bound=Plugin | FilterRunner | ScoreRunner)
Call = Callable[..., Any]

_API = "scheduler_core.framework."
_POINTS: Mapping[str, str] = {
    method: point
    for point, methods in {
        "preEnqueue": ("preview_gate",),
        "queueSort": ("sort_key",),
        "preFilter": ("reuse_check",),
        "preFilterAddPod": ("add_pod",),
        "preFilterRemovePod": ("remove_pod",),
        "filter": ("filter_row", "filter_node", "filter_sums", "decode", "shortages", "details", "claims_on"),
        "postFilter": (
            "post_filter_with", "preview", "candidates_for_member", "least_harmful", "is_awaited", "evict_for_gang",
            "post_filter_for_gang", "plan", "carry_out", "plan_for_gang", "carry_out_for_gang",
        ),
        "score": ("score_row", "score_node"),
        "normalizeScore": ("normalize",),
        "reserve": ("gang_search_steps", "needs_devices", "device_choices", "found_devices"),
        "preBind": ("planned_writes",),
    }.items()
    for method in methods
}  # fmt: skip
"""Extension points of methods that do not have its name."""


def plugin_methods(kind: type) -> list[str]:
    """Return the methods of a plugin class that the scheduler calls: those that its base classes in the API define."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.startswith(_API):
            methods = [name for name, each in vars(base).items() if inspect.isfunction(each)]
            names.update((name, None) for name in methods if not name.startswith("_"))
    return list(names)


def _point_of(method: str) -> str:
    first, *others = method.split("_")
    return _POINTS.get(method) or first + "".join(map(str.capitalize, others))


def _ends_loop(fault: BaseException, *_: object, **__: object) -> bool:
    """Return whether a slice ended within the call, where the scheduling loop was cancelled."""
    return isinstance(fault, asyncio.CancelledError) and is_task_cancelled()


def _is_thrown(fault: BaseException, _resume: object, value: object) -> bool:
    """Return whether *value* was thrown into a method, and ends its task or closes its coroutine.

    Otherwise it is the outcome of what the method awaits, such as a task of the plugin that was cancelled.
    """
    is_same = isinstance(value, BaseException) and isinstance(fault, type(value))
    return is_same and (_ends_loop(fault) or isinstance(fault, GeneratorExit))


class PluginTimeBudget:
    """Watches what is not built in, as an instance is built.

    Attributes:
        calls: Number of calls in progress. A plugin may catch what ends a long search within its call, or stop midway.
    """

    def __init__(self, registry: Registry, watchdog: Watchdog | None) -> None:
        self.calls = 0
        self._registry = registry
        self._watchdog = watchdog

    def is_built_in(self, plugin: Plugin) -> bool:
        return self._registry.is_built_in(plugin.name)

    def runner(self, runner: Runner) -> Runner:
        """Watch an adapter of a plugin; a plugin that is its own runner is watched already."""
        if isinstance(runner, NodeFilterAdapter | NodeScoreAdapter):
            names = plugin_methods(FilterPlugin) + plugin_methods(ScorePlugin)
            return self._watch(runner, [name for name in names if hasattr(runner, name)])
        return runner

    def watch(self, called: Watched) -> Watched:
        names = dict.fromkeys((*plugin_methods(type(called)), *_POINTS))
        return self._watch(called, [name for name in names if callable(getattr(called, name, None))])

    def _watch(self, called: Watched, methods: list[str]) -> Watched:
        if not self._registry.is_built_in(called.name):
            for method in methods:
                setattr(called, method, self._watched(called.name, method, getattr(called, method)))
        return called

    def _watched(self, plugin: str, method: str, call: Call) -> Call:
        point = _point_of(method)
        if inspect.iscoroutinefunction(call):
            return self._awaited(plugin, point, call)
        watched = self._guarded(plugin, point, call)
        if method == "reuse_check":
            return self._returning(watched, lambda check: self._check(plugin, point, check))
        if method == "device_choices":
            return self._returning(watched, lambda choices: self._choices(plugin, point, choices))
        return watched

    def _guarded(self, plugin: str, point: str, call: Call, passes: Callable[..., bool] = _ends_loop) -> Call:
        """Watch calls; *passes* returns whether an exception, of a call with some arguments, is none of the plugin."""
        guarded = call if self._watchdog is None else self._watchdog.guarded(plugin, point, call)

        @functools.wraps(guarded)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            try:
                return guarded(*args, **kwargs)
            except (SchedulerCoreError, KeyboardInterrupt):
                raise
            except BaseException as fault:
                if passes(fault, *args):
                    raise
                raise PluginError(plugin, point, f"raised {type(fault).__name__}: {fault}") from fault
            finally:
                self.calls -= 1

        return called

    def _returning(self, call: Call, convert: Callable[[Any], Any]) -> Call:
        @functools.wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            return convert(call(*args, **kwargs))

        return called

    def _check(self, plugin: str, point: str, check: Call | None) -> Call | None:
        return check if check is None or check is always else self._guarded(plugin, point, check)

    def _choices(self, plugin: str, point: str, choices: Iterator[DeviceChoice]) -> Iterator[DeviceChoice]:
        following = self._guarded(plugin, point, lambda: next(choices, None))
        while (choice := following()) is not None:
            yield choice

    def _awaited(self, plugin: str, point: str, call: Call) -> Call:
        """Watch a method that awaits: each of its steps from one await to the next."""

        @functools.wraps(call)
        async def called(*args: Any, **kwargs: Any) -> Any:
            return await _steps(call(*args, **kwargs), self._step(plugin, point))

        if self._watchdog is not None:
            # Marks the method as one that is watched, as the watchdog marks others.
            vars(called).update(vars(self._watchdog.guarded(plugin, point, call)))
        return called

    def _step(self, plugin: str, point: str) -> Call:
        def step(resume: Callable[[Any], Any], value: Any) -> tuple[bool, Any]:
            try:
                return False, resume(value)
            except StopIteration as end:
                return True, end.value

        return self._guarded(plugin, point, step, _is_thrown)

    def registrations(self, plugin: Plugin) -> tuple[EventRegistration, ...]:
        """Return the events that a plugin registers, with hints that are watched."""
        registered = tuple(plugin.events_to_register())
        if self._registry.is_built_in(plugin.name):
            return registered
        return tuple(
            each if each.hint is None else replace(each, hint=self._guarded(plugin.name, "queueingHint", each.hint))
            for each in registered
        )


@types.coroutine
def _steps(awaitable: Awaitable[Any], step: Call) -> Generator[Any, Any, Any]:
    coroutine = awaitable.__await__()
    resume, value = coroutine.send, None
    while True:
        is_over, result = step(resume, value)
        if is_over:
            return result
        try:
            resume, value = coroutine.send, (yield result)
        except BaseException as thrown:
            resume, value = coroutine.throw, thrown
