"""Eviction of preemption victims, and the PreEnqueue gate of the preemptor until it is finished."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ClusterWriteError
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.status import Code
from scheduler_core.framework.waiting_pods import WaitingPod
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.ports import ObjectReference
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.preemption import DeferringWriter, PreemptionWorld
from tests.support.tables import table

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = ClusterWriteError("no answer")
MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


class Waiting(WaitingPod):
    """A pod that waits at Permit; ``is_over`` if the wait has already ended."""

    is_refused = False

    def __init__(self, info: PodInfo, *, is_over: bool = False) -> None:
        self.pod = info
        self.node_name = "a"
        self.is_over = is_over
        self.rejections: list[tuple[str, str]] = []

    def pending_plugins(self) -> list[str]:
        return []

    def allow(self, plugin: str) -> None:
        raise AssertionError(plugin)

    def reject(self, plugin: str, reason: str) -> bool:
        raise AssertionError((plugin, reason))

    def preempt(self, plugin: str, reason: str) -> bool:
        self.rejections.append((plugin, reason))
        return not self.is_over


@dataclass
class Stage:
    """A node with victims, and the evictions from it."""

    pods: list[Pod]
    writer: DeferringWriter = field(default_factory=DeferringWriter)

    def __post_init__(self) -> None:
        self.nodes = columns([node("a")], self.pods)
        self.handle = FakeHandle(nodes=self.nodes, writer=self.writer)
        self.evictions = Evictions(self.handle, "DefaultPreemption")
        self.preemptor = self.nodes.compile_pod(pod("preemptor", priority=10))
        self.victims = tuple(self.nodes.pods[0].values())

    def start(self) -> None:
        self.evictions.start(self.preemptor, PreemptionCandidate("a", self.victims))

    def is_preempting(self) -> bool:
        return self.evictions.is_preempting(self.preemptor)

    @property
    def deleted(self) -> list[str]:
        return [deletion.name for deletion in self.writer.deletions]

    def answer(self, name: str, fault: Exception | None = None) -> None:
        self.writer.pending_deletions.pop(name)(fault)


def victim(name: str, *, deleted: datetime | None = None) -> Pod:
    made = pod(name, node_name="a")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, deletion_timestamp=deleted))


def test_a_victim_is_deleted_with_condition_and_event() -> None:
    """The deletion sets DisruptionTarget; the event names the preemptor and is recorded after the deletion."""
    stage = Stage([victim("v")])
    stage.start()
    (deletion,) = stage.writer.deletions
    assert (deletion.namespace, deletion.name, deletion.uid) == ("default", "v", "uid-of-default-v")
    assert deletion.condition == PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", MESSAGE)
    assert stage.writer.events == []
    stage.answer("v")
    (event,) = stage.writer.events
    assert (event.type, event.reason, event.action) == ("Normal", "Preempted", "Preempting")
    assert event.note == "Preempted by pod uid-of-default-preemptor on node a"
    assert event.reporting_controller == stage.handle.profile_name
    assert event.regarding == ObjectReference("Pod", "v", "default", "uid-of-default-v")
    assert event.related == ObjectReference("Pod", "preemptor", "default", "uid-of-default-preemptor")


@table("generation", ("same", 0), ("another-generation", 3))
def test_an_existing_condition_is_not_set_again(generation: int) -> None:
    """A condition that an earlier eviction attempt set is not written again."""
    made = victim("v")
    conditions = (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", MESSAGE, generation),)
    stage = Stage([msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))])
    stage.start()
    assert [deletion.condition for deletion in stage.writer.deletions] == [None]


def test_the_last_victim_is_deleted_after_the_others() -> None:
    """The gate is closed until the response to the last victim's deletion."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    assert stage.deleted == ["v0", "v1"]
    stage.answer("v1")
    assert stage.deleted == ["v0", "v1"]
    stage.answer("v0")
    assert stage.deleted == ["v0", "v1", "v2"]
    stage.answer("v2")
    assert not stage.is_preempting()
    assert stage.handle.activated == []


def test_a_gated_preemptor_is_activated_at_the_end() -> None:
    """A preemptor that PreEnqueue rejected is activated, because no later event need requeue it."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    assert stage.is_preempting()
    stage.answer("v0")
    assert stage.is_preempting()
    stage.answer("v1")
    assert stage.handle.activated == [stage.preemptor]


@table("is_gone", ("deleted", True), ("terminating", False))
def test_the_watch_event_of_the_last_victim_opens_the_gate(is_gone: bool) -> None:
    """The watch event may arrive before the response, and arrives only once."""
    stage = Stage([victim("v")])
    stage.start()
    assert stage.is_preempting()
    stage.nodes.remove_pod(stage.victims[0])
    if not is_gone:
        stage.nodes.add_pod(stage.nodes.compile_pod(victim("v", deleted=DELETED)), 0)
    assert not stage.is_preempting()


def test_the_watch_event_of_another_victim_does_not_open_the_gate() -> None:
    """The gate is closed until the last victim is evicted."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    stage.nodes.remove_pod(stage.victims[0])
    assert stage.is_preempting()


def test_a_failed_deletion_cancels_that_of_the_last_victim() -> None:
    """The preemptor is activated, because no event may ever requeue it."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    stage.answer("v0", FAILURE)
    stage.answer("v1")
    assert stage.deleted == ["v0", "v1"]
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert [event.regarding.name for event in stage.writer.events] == ["v1"]


def test_a_failed_deletion_of_the_last_victim() -> None:
    """The preemptor is activated, and no event is recorded."""
    stage = Stage([victim("v")])
    stage.start()
    stage.answer("v", FAILURE)
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert stage.writer.events == []


def test_terminating_victims_are_not_deleted() -> None:
    """If all victims are terminating, the gate is open and no nomination is cleared."""
    stage = Stage([victim("v", deleted=DELETED)])
    nominated = stage.nodes.compile_pod(pod("nominated", priority=1, nominated_node="a"))
    stage.handle.nominator.nominate(nominated, "a")
    stage.start()
    assert (stage.deleted, stage.is_preempting()) == ([], False)
    assert list(stage.handle.nominator.nominated_pods("a")) == [nominated]


def test_a_waiting_victim_is_rejected() -> None:
    """A victim that waits at Permit is rejected and not deleted."""
    stage = Stage([victim("v")])
    waiting = Waiting(stage.victims[0])
    stage.handle.waiting_pods.entries[stage.victims[0].uid] = waiting
    stage.start()
    assert waiting.rejections == [("DefaultPreemption", "preempted")]
    assert (stage.deleted, stage.is_preempting()) == ([], False)
    (event,) = stage.writer.events
    assert event.note == "Preempted by pod uid-of-default-preemptor on node a (in kube-scheduler memory)."


def test_a_victim_that_no_longer_waits_is_deleted() -> None:
    """A victim that no longer waits at Permit is deleted, because it is being bound."""
    stage = Stage([victim("v")])
    stage.handle.waiting_pods.entries[stage.victims[0].uid] = Waiting(stage.victims[0], is_over=True)
    stage.start()
    assert stage.deleted == ["v"]


def test_nominations_of_lower_priority_are_cleared() -> None:
    """Nominations for the node are cleared for pods of lower priority than the preemptor, and only for those."""
    stage = Stage([victim("v")])
    lower, equal = (
        stage.nodes.compile_pod(pod(name, priority=priority, nominated_node="a"))
        for name, priority in (("lower", 9), ("equal", 10))
    )
    unwritten = stage.nodes.compile_pod(pod("unwritten", priority=1))
    for info in (lower, equal, unwritten):
        stage.handle.nominator.nominate(info, "a")
    stage.start()
    assert list(stage.handle.nominator.nominated_pods("a")) == [equal]
    assert [(patch.name, patch.nominated_node_name) for patch in stage.writer.patches] == [("lower", "")]


def test_the_gate() -> None:
    """PreEnqueue rejects the preemptor until the preemption is finished, and accepts other pods."""
    full = [pod("v", node_name="a", requests={"cpu": "4"}, priority=1)]
    world = PreemptionWorld([node("a")], full)
    preemptor = pod("preemptor", priority=10, requests={"cpu": "1"})
    assert world.post_filter(preemptor).status.is_success
    gate = world.plugin.pre_enqueue(world.columns.compile_pod(preemptor))
    assert gate.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert gate.reasons == ("waiting for the preemption for this pod to be finished",)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(pod("other"))).is_success
    world.writer.pending_deletions["v"](None)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(preemptor)).is_success


def test_two_profiles_do_not_share_their_preemptions() -> None:
    """Each plugin instance gates only its own preemptors."""
    stage = Stage([victim("v")])
    one, other = (DefaultPreemption(DefaultPreemptionArgs(), stage.handle) for _ in range(2))
    assert one.pre_enqueue(stage.preemptor).is_success
    assert other.pre_enqueue(stage.preemptor).is_success
