"""How the victims of a preemption leave, and what the preemptor does meanwhile."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import pytest

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ClusterWriteError
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.status import Code
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.ports import ObjectReference
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.preemption import DeferringWriter, PreemptionWorld

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
FAILURE = ClusterWriteError("no answer")
MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


class Waiting:
    """A pod that waits at Permit, unless its wait is over already."""

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
    """A node with victims, and evictions from it."""

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
    def asked(self) -> list[str]:
        return [deletion.name for deletion in self.writer.deletions]

    def answer(self, name: str, fault: Exception | None = None) -> None:
        self.writer.unanswered.pop(name)(fault)


def victim(name: str, *, deleted: datetime | None = None) -> Pod:
    made = pod(name, node_name="a")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, deletion_timestamp=deleted))


def test_a_victim_gets_an_event_and_is_deleted() -> None:
    """The condition says that it is a disruption, the event by whom; the event is recorded when it is true."""
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


@pytest.mark.parametrize("generation", [pytest.param(0, id="same"), pytest.param(3, id="of-another-generation")])
def test_a_condition_that_stands_is_not_set_again(generation: int) -> None:
    """An earlier attempt to evict the pod got that far."""
    made = victim("v")
    conditions = (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", MESSAGE, generation),)
    stage = Stage([msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))])
    stage.start()
    assert [deletion.condition for deletion in stage.writer.deletions] == [None]


def test_the_last_victim_goes_when_the_others_are_gone() -> None:
    """The gate stays closed until its eviction is issued and answered."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    assert stage.asked == ["v0", "v1"]
    stage.answer("v1")
    assert stage.asked == ["v0", "v1"]
    stage.answer("v0")
    assert stage.asked == ["v0", "v1", "v2"]
    stage.answer("v2")
    assert not stage.is_preempting()
    assert stage.handle.activated == []


def test_a_try_that_was_held_back_is_made_up_for() -> None:
    """What called for it is past, and what wakes the pod later need not come."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    assert stage.is_preempting()
    stage.answer("v0")
    assert stage.is_preempting()
    stage.answer("v1")
    assert stage.handle.activated == [stage.preemptor]


@pytest.mark.parametrize("is_gone", [pytest.param(True, id="gone"), pytest.param(False, id="ending")])
def test_a_last_victim_seen_leaving_opens_the_gate(is_gone: bool) -> None:
    """The watch event may arrive before the response, and arrives only once."""
    stage = Stage([victim("v")])
    stage.start()
    assert stage.is_preempting()
    stage.nodes.remove_pod(stage.victims[0])
    if not is_gone:
        stage.nodes.add_pod(stage.nodes.compile_pod(victim("v", deleted=DELETED)), 0)
    assert not stage.is_preempting()


def test_a_first_victim_seen_leaving_does_not() -> None:
    """The last one is still to be evicted."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    stage.nodes.remove_pod(stage.victims[0])
    assert stage.is_preempting()


def test_a_first_victim_that_stays_spares_the_last() -> None:
    """The preemptor is tried again, since nothing may ever wake it."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    stage.answer("v0", FAILURE)
    stage.answer("v1")
    assert stage.asked == ["v0", "v1"]
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert [event.regarding.name for event in stage.writer.events] == ["v1"]


def test_a_last_victim_that_stays() -> None:
    """The preemptor is tried again."""
    stage = Stage([victim("v")])
    stage.start()
    stage.answer("v", FAILURE)
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert stage.writer.events == []


def test_victims_that_end_already_are_left_alone() -> None:
    """Without victims to evict, there is nothing to wait for, and no nomination is cleared."""
    stage = Stage([victim("v", deleted=DELETED)])
    nominated = stage.nodes.compile_pod(pod("nominated", priority=1, nominated_node="a"))
    stage.handle.nominator.nominate(nominated, "a")
    stage.start()
    assert (stage.asked, stage.is_preempting()) == ([], False)
    assert list(stage.handle.nominator.nominated_pods("a")) == [nominated]


def test_a_waiting_victim_is_sent_back() -> None:
    """A pod that waits at Permit runs nowhere yet: it keeps its object and is tried again."""
    stage = Stage([victim("v")])
    waiting = Waiting(stage.victims[0])
    stage.handle.waiting_pods.by_uid[stage.victims[0].uid] = waiting
    stage.start()
    assert waiting.rejections == [("DefaultPreemption", "preempted")]
    assert (stage.asked, stage.is_preempting()) == ([], False)
    (event,) = stage.writer.events
    assert event.note == "Preempted by pod uid-of-default-preemptor on node a (in kube-scheduler memory)."


def test_a_victim_whose_wait_is_over_is_deleted() -> None:
    """It is being bound."""
    stage = Stage([victim("v")])
    stage.handle.waiting_pods.by_uid[stage.victims[0].uid] = Waiting(stage.victims[0], is_over=True)
    stage.start()
    assert stage.asked == ["v"]


def test_nominations_of_lower_priorities_are_withdrawn() -> None:
    """They would not fit any more; pods of no lower priority keep theirs."""
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
    """A preemptor is kept out of the active queue, and nobody else is."""
    full = [pod("v", node_name="a", requests={"cpu": "4"}, priority=1)]
    world = PreemptionWorld([node("a")], full)
    wanted = pod("wants", priority=10, requests={"cpu": "1"})
    assert world.post_filter(wanted).status.is_success
    gate = world.plugin.pre_enqueue(world.columns.compile_pod(wanted))
    assert gate.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert gate.reasons == ("waiting for the preemption for this pod to be finished",)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(pod("other"))).is_success
    world.writer.unanswered["v"](None)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(wanted)).is_success


def test_two_profiles_do_not_share_their_preemptions() -> None:
    """Each instance gates its own."""
    stage = Stage([victim("v")])
    one, other = (DefaultPreemption(DefaultPreemptionArgs(), stage.handle) for _ in range(2))
    assert one.pre_enqueue(stage.preemptor).is_success
    assert other.pre_enqueue(stage.preemptor).is_success
