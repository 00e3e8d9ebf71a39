"""The scheduler: profiles that become live and are withdrawn, the loop, and how it stops."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import ConfigError, ServerUnavailableError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult, QueueSortPlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code, Status, unresolvable
from scheduler_core.in_tree import default_plugins
from scheduler_core.ports import Binding
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, configured, plugin_set, profile, rig

WEB = pod("web")


class ByName(QueueSortPlugin):
    """Orders pods by name."""

    name = "ByName"

    def sort_key(self, pod: QueuedPod) -> str:
        return pod.info.pod.metadata.name


BY_NAME = Plugins(queue_sort=plugin_set("ByName", disabled=["*"]))


def waits(seconds: float = 10) -> PermitResult:
    return PermitResult(Status(Code.WAIT), seconds)


# -- profiles -------------------------------------------------------------------------------------------------------


async def test_a_swap_in_mid_flight_ends_on_the_old_instance() -> None:
    """The pod keeps its revision; the old instance is closed once, after its last pod, and the new one is not."""
    journal = Journal(results={"Old.permit": waits()})
    made = rig([recorder("Old", journal), recorder("New", journal)], serve=False)
    old, new = (Plugins(multi_point=plugin_set(disabled=[name])) for name in ("New", "Old"))
    made.serve(profile(plugins=old))
    made.add(node("n0"), WEB)
    attempt = made.decide()
    assert attempt is not None
    task = asyncio.get_running_loop().create_task(made.scheduler.cycles.binding.bind(attempt))
    await asyncio.sleep(0)

    made.serve(profile(plugins=new))
    assert journal.plugins_at("close") == []
    waiting = made.context.waiting.get(WEB.metadata.uid)
    assert waiting is not None
    waiting.allow("Old")
    assert await task

    assert journal.plugins_at("postBind") == ["Old"]
    assert journal.plugins_at("close") == ["Old"]
    made.add(pod("next"))
    assert await made.attempt() == "n0"
    assert journal.plugins_at("postBind") == ["Old", "New"]
    assert journal.plugins_at("close") == ["Old"]


def test_an_old_instance_without_pods_is_closed_at_once() -> None:
    """It is not used any more; a plugin that fails to close does not prevent the others from closing."""
    journal = Journal(results={"A.close": ValueError("stuck")})
    made = rig([recorder("A", journal), recorder("B", journal)])
    made.serve(profile(percentage=50))
    assert journal.plugins_at("close") == ["A", "B"]


def test_a_failed_attempt_ends_on_its_instance_too() -> None:
    """The instance is closed after it."""
    journal = Journal()
    made = rig([recorder("Rec", journal)])
    (second,) = made.serve(profile(percentage=50))
    journal.calls.clear()
    made.add(WEB)
    assert made.decide() is None
    assert second.in_flight == 0
    made.queue.close()


@pytest.mark.parametrize(
    ("config", "path"),
    [
        pytest.param(profile(plugins=Plugins(score=plugin_set("Nope"))), "plugins.score.enabled[0].name", id="unknown"),
        pytest.param(configured("default-scheduler", "NodeName", {"x": 1}), "pluginConfig[0].args", id="no-args"),
        pytest.param(
            configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": 3}),
            "pluginConfig[0].args.ignoredResources",
            id="bad-args",
        ),
        pytest.param(configured("default-scheduler", "Nope", {}), "pluginConfig[0].name", id="config-of-unknown"),
    ],
)
def test_a_bad_profile_leaves_the_live_one(config: object, path: str) -> None:
    """The error has its problems with their paths; pods are scheduled as before."""
    made = rig(defaults=default_plugins())
    live = made.context.profiles.get("default-scheduler")
    with pytest.raises(ConfigError) as raised:
        made.scheduler.build(config)  # type: ignore[arg-type]  # the table holds profiles only
    assert [problem.path for problem in raised.value.problems] == [path]
    assert made.context.profiles.get("default-scheduler") is live
    made.add(node("n0"), WEB)
    assert made.decide() is not None


def test_a_plugin_that_cannot_be_made_is_a_problem() -> None:
    """Plugins that were created before it are closed."""
    journal = Journal()
    first = recorder("First", journal)

    def fail(_self: object, _args: object, _handle: object) -> None:
        raise OSError("no licence")

    second = type("Second", (recorder("Second", journal),), {"__init__": fail})
    made = rig([first, second], serve=False)
    with pytest.raises(ConfigError, match='plugin "Second" cannot be created: no licence'):
        made.scheduler.build(profile())
    assert journal.plugins_at("close") == ["First"]


def test_profiles_must_share_a_queue_sort_plugin() -> None:
    """A profile with another QueueSort plugin is rejected, and the live ones stay."""
    made = rig([ByName], defaults=Plugins(multi_point=plugin_set("PrioritySort", "DefaultBinder")))
    other = made.scheduler.build(profile("batch", BY_NAME))
    with pytest.raises(
        ConfigError, match=r"plugins\.queueSort: profile default-scheduler uses QueueSort plugin Priority"
    ):
        made.scheduler.activate([other])
    assert "batch" not in made.context.profiles


def test_all_profiles_change_their_order_together() -> None:
    """Waiting pods are reordered, whatever types the keys of the two plugins have."""
    made = rig([ByName], defaults=Plugins(multi_point=plugin_set("PrioritySort", "DefaultBinder")), serve=False)
    made.serve(profile(), profile("batch"))
    made.add(pod("b"), pod("d", scheduler_name="batch"), pod("c"), pod("a", scheduler_name="batch"))
    made.serve(profile(plugins=BY_NAME), profile("batch", BY_NAME))
    assert [made.pop().info.pod.metadata.name for _ in range(4)] == ["a", "b", "c", "d"]


def test_a_withdrawn_profile_leaves_its_pods_pending() -> None:
    """They are scheduled when a profile of the name is live again."""
    made = rig()
    made.add(node("n0"), WEB)
    made.scheduler.withdraw("default-scheduler")
    assert (made.place_of(WEB), made.queue.pop()) == ("parked", None)
    made.serve(profile())
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == "n0"


def test_a_swap_retries_parked_pods_by_the_new_plugins() -> None:
    """A pod that the old profile rejected is retried at once."""
    journal = Journal(results={"Rec.preFilter": PreFilterResult(unresolvable("never"))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    assert made.decide() is None
    made.serve(profile(plugins=Plugins(multi_point=plugin_set(disabled=["Rec"]))))
    assert made.decide() is not None


def test_backoffs_are_the_profiles_or_the_schedulers() -> None:
    """A profile's settings take precedence over the options."""
    made = rig(options=SchedulerOptions(initial_backoff_seconds=3))
    made.serve(profile("own").model_copy(update={"pod_initial_backoff_seconds": 7}))
    made.add(WEB, pod("own", scheduler_name="own"))
    first, second = made.pop(), made.pop()
    for queued in (first, second):
        made.queue.failed(queued)
    assert [first.backoff_until, second.backoff_until] == [1004, 1008]
    made.queue.close()


# -- the loop -------------------------------------------------------------------------------------------------------


class SlowWriter(RecordingWriter):
    """Responds to a bind when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.under_way = self.busiest = 0

    async def bind(self, binding: Binding) -> None:
        self.under_way += 1
        self.busiest = max(self.busiest, self.under_way)
        await self.gate.wait()
        self.under_way -= 1
        await super().bind(binding)


def slow_rig(options: SchedulerOptions | None = None) -> tuple[Rig, SlowWriter]:
    """Return a scheduler whose binds take as long as the test wants."""
    plain = rig(options=options)
    writer = SlowWriter()
    made = Rig(Scheduler(plain.clock, writer, options), plain.clock, writer)
    made.serve(profile())
    return made, writer


async def test_the_loop_schedules_what_comes() -> None:
    """Before it runs, while it runs, and after a backoff."""
    made = rig(defaults=default_plugins())
    made.add(node("n0"), WEB)
    async with made.running():
        await made.scheduler.until_idle()
        assert made.bound == {"web": "n0"}
        made.writer.fail_binds([ServerUnavailableError("away")])
        made.add(pod("late"))
        await made.until(lambda: made.place_of(pod("late")) == "errorBackoff")
        made.clock.advance(2)
        await made.scheduler.until_idle()
        assert made.bound == {"web": "n0", "late": "n0"}


async def test_the_loop_survives_what_plugins_do() -> None:
    """A plugin that raises fails only its pod; the next one is bound."""
    journal = Journal(results={"Rec.filter": ZeroDivisionError("boom")})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: made.place_of(WEB) == "errorBackoff")
        journal.results.clear()
        made.add(pod("next"))
        await made.scheduler.until_idle()
        assert made.bound == {"next": "n0"}


async def test_backpressure() -> None:
    """No more binds than allowed are in progress, and all are done."""
    made, writer = slow_rig(SchedulerOptions(max_binding=3))
    made.add(node("n0"), *(pod(f"p{number}") for number in range(10)))
    async with made.running():
        await made.until(lambda: writer.under_way == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (writer.under_way, len(made.queue.readings)) == (3, 7)
        writer.gate.set()
        await made.scheduler.until_idle()
    assert (writer.busiest, len(made.bound)) == (3, 10)


async def test_pods_that_wait_at_permit_do_not_hold_others_back() -> None:
    """They use no connection; otherwise a gang larger than the bound would wait for itself."""
    journal = Journal(results={"Rec.permit": waits(60)})
    made = rig([recorder("Rec", journal)], options=SchedulerOptions(max_binding=2))
    made.add(node("n0"), *(pod(f"p{number}") for number in range(5)))
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 5)
        for waiting in made.context.waiting:
            waiting.allow("Rec")
        await made.scheduler.until_idle()
    assert len(made.bound) == 5


async def test_stop_lets_binds_finish() -> None:
    """Binds in progress finish; pods that wait at Permit are released."""
    made, writer = slow_rig()
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: writer.under_way == 1)
    stopping = asyncio.get_running_loop().create_task(made.scheduler.stop(5))
    await asyncio.sleep(0)
    assert not stopping.done()
    writer.gate.set()
    await stopping
    assert made.bound == {"web": "n0"}


async def test_stop_gives_back_what_waits() -> None:
    """A pod at Permit is not bound any more, and its node is free."""
    journal = Journal(results={"Rec.permit": waits(600)})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 1)
    await made.scheduler.stop(5)
    assert made.bound == {}
    assert made.context.cache.columns.pod_count.tolist() == [0]
    assert journal.plugins_at("unreserve") == ["Rec"]


async def test_stop_is_no_failure_of_the_pods_that_wait() -> None:
    """Nothing is written about them: the next process schedules them."""
    made = rig([recorder("Rec", Journal(results={"Rec.permit": waits(600)}))])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 1)
    await made.scheduler.stop(5)
    assert made.writer.events == []
    assert [patch.condition for patch in made.writer.patches] == [None]
    assert len(made.context.waiting) == 0


async def test_stop_cancels_binds_that_take_too_long() -> None:
    """The process must end."""
    made, writer = slow_rig()
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: writer.under_way == 1)
    await made.scheduler.stop(0)
    assert made.bound == {}
    assert made.context.cache.assumed_count == 0


async def test_late_confirmations_are_settled_by_the_loop() -> None:
    """The watch missed the bind; reading the pod confirms it."""
    made = rig()
    made.add(node("n0"), WEB)
    async with made.running():
        await made.scheduler.until_idle()
        made.writer.pods["default/web"] = pod("web", node_name="n0")
        assert made.context.cache.assumed_count == 1
        for _ in range(5):
            made.clock.advance(5)
            await asyncio.sleep(0)
        await made.until(lambda: made.context.cache.assumed_count == 0)


async def test_pods_unschedulable_for_long_are_flushed_by_the_loop() -> None:
    """Without any event."""
    journal = Journal(results={"Rec.preFilter": PreFilterResult(unresolvable("no"))}, registrations={"Rec": ()})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: made.place_of(WEB) == "unschedulable")
        journal.results.clear()
        for _ in range(12):
            made.clock.advance(30)
            await asyncio.sleep(0)
        await made.until(lambda: "web" in made.bound)
