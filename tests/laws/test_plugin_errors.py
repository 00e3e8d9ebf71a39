"""Plugins that are not built in: every method of the API is watched, and whatever it raises fails one pod or gang.

The methods are found by reflection over :mod:`scheduler_core.framework`, so that a new one that is not covered fails.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

import scheduler_core.framework
from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration, Hint
from scheduler_core.framework.device_choices import DeviceChoice
from scheduler_core.framework.extension_points import (
    BindPlugin,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    PermitPlugin,
    PermitResult,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler_core.framework.gang_preemptor import GangPreemptor
from scheduler_core.framework.plugin import Normalization, always
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.status import SKIP, SUCCESS
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.node_adapters import filter_runner, score_runner
from scheduler_core.runtime.plugin_time_budget import PluginTimeBudget
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, gang_of, group, members
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig, plugin_set, profile
from tests.support.tables import table

NAME = "Third"
KINDS: tuple[type[BaseException], ...] = (
    RuntimeError, RecursionError, TypeError, MemoryError, KeyError, AssertionError,
    SystemExit, GeneratorExit, asyncio.CancelledError,
)  # fmt: skip


def interfaces() -> list[type]:
    """Return all abstract classes that a plugin may subclass: those of the package that plugin authors import."""
    found: dict[type, None] = {}
    for module in pkgutil.iter_modules(scheduler_core.framework.__path__):
        for each in vars(importlib.import_module(f"scheduler_core.framework.{module.name}")).values():
            if inspect.isclass(each) and each.__module__.startswith("scheduler_core.framework."):
                is_protocol = getattr(each, "_is_protocol", False)
                if issubclass(each, ABC) and not is_protocol:
                    found[each] = None
    return list(found)


def api_methods() -> list[tuple[type, str]]:
    """Return the public methods of these classes."""
    return [
        (kind, name)
        for kind in interfaces()
        for name, each in vars(kind).items()
        if not name.startswith("_") and callable(each)
    ]


class Watch:
    """Watchdog that records the calls under watch, by plugin and point."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.depth = 0

    def guarded(self, plugin: str, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Count the call."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((plugin, point))
            self.depth += 1
            try:
                return call(*args, **kwargs)
            finally:
                self.depth -= 1

        return watched


def build(kind: type, methods: Mapping[str, Callable[..., Any]], watch: Watch | None) -> Any:
    """Return a plugin that subclasses an interface and has some methods, under watch."""
    abstract = {name: lambda *_: None for name in getattr(kind, "__abstractmethods__", ())}
    bases = (kind,) if issubclass(kind, Plugin) else (kind, FilterPlugin)
    more = {name: lambda *_: None for name in getattr(FilterPlugin, "__abstractmethods__", ())}
    cls = type(NAME, bases, {**more, **abstract, **methods, "name": NAME})
    return PluginTimeBudget(Registry(), watch).watch(cls(None, None))


def test_interfaces_are_found() -> None:
    """The reflection finds the extension points and the mixins."""
    names = {kind.__name__ for kind in interfaces()}
    assert names >= {"Plugin", "FilterPlugin", "SumsFilter", "GangPreemptor", "DeviceChooser", "ClaimsFilter"}
    assert len(api_methods()) > 30


@pytest.mark.parametrize(("kind", "method"), api_methods(), ids=lambda each: getattr(each, "__name__", each))
def test_every_method_is_watched(kind: type, method: str) -> None:
    """A call of any method of the API runs under the watchdog, methods that await between two awaits."""
    watch, depths = Watch(), []
    is_async = inspect.iscoroutinefunction(getattr(kind, method))

    def called(*_: Any) -> Any:
        depths.append(watch.depth)
        return iter(()) if method == "device_choices" else None

    async def awaited(*_: Any) -> None:
        depths.append(watch.depth)
        await asyncio.sleep(0)
        depths.append(watch.depth)

    plugin = build(kind, {method: awaited if is_async else called}, watch)
    parameters = len(inspect.signature(getattr(kind, method)).parameters) - 1
    result = getattr(plugin, method)(*range(parameters))
    if is_async:
        asyncio.run(_run(result))
    elif method == "device_choices":
        assert list(result) == []
    assert depths
    assert all(depths)
    assert {name for name, _ in watch.calls} == {NAME}


async def _run(awaitable: Any) -> Any:
    return await awaitable


@pytest.mark.parametrize("raised", KINDS)
@pytest.mark.parametrize(("kind", "method"), api_methods(), ids=lambda each: getattr(each, "__name__", each))
def test_every_exception_names_the_plugin(kind: type, method: str, raised: type[BaseException]) -> None:
    """What a method raises becomes a PluginError, also SystemExit or CancelledError."""
    is_async = inspect.iscoroutinefunction(getattr(kind, method))

    def fail(*_: Any) -> None:
        raise raised("broken")

    async def fail_later(*_: Any) -> None:
        await asyncio.sleep(0)
        raise raised("broken")

    plugin = build(kind, {method: fail_later if is_async else fail}, None)
    parameters = len(inspect.signature(getattr(kind, method)).parameters) - 1

    def call() -> None:
        result = getattr(plugin, method)(*range(parameters))
        if is_async:
            asyncio.run(_run(result))

    with pytest.raises(PluginError, match=f"raised {raised.__name__}: .*broken") as caught:
        call()
    assert caught.value.plugin == NAME


@pytest.mark.parametrize("raised", [RuntimeError, asyncio.CancelledError])
@pytest.mark.parametrize("kind", [PreBindPlugin, BindPlugin])
def test_the_outcome_of_what_a_method_awaits_names_the_plugin(kind: type, raised: type[BaseException]) -> None:
    """An exception of a task that a method awaits is an error of the plugin, also if that task was cancelled."""

    async def fails() -> None:
        raise raised("broken")

    async def awaits(*_: Any) -> None:
        await asyncio.ensure_future(fails())

    method = "bind" if kind is BindPlugin else "pre_bind"
    with pytest.raises(PluginError, match=f"raised {raised.__name__}") as caught:
        asyncio.run(getattr(build(kind, {method: awaits}, Watch()), method)(None, None, "n"))
    assert caught.value.plugin == NAME


def test_a_method_that_awaits_can_be_cancelled() -> None:
    """The cancellation of its task is no error of the plugin."""

    async def wait(*_: Any) -> None:
        await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.ensure_future(build(PreBindPlugin, {"pre_bind": wait}, Watch()).pre_bind(None, None, "n"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_what_a_method_returns_is_watched() -> None:
    """Checks of reuse, queueing hints and choices of devices run under the watchdog when they are called later."""
    watch, depths = Watch(), []

    def check() -> bool:
        depths.append(watch.depth)
        return True

    def hint(*_: Any) -> Hint:
        depths.append(watch.depth)
        return Hint.SKIP

    def choices(*_: Any) -> Iterator[DeviceChoice]:
        depths.append(watch.depth)
        yield DeviceChoice("one", ())
        depths.append(watch.depth)

    methods = {
        "reuse_check": lambda *_: check,
        "events_to_register": lambda *_: (EventRegistration(EVERY_EVENT, hint),),
        "device_choices": choices,
    }
    plugin = build(FilterPlugin, methods, watch)
    assert plugin.reuse_check(None, None)()
    (registration,) = PluginTimeBudget(Registry(), watch).registrations(plugin)
    assert registration.hint is not None
    assert registration.hint(pod("p"), None, None) is Hint.SKIP
    assert [each.key for each in plugin.device_choices(None, "n", None)] == ["one"]
    assert depths == [1, 1, 1, 1]
    assert build(FilterPlugin, {"reuse_check": lambda *_: always}, watch).reuse_check(None, None) is always


@table(
    "kind, adapt, methods",
    ("filter_node", NodeFilterPlugin, filter_runner, ("filter", "decode")),
    ("score_node", NodeScorePlugin, score_runner, ("score", "normalize")),
)
def test_adapters_are_watched(kind: type[Plugin], adapt: Callable[[Plugin], Any], methods: tuple[str, ...]) -> None:
    """A plugin that takes one node at a time is watched over all nodes of a call."""
    watch = Watch()
    adapter = PluginTimeBudget(Registry(), watch).runner(adapt(build(kind, {}, watch)))
    for method in methods:
        with pytest.raises(PluginError):
            getattr(adapter, method)(*(None for _ in inspect.signature(getattr(adapter, method)).parameters))
    assert len([call for call in watch.calls if call[0] == NAME]) == len(methods)


# -- one plugin in a scheduler --------------------------------------------------------------------------------------


def _third(method: str, raised: type[BaseException], times: int, *, by_task: bool = False) -> type[Plugin]:
    """Return a plugin with every extension point, of which one method raises a number of times.

    With *by_task* a task raises that the method awaits.
    """
    left = [times]

    def fails(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            if name == method and left[0] > 0:
                left[0] -= 1
                raise raised("broken")
            return otherwise(self, *args)

        async def awaiting(self: Any, *args: Any) -> Any:
            if by_task:
                return await asyncio.ensure_future(task(self, *args))
            return call(self, *args)

        async def task(self: Any, *args: Any) -> Any:
            return call(self, *args)

        return awaiting if name in ("pre_bind", "bind") else call

    plain: dict[str, Callable[..., Any]] = {
        "pre_enqueue": lambda *_: SUCCESS,
        "sort_key": lambda _, queued: (-queued.info.priority, queued.timestamp, queued.sequence),
        "pre_filter": lambda *_: PreFilterResult(),
        "add_pod": lambda *_: SUCCESS,
        "remove_pod": lambda *_: SUCCESS,
        "filter": lambda *_: None,
        "pre_score": lambda *_: SUCCESS,
        "score": _zeros,
        "normalize": lambda _self, _state, _pod, raw: raw,
        "reserve": lambda *_: SUCCESS,
        "unreserve": lambda *_: None,
        "permit": lambda *_: PermitResult(),
        "pre_bind_pre_flight": lambda *_: SUCCESS,
        "pre_bind": lambda *_: SUCCESS,
        "bind": lambda *_: SKIP,
        "post_bind": lambda *_: None,
        "reuse_check": lambda *_: always,
        "events_to_register": lambda *_: (EventRegistration(EVERY_EVENT),),
    }
    bases = (
        PreEnqueuePlugin, QueueSortPlugin, PreFilterPlugin, PreFilterExtensions, FilterPlugin, PreScorePlugin,
        ScorePlugin, ReservePlugin, PermitPlugin, PreBindPlugin, BindPlugin, PostBindPlugin,
    )  # fmt: skip
    methods = {name: fails(name, otherwise) for name, otherwise in plain.items()}
    return type(NAME, bases, {**methods, "name": NAME, "normalization": Normalization.OWN})


def _zeros(_self: Any, _state: Any, _pod: Any, nodes: Any, rows: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - for one value

    return np.zeros(nodes.size if isinstance(rows, slice) else len(rows), dtype=np.int64)


METHODS = (
    "pre_enqueue", "sort_key", "pre_filter", "filter", "pre_score", "score", "normalize", "reserve", "unreserve",
    "permit", "pre_bind_pre_flight", "pre_bind", "bind", "post_bind", "reuse_check",
)  # fmt: skip


async def _settle(made: Rig, *pods: Pod) -> None:
    """Run the scheduler for five virtual minutes, with the flushes of the queue; a watch confirms the binds of pods."""
    confirmed: set[str] = set()
    for _ in range(20):
        for _ in range(60):
            await asyncio.sleep(0)
        for each in pods:
            name = each.metadata.name
            if name in made.bound and name not in confirmed:
                confirmed.add(name)
                bound = replace(each, spec=replace(each.spec, node_name=made.bound[name]))
                made.scheduler.feed.pod_updated(each, bound)
        made.clock.advance(15.0)


def _third_rig(plugin: type[Plugin]) -> Rig:
    made = gang_rig(plugins=[plugin])
    enabled = plugin_set(NAME)
    first = plugin_set(NAME, "DefaultBinder", disabled=["*"])
    made.serve(profile(plugins=Plugins(multi_point=enabled, queue_sort=plugin_set(NAME, disabled=["*"]), bind=first)))
    return made


def _is_clean(made: Rig) -> bool:
    context = made.context
    counts = made.queue.readings.counts()
    return (
        made.queue.readings.in_flight_count == 0
        and not context.cache.columns.overlays
        and not len(context.waiting)
        and all(min(each.active, each.backoff, each.unschedulable, each.gated) >= 0 for each in counts.values())
        and all(live.in_flight == 0 for live in context.profiles)
    )


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("raised", KINDS)
@pytest.mark.parametrize("method", METHODS)
async def test_pods_and_gangs_survive_a_plugin_that_raises(
    method: str, raised: type[BaseException], times: int
) -> None:
    """Two pods and a gang are bound in the end, on nodes that have room for them, and nothing is left over."""
    await _survives(_third_rig(_third(method, raised, times)))


@pytest.mark.parametrize("raised", [RuntimeError, asyncio.CancelledError])
@pytest.mark.parametrize("method", ["pre_bind", "bind"])
async def test_pods_and_gangs_survive_a_plugin_whose_task_raises(method: str, raised: type[BaseException]) -> None:
    """A pod is not lost if its plugin awaits a task that fails or is cancelled."""
    await _survives(_third_rig(_third(method, raised, 3, by_task=True)))


async def _survives(made: Rig) -> None:
    made.add(node("n0", allocatable={"cpu": "3", "pods": "10"}), node("n1", allocatable={"cpu": "3", "pods": "10"}))
    async with made.running():
        pods = [pod("a", requests={"cpu": "1"}), pod("b", requests={"cpu": "1"}), *members(3)]
        add_groups(made, group(min_member=3))
        made.add(*pods)
        await _settle(made, *pods)
        assert set(made.bound) == {"a", "b", "train-0", "train-1", "train-2"}
        assert made.columns.requested[0].sum() == 5000
        assert _is_clean(made)
    assert len(made.writer.bindings) == 5


class BrokenPreemptor(PostFilterPlugin, GangPreemptor):
    """Preempts for gangs, and raises in one method."""

    name = "Broken"
    method = ""
    raised: type[BaseException] = RuntimeError

    def _fail(self, method: str, otherwise: Any) -> Any:
        if method == self.method:
            raise self.raised("broken")
        return otherwise

    def post_filter(self, *_: Any) -> Any:
        return self._fail("post_filter", None)

    def candidates_for_member(self, *_: Any) -> Any:
        return self._fail("candidates_for_member", None)

    def least_harmful(self, candidates: Any) -> Any:
        return self._fail("least_harmful", candidates[0])

    def is_awaited(self, *_: Any) -> bool:
        return bool(self._fail("is_awaited", False))

    def evict_for_gang(self, *_: Any) -> None:
        self._fail("evict_for_gang", None)


@pytest.mark.parametrize("raised", KINDS)
@pytest.mark.parametrize("method", ["candidates_for_member", "is_awaited"])
async def test_a_gang_survives_a_preemptor_that_raises(
    method: str, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gang is reported with the plugin and backs off, the loop runs, and another pod is bound."""
    monkeypatch.setattr(BrokenPreemptor, "method", method)
    monkeypatch.setattr(BrokenPreemptor, "raised", raised)
    made = gang_rig(plugins=[BrokenPreemptor])
    made.serve(profile(plugins=Plugins(post_filter=plugin_set("Broken", disabled=["*"]))))
    made.add(
        node("n0", allocatable={"cpu": "1", "pods": "10"}),
        pod("low", node_name="n0", requests={"cpu": "1"}),
    )
    waiting = members(1, priority=10, nominated_node="n0") if method == "is_awaited" else members(1, priority=10)
    add_groups(made, group(min_member=1, priority=10))
    made.add(*waiting)
    before = made.columns.requested.tolist()
    async with made.running() as _:
        for _ in range(50):
            await asyncio.sleep(0)
        assert made.columns.requested.tolist() == before
        assert made.condition.reason == "SchedulerError"
        assert 'plugin "Broken" failed at postFilter' in made.condition.message
        outcome = present(gang_of(made).outcome)
        assert outcome.reason == "SchedulerError"
        assert made.queue.readings.counts()["default-scheduler"].backoff == 1
        record = made.context.metrics.records["default-scheduler"]
        assert "Broken" in record.last_error
        assert record.last_error_at == made.clock.wall()
        made.add(node("n1", allocatable={"cpu": "4", "pods": "10"}), pod("other", requests={"cpu": "1"}))
        await _settle(made)
        assert set(made.bound) >= {"other"}
        assert _is_clean(made)
