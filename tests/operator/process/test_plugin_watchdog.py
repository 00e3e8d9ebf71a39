"""Tests that a plugin that exceeds its time budget is interrupted by a signal, like a plugin that raises.

Budgets are too long to end by themselves: a slow plugin checks that its timer runs, and lets it end at once. So no
other call is interrupted, however slow the machine is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest
from bayplan.process.loop_liveness import PluginWatchdog

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration, Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    PermitPlugin,
    PermitResult,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerPorts
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, default_rig, plugin_set, profile, rig
from tests.support.tables import table

_BUDGET_SECONDS = 300.0
_SHADOW_BUDGET_SECONDS = 100.0


@pytest.fixture
def watchdog() -> Iterator[PluginWatchdog]:
    made = PluginWatchdog(_BUDGET_SECONDS)
    made.start()
    yield made
    made.stop()


def _end_budget(at_most: float = _BUDGET_SECONDS, seconds: float = 0.001) -> None:
    """Let the time budget end after some seconds; at most a given number of seconds were left."""
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < left <= at_most
    assert interval > 0
    signal.setitimer(signal.ITIMER_REAL, seconds, interval)


def _linger(at_most: float = _BUDGET_SECONDS) -> NoReturn:
    """Run forever and continue after any exception, as a faulty plugin may."""
    _end_budget(at_most)
    while True:
        try:
            sum(range(1000))
        except Exception:  # noqa: BLE001, S112 - this is what the test needs
            continue


class SlowFilter(FilterPlugin):
    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        _linger()

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("no")


class SlowNodeFilter(NodeFilterPlugin):
    name = "Slow"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        _linger()


class SlowPreFilter(PreFilterPlugin):
    name = "Slow"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        _linger()


class SlowPreScore(PreScorePlugin):
    name = "Slow"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        _linger()


class SlowScore(ScorePlugin):
    name = "Slow"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        _linger()


class SlowReserve(ReservePlugin):
    name = "Slow"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        _linger()

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


class SlowGate(PreEnqueuePlugin):
    name = "Slow"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        _linger()


class SlowHint(NodeFilterPlugin):
    name = "Slow"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        return unschedulable("no")

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (EventRegistration(EVERY_EVENT, self._hint),)

    def _hint(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        _linger()


class SlowPreemption(NodeFilterPlugin, PostFilterPlugin):
    name = "Slow"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        return unschedulable("no")

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        running = list(nodes.pods[0].values())
        _end_budget()
        with self.handle.dry_run(state, pod) as dry_run:
            while True:
                for other in running:
                    dry_run.remove(other)
                for other in running:
                    dry_run.restore(other)


class SlowPermit(PermitPlugin):
    name = "Slow"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        _linger()


def _rig(watchdog: PluginWatchdog, plugin: type[Plugin]) -> Rig:
    made = rig([plugin], serve=False, ports=SchedulerPorts(watchdog=watchdog))
    made.serve(profile())
    made.add(node("a"), node("b"))
    return made


def _pods_by_node(made: Rig) -> list[dict[str, PodInfo]]:
    return [dict(pods) for pods in made.context.cache.columns.pods]


@table(
    "plugin, point",
    ("preFilter", SlowPreFilter, "preFilter"),
    ("filter", SlowFilter, "filter"),
    ("filter, a node at a time", SlowNodeFilter, "filter"),
    ("preScore", SlowPreScore, "preScore"),
    ("score", SlowScore, "score"),
    ("reserve", SlowReserve, "reserve"),
    ("permit", SlowPermit, "permit"),
)
async def test_an_overrunning_plugin_fails_the_attempt(
    watchdog: PluginWatchdog, plugin: type[Plugin], point: str
) -> None:
    """The attempt fails with a message that names the plugin and the extension point, and no pod stays assumed."""
    made = _rig(watchdog, plugin)
    waiting = pod("p")
    made.add(waiting)
    assert made.decide() is None
    message = str(PluginError("Slow", point, f"was interrupted after its time budget of {_BUDGET_SECONDS:g} s"))
    assert message in made.condition.message
    assert _pods_by_node(made) == [{}, {}]
    assert made.place_of(waiting) == "errorBackoff"


@pytest.mark.parametrize("plugin", [SlowPreFilter, SlowFilter, SlowScore])
async def test_a_shadow_that_loops_is_interrupted_sooner(
    watchdog: PluginWatchdog, plugin: type[Plugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin of a shadow is interrupted after the shorter budget, and the live profile binds."""
    monkeypatch.setattr(_linger, "__defaults__", (_SHADOW_BUDGET_SECONDS,))
    defaults = Plugins(multi_point=plugin_set(*BARE))
    ports = SchedulerPorts(watchdog=watchdog, shadow_watchdog=watchdog.shorter(_SHADOW_BUDGET_SECONDS))
    made = rig([plugin], defaults=defaults, ports=ports)
    config = ProfileConfig(scheduler_name="shadow", plugins=Plugins(multi_point=plugin_set("Slow")))
    shadow = made.scheduler.build(config, is_shadow=True)
    made.scheduler.shadows.serve({"shadow": (shadow, ShadowSettings("default-scheduler"))})
    made.add(node("a"), node("b"), pod("p"))
    async with made.running():
        await made.until(lambda: bool(made.bound) and not made.scheduler.binding_count)
    (running,) = made.scheduler.shadows
    assert f"was interrupted after its time budget of {_SHADOW_BUDGET_SECONDS:g} s" in running.record.last_error
    assert sorted(len(pods) for pods in _pods_by_node(made)) == [0, 1]


async def test_an_overrunning_pre_enqueue_plugin_gates_the_pod(watchdog: PluginWatchdog) -> None:
    """A PreEnqueue plugin that takes too long gates the pod."""
    made = _rig(watchdog, SlowGate)
    waiting = pod("p")
    made.add(waiting)
    assert made.place_of(waiting) == "gated"


async def test_an_overrunning_hint_retries_the_pod(watchdog: PluginWatchdog) -> None:
    """A queueing hint that takes too long requeues the pod."""
    made = _rig(watchdog, SlowHint)
    waiting = pod("p")
    made.add(waiting)
    assert made.decide() is None
    assert made.place_of(waiting) == "unschedulable"
    made.add(node("c"))
    assert made.place_of(waiting) in ("active", "backoff")


async def test_a_dry_run_is_reverted_before_the_plugin_is_interrupted(watchdog: PluginWatchdog) -> None:
    """A plugin that is interrupted during a dry run leaves all pods and sums unchanged."""
    made = _rig(watchdog, SlowPreemption)
    made.add(pod("runs", node_name="a", requests={"cpu": "1"}), pod("too", node_name="a", requests={"cpu": "1"}))
    columns = made.context.cache.columns
    pods_before, requested = _pods_by_node(made), columns.requested.copy()
    made.add(pod("p", requests={"cpu": "64"}))
    assert made.decide() is None
    assert 'plugin "Slow" failed at postFilter: was interrupted' in made.condition.message
    assert _pods_by_node(made) == pods_before
    assert (columns.requested == requested).all()


def test_the_schedulers_own_code_is_not_interrupted(watchdog: PluginWatchdog) -> None:
    """The interruption waits until the scheduler's own code that the plugin called has ended."""
    ended: list[int] = []
    source = "import time\ndef change(ended, end):\n    end()\n    time.sleep(0.05)\n    ended.append(1)\n"
    own: dict[str, Any] = {"__name__": "scheduler_core.queueing.pretended"}
    exec(source, own)  # noqa: S102 - code that belongs to a module of the scheduler

    def call() -> None:
        own["change"](ended, _end_budget)
        while True:
            sum(range(1000))

    with pytest.raises(PluginError, match="interrupted"):
        watchdog.guarded("Slow", "filter", call)()
    assert ended == [1]


def test_a_nested_call_is_named_and_shares_the_budget(watchdog: PluginWatchdog) -> None:
    """The error names the inner plugin, and the outer plugin gets no second budget."""
    inner = watchdog.guarded("Inner", "filter", lambda: _linger(at_most=_BUDGET_SECONDS / 2))

    def outer() -> None:
        _end_budget(seconds=_BUDGET_SECONDS / 2)
        inner()

    with pytest.raises(PluginError, match='running "Inner" filter plugin'):
        watchdog.guarded("Outer", "postFilter", outer)()


def test_a_call_that_blocks_is_interrupted(watchdog: PluginWatchdog) -> None:
    """A plugin that blocks on a lock is interrupted."""
    # A wait that is implemented in Python, such as Event.wait, could be interrupted twice and fail with another error.
    pods_before = threading.Lock()
    pods_before.acquire()

    def block() -> None:
        _end_budget(seconds=0.05)
        pods_before.acquire(timeout=60)

    with pytest.raises(PluginError, match='running Score plugins: plugin "Slow" failed with'):
        watchdog.guarded("Slow", "score", block)()


def test_a_call_in_time_is_not_disturbed_later(watchdog: PluginWatchdog) -> None:
    """The timer ends with the call."""
    assert watchdog.guarded("Quick", "filter", lambda: 7)() == 7
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_another_thread_is_not_watched(watchdog: PluginWatchdog) -> None:
    """A call in another thread is not interrupted, because the signal reaches only the main thread."""
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(watchdog.guarded("Quick", "filter", lambda: 7)()))
    thread.start()
    thread.join()
    assert results == [7]


async def test_built_in_plugins_are_not_watched(watchdog: PluginWatchdog) -> None:
    """Methods of built-in plugins are not wrapped, so their cycles have no overhead."""
    ports = SchedulerPorts(watchdog=watchdog)
    made = default_rig(plugins=[SlowScore], serve=False, ports=ports)
    (instance,) = made.serve(profile())
    assert not any(set(vars(plugin)) & {"filter", "score", "pre_filter"} for plugin in instance.plugins.values())
