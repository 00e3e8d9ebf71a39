"""The scheduler: activation and withdrawal of profiles, the loop, how it stops, and takeover by a standby."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError, ServerUnavailableError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult, QueueSortPlugin
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code, Status, unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, configured, default_rig, plugin_set, profile, rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

WEB = pod("web")


class ByName(QueueSortPlugin):
    """QueueSort plugin that orders pods by name."""

    name = "ByName"

    def sort_key(self, pod: QueuedPod) -> str:
        return pod.info.pod.metadata.name


BY_NAME = Plugins(queue_sort=plugin_set("ByName", disabled=["*"]))


def wait_result(seconds: float = 10) -> PermitResult:
    return PermitResult(Status(Code.WAIT), seconds)


# -- profiles -------------------------------------------------------------------------------------------------------


async def test_an_attempt_in_flight_finishes_on_the_old_instance() -> None:
    """A pod in flight finishes on its profile revision, whose instance is closed once, after its last pod."""
    journal = Journal(results={"Old.permit": wait_result()})
    made = rig([recorder("Old", journal), recorder("New", journal)], serve=False)
    old, new = (Plugins(multi_point=plugin_set(disabled=[name])) for name in ("New", "Old"))
    made.serve(profile(plugins=old))
    made.add(node("n0"), WEB)
    attempt = present(made.decide())
    task = asyncio.get_running_loop().create_task(made.scheduler.cycles.binding.bind(attempt))
    await asyncio.sleep(0)

    made.serve(profile(plugins=new))
    assert journal.plugins_at("close") == []
    waiting = present(made.context.waiting.get(WEB.metadata.uid))
    waiting.allow("Old")
    assert await task

    assert journal.plugins_at("postBind") == ["Old"]
    assert journal.plugins_at("close") == ["Old"]
    made.add(pod("next"))
    assert await made.attempt() == "n0"
    assert journal.plugins_at("postBind") == ["Old", "New"]
    assert journal.plugins_at("close") == ["Old"]


def test_an_old_instance_without_pods_is_closed_at_once() -> None:
    """A replaced instance without pods is closed at once; a plugin that fails to close does not stop the others."""
    journal = Journal(results={"A.close": ValueError("stuck")})
    made = rig([recorder("A", journal), recorder("B", journal)])
    made.serve(profile(percentage=50))
    assert journal.plugins_at("close") == ["A", "B"]


def test_a_failed_attempt_is_not_in_flight() -> None:
    """A failed attempt no longer counts as in flight for its instance."""
    journal = Journal()
    made = rig([recorder("Rec", journal)])
    (second,) = made.serve(profile(percentage=50))
    journal.calls.clear()
    made.add(WEB)
    assert made.decide() is None
    assert second.in_flight == 0


@table(
    "config, path",
    ("unknown", profile(plugins=Plugins(score=plugin_set("Nope"))), "plugins.score.enabled[0].name"),
    ("no-args", configured("default-scheduler", "NodeName", {"x": 1}), "pluginConfig[0].args"),
    (
        "bad-args",
        configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": 3}),
        "pluginConfig[0].args.ignoredResources",
    ),
    ("args-of-unknown", configured("default-scheduler", "Nope", {}), "pluginConfig[0].name"),
)
def test_an_invalid_profile_does_not_replace_the_live_one(config: object, path: str) -> None:
    """The problems of an invalid profile have field paths, and the live profile continues to schedule pods."""
    made = default_rig()
    live = made.context.profiles.get("default-scheduler")
    with pytest.raises(ConfigError) as raised:
        made.scheduler.build(config)  # type: ignore[arg-type]  # the table holds profiles only
    assert [problem.path for problem in raised.value.problems] == [path]
    assert made.context.profiles.get("default-scheduler") is live
    made.add(node("n0"), WEB)
    assert made.decide() is not None


def test_a_plugin_that_cannot_be_created_rejects_the_profile() -> None:
    """A plugin that cannot be created rejects the profile, and plugins created before are closed."""
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
    """A profile with another QueueSort plugin than the live profiles is rejected."""
    made = rig([ByName], defaults=Plugins(multi_point=plugin_set("PrioritySort", "DefaultBinder")))
    other = made.scheduler.build(profile("batch", BY_NAME))
    with pytest.raises(
        ConfigError, match=r"plugins\.queueSort: profile default-scheduler uses QueueSort plugin Priority"
    ):
        made.scheduler.activate([other])
    assert "batch" not in made.context.profiles


def test_all_profiles_change_their_queue_sort_plugin_together() -> None:
    """Waiting pods are reordered when all profiles change their QueueSort plugin, whatever types its keys have."""
    made = rig([ByName], defaults=Plugins(multi_point=plugin_set("PrioritySort", "DefaultBinder")), serve=False)
    made.serve(profile(), profile("batch"))
    made.add(pod("b"), pod("d", scheduler_name="batch"), pod("c"), pod("a", scheduler_name="batch"))
    made.serve(profile(plugins=BY_NAME), profile("batch", BY_NAME))
    assert [made.pop().info.pod.metadata.name for _ in range(4)] == ["a", "b", "c", "d"]


def test_a_withdrawn_profile_leaves_its_pods_pending() -> None:
    """Pods of a withdrawn profile are parked, and are scheduled when a profile of the name is live again."""
    made = rig()
    made.add(node("n0"), WEB)
    made.scheduler.withdraw("default-scheduler")
    assert (made.place_of(WEB), made.queue.pop()) == ("parked", None)
    made.serve(profile())
    attempt = present(made.decide())
    assert attempt.node_name == "n0"


def test_a_replaced_profile_retries_rejected_pods() -> None:
    """A pod that the old profile revision rejected is retried at once."""
    journal = Journal(results={"Rec.preFilter": PreFilterResult(unresolvable("never"))})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    assert made.decide() is None
    made.serve(profile(plugins=Plugins(multi_point=plugin_set(disabled=["Rec"]))))
    assert made.decide() is not None


def test_backoffs_of_profiles_and_options() -> None:
    """Backoff settings of a profile take precedence over the scheduler's options."""
    made = rig(options=SchedulerOptions(initial_backoff_seconds=3))
    made.serve(profile("own").model_copy(update={"pod_initial_backoff_seconds": 7}))
    made.add(WEB, pod("own", scheduler_name="own"))
    first, second = made.pop(), made.pop()
    for queued in (first, second):
        made.queue.failed(queued)
    assert [first.backoff_until, second.backoff_until] == [1004, 1008]


# -- the loop -------------------------------------------------------------------------------------------------------


class SlowWriter(RecordingWriter):
    """Cluster writer whose binds are answered when the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.pending_binds = self.max_pending_binds = 0

    async def bind(self, binding: Binding) -> None:
        self.pending_binds += 1
        self.max_pending_binds = max(self.max_pending_binds, self.pending_binds)
        await self.gate.wait()
        self.pending_binds -= 1
        await super().bind(binding)


def slow_rig(options: SchedulerOptions | None = None) -> tuple[Rig, SlowWriter]:
    """Return a scheduler whose binds are answered when the test opens the gate."""
    plain = rig(options=options)
    writer = SlowWriter()
    made = Rig(Scheduler(plain.clock, writer, options), plain.clock, writer)
    made.serve(profile())
    return made, writer


async def test_the_loop_schedules_pods() -> None:
    """The loop schedules pods that are added before and during its run, and retries them after a backoff."""
    made = default_rig(node("n0"), WEB)
    async with made.running():
        await made.scheduler.until_idle()
        assert made.bound == {"web": "n0"}
        made.writer.fail_binds([ServerUnavailableError("away")])
        made.add(pod("late"))
        await made.until(lambda: made.place_of(pod("late")) == "errorBackoff")
        made.clock.advance(2)
        await made.scheduler.until_idle()
        assert made.bound == {"web": "n0", "late": "n0"}


async def turns_for(pods: int, *, expects_clients: bool) -> int:
    """Return the number of turns of the event loop until pods are bound that arrived together."""
    made, turns = default_rig(), 0
    made.add(node("n0", allocatable={"cpu": "64", "memory": "64Gi", "pods": "500"}))
    made.add(*(pod(f"p{number}") for number in range(pods)))
    async with made.running():
        if expects_clients:
            made.scheduler.expect_clients()
        while len(made.bound) < pods:
            await asyncio.sleep(0)
            turns += 1
    return turns


async def test_clients_do_not_wait_for_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a client waits, two turns are added after each batch, which I/O and its handler take; then no more."""
    plain = await turns_for(400, expects_clients=False)
    assert await turns_for(400, expects_clients=True) >= plain + 2 * (400 // 64)
    monkeypatch.setattr("scheduler_core.scheduler._PROMPT_BATCHES", 3)
    assert await turns_for(400, expects_clients=True) == plain + 2 * 3


async def test_the_loop_continues_after_a_plugin_error() -> None:
    """A plugin that raises fails only the attempt of its pod, and the next pod is bound."""
    journal = Journal(results={"Rec.filter": ZeroDivisionError("boom")})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: made.place_of(WEB) == "errorBackoff")
        journal.results.clear()
        made.add(pod("next"))
        await made.scheduler.until_idle()
        assert made.bound == {"next": "n0"}


async def test_the_number_of_concurrent_binds_is_limited() -> None:
    """No more than ``max_binding`` binds are in progress at a time, and all pods are bound."""
    made, writer = slow_rig(SchedulerOptions(max_binding=3))
    made.add(node("n0"), *(pod(f"p{number}") for number in range(10)))
    async with made.running():
        await made.until(lambda: writer.pending_binds == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (writer.pending_binds, len(made.queue.readings)) == (3, 7)
        writer.gate.set()
        await made.scheduler.until_idle()
    assert (writer.max_pending_binds, len(made.bound)) == (3, 10)


async def test_pods_that_wait_at_permit_do_not_count_as_binding() -> None:
    """Pods that wait at Permit do not count for ``max_binding``, so that a larger gang can be bound."""
    journal = Journal(results={"Rec.permit": wait_result(60)})
    made = rig([recorder("Rec", journal)], options=SchedulerOptions(max_binding=2))
    made.add(node("n0"), *(pod(f"p{number}") for number in range(5)))
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 5)
        for waiting in made.context.waiting:
            waiting.allow("Rec")
        await made.scheduler.until_idle()
    assert len(made.bound) == 5


async def test_stop_waits_for_binds() -> None:
    """``stop`` returns after the binds in progress."""
    made, writer = slow_rig()
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: writer.pending_binds == 1)
    stopping = asyncio.get_running_loop().create_task(made.scheduler.stop(5))
    await asyncio.sleep(0)
    assert not stopping.done()
    writer.gate.set()
    await stopping
    assert made.bound == {"web": "n0"}


async def test_stop_releases_pods_that_wait_at_permit() -> None:
    """A pod that waits at Permit is not bound after ``stop``, and its node is released."""
    journal = Journal(results={"Rec.permit": wait_result(600)})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 1)
    await made.scheduler.stop(5)
    assert made.bound == {}
    assert made.columns.pod_count.tolist() == [0]
    assert journal.plugins_at("unreserve") == ["Rec"]


async def test_stop_reports_no_failure_of_waiting_pods() -> None:
    """No event and no condition is written for pods that wait at Permit, because the next process schedules them."""
    made = rig([recorder("Rec", Journal(results={"Rec.permit": wait_result(600)}))])
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: len(made.context.waiting) == 1)
    await made.scheduler.stop(5)
    assert made.writer.events == []
    assert [patch.condition for patch in made.writer.patches] == [None]
    assert len(made.context.waiting) == 0


async def test_stop_cancels_binds_that_take_too_long() -> None:
    """``stop`` cancels binds that are not answered within its timeout."""
    made, writer = slow_rig()
    made.add(node("n0"), WEB)
    async with made.running():
        await made.until(lambda: writer.pending_binds == 1)
    await made.scheduler.stop(0)
    assert made.bound == {}
    assert made.context.cache.assumed_count == 0


async def test_the_loop_reads_unconfirmed_pods() -> None:
    """The loop reads a bound pod that no watch event confirms."""
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


async def test_the_loop_flushes_unschedulable_pods() -> None:
    """The loop retries a pod that has been unschedulable for long, without any event."""
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


# -- takeover by a standby, which has received all events and scheduled no pod -----------------------------------------


class Standby:
    """Scheduler without a live profile, which receives events."""

    def __init__(self) -> None:
        self.writer = RecordingWriter()
        self.scheduler = Scheduler(VirtualClock(), self.writer)
        self.scheduler.feed.node_added(node("n"))
        self.queue = self.scheduler.context.queue

    def deliver(self, *forms: Pod) -> None:
        """Deliver the addition of a pod, and its updates."""
        self.scheduler.feed.pod_added(forms[0])
        for old, new in pairwise(forms):
            self.scheduler.feed.pod_updated(old, new)

    def become_leader(self) -> None:
        """Make the default profile live."""
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])


@pytest.fixture
async def standby() -> Standby:
    return Standby()


@table(
    "forms, nominated",
    ("nominated before it was listed", [pod("p", nominated_node="n")], "n"),
    ("nominated by the leader", [pod("p"), pod("p", nominated_node="n")], "n"),
    ("cleared", [pod("p", nominated_node="n"), pod("p")], ""),
    ("bound by the leader", [pod("p", nominated_node="n"), pod("p", node_name="n")], ""),
)
async def test_nominations_are_those_of_the_api_server(standby: Standby, forms: list[Pod], nominated: str) -> None:
    """The new leader uses the nomination in the last status of each pod."""
    standby.deliver(*forms)
    standby.become_leader()
    assert (standby.queue.nominator.node_of(forms[0].metadata.uid) or "") == nominated


async def test_a_new_leader_writes_nothing(standby: Standby) -> None:
    """The new leader has bound pods in its cache and waiting pods in its queue, and writes nothing."""
    standby.deliver(pod("bound"), pod("bound", node_name="n"))
    standby.deliver(pod("waits"))
    standby.deliver(pod("gone"))
    standby.scheduler.feed.pod_deleted(pod("gone"))
    standby.become_leader()
    assert {each.info.key: place for place, each in standby.queue.readings.places()} == {"default/waits": "active"}
    assert [placed.info.key for placed in standby.scheduler.context.cache.placed_pods()] == ["default/bound"]
    assert (standby.writer.patches, standby.writer.events, standby.writer.bindings) == ([], [], [])
