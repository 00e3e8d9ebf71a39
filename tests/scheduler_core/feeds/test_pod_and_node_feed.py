"""Events of the cluster: which changes reach the cache, and which pods they requeue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.status import unresolvable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.taints import Toleration
from scheduler_core.snapshot.cluster_cache import Placement
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig

WEB = pod("web")
RUNNING = pod("run", node_name="n0", requests={"cpu": "2"}, labels={"app": "db"})


class Listener:
    """A queueing hint that records its events and always returns Skip."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.objects: list[tuple[object | None, object | None]] = []

    def registrations(self) -> list[EventRegistration]:
        """Return one registration for each action, so that the hint knows its event."""
        actions = [action for action in Action if action.name]
        kinds = [Resource.POD, Resource.NODE]
        return [
            EventRegistration(ClusterEvent(kind, action), self._hint(f"{kind.value} {action.name}"))
            for kind in kinds
            for action in actions
        ]

    def _hint(self, name: str) -> Callable[[Pod, object | None, object | None], Hint]:
        def hint(_pod: Pod, old: object | None, new: object | None) -> Hint:
            self.heard.append(name)
            self.objects.append((old, new))
            return Hint.SKIP

        return hint


def listening() -> tuple[Rig, Listener]:
    """A scheduler with one unschedulable pod whose hints receive all events."""
    listener = Listener()
    journal = Journal(registrations={"Rec": listener.registrations()})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"))
    journal.results["Rec.preFilter"] = PreFilterResult(unresolvable("no"))
    made.add(pod("listener"))
    assert made.decide() is None
    assert made.place_of(pod("listener")) == "unschedulable"
    return made, listener


def test_a_pending_pod_enters_the_queue() -> None:
    """It requeues no other pod."""
    made, listener = listening()
    made.add(WEB)
    assert made.place_of(WEB) == "active"
    assert listener.heard == []


def test_a_bound_pod_enters_the_cache() -> None:
    """Pods that wait for such a pod are requeued."""
    made, listener = listening()
    made.add(RUNNING)
    assert made.place_of(RUNNING) == ""
    assert made.context.cache.columns.pod_count.tolist() == [1]
    assert listener.heard == ["Pod ADD"]
    assert listener.objects == [(None, RUNNING)]


def test_an_ended_pod_takes_no_place() -> None:
    """A succeeded pod is in neither the cache nor the queue, and leaves both when it ends."""
    made, listener = listening()
    made.add(pod("done", phase="Succeeded", node_name="n0"))
    assert made.context.cache.columns.pod_count.tolist() == [0]
    made.add(RUNNING)
    listener.heard.clear()
    made.scheduler.feed.pod_updated(RUNNING, pod("run", phase="Failed", node_name="n0"))
    assert made.context.cache.columns.pod_count.tolist() == [0]
    assert listener.heard == ["Pod DELETE"]


def test_a_pod_with_a_quantity_that_cannot_be_read_is_left_out() -> None:
    """The feed continues."""
    made, _ = listening()
    bad = pod("bad", requests={"cpu": "lots"})
    made.add(bad, WEB)
    assert (made.place_of(bad), made.place_of(WEB)) == ("", "active")


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [
        pytest.param(RUNNING, pod("run", node_name="n0", requests={"cpu": "2"}), ["Pod UPDATE_POD_LABEL"], id="labels"),
        pytest.param(
            RUNNING,
            pod("run", node_name="n0", requests={"cpu": "1"}, labels={"app": "db"}),
            ["Pod UPDATE_POD_SCALE_DOWN"],
            id="scale-down",
        ),
        pytest.param(
            RUNNING,
            pod("run", node_name="n0", requests={"cpu": "3"}, labels={"app": "db"}),
            ["Pod UPDATE_POD_SCALE_UP"],
            id="up",
        ),
        pytest.param(
            pod("run", node_name="n0", requests={"cpu": "2", "memory": "1900m"}),
            pod("run", node_name="n0", requests={"cpu": "2", "memory": "1100m"}),
            ["Pod UPDATE_POD_SCALE_DOWN"],
            id="by-less-than-a-unit",
        ),
        pytest.param(
            pod("run", node_name="n0", requests={"cpu": "2", "memory": "0"}),
            pod("run", node_name="n0", requests={"cpu": "2"}),
            ["Pod UPDATE_POD_SCALE_DOWN"],
            id="a-request-of-nothing-is-gone",
        ),
        pytest.param(RUNNING, RUNNING, [], id="nothing"),
    ],
)
def test_a_placed_pod_changes(old: Pod, new: Pod, heard: list[str]) -> None:
    """Only changes that may help other pods are events."""
    made, listener = listening()
    made.add(old)
    listener.heard.clear()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.heard == heard
    columns = made.context.cache.columns
    wanted = columns.compile_pod(new).requests.accounted["cpu"]
    assert columns.requested[columns.resources.find("cpu"), 0] == wanted


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [
        pytest.param(
            pod("listener"),
            pod("listener", tolerations=[Toleration(operator="Exists")]),
            ["Pod UPDATE_POD_TOLERATION"],
            id="tolerations",
        ),
        pytest.param(
            pod("listener", tolerations=[Toleration("a", "Exists")]),
            pod("listener", tolerations=[Toleration("b", "Exists")]),
            ["Pod UPDATE_OTHER"],
            id="a-toleration-is-never-altered",
        ),
        pytest.param(pod("listener"), pod("listener", labels={"a": "b"}), ["Pod UPDATE_POD_LABEL"], id="labels"),
        pytest.param(
            pod("listener", gates=["g"]),
            pod("listener"),
            ["Pod UPDATE_POD_SCHEDULING_GATES_ELIMINATED"],
            id="last-gate",
        ),
        pytest.param(pod("listener"), pod("listener", priority=7), ["Pod UPDATE_OTHER"], id="any-other-of-the-spec"),
    ],
)
def test_a_waiting_pod_changes(old: Pod, new: Pod, heard: list[str]) -> None:
    """Hints are called for its own change, and it waits in its new version."""
    made, listener = listening()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.heard == heard
    queued = made.queue.find(new.metadata.uid)
    assert queued is not None
    assert queued.info.pod is new


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [
        pytest.param(node("n0"), node("n0", labels={"a": "b"}), ["Node UPDATE_NODE_LABEL"], id="labels"),
        pytest.param(node("n0"), node("n0", taints=["a:NoSchedule"]), ["Node UPDATE_NODE_TAINT"], id="taints"),
        pytest.param(node("n0"), node("n0", unschedulable=True), [], id="cordon"),
        pytest.param(node("n0", unschedulable=True), node("n0"), ["Node UPDATE_NODE_TAINT"], id="uncordon"),
        pytest.param(
            node("n0"), node("n0", allocatable={"cpu": "8"}), ["Node UPDATE_NODE_ALLOCATABLE"], id="allocatable"
        ),
        pytest.param(
            node("n0", allocatable={"cpu": "4", "memory": "1Gi"}),
            node("n0", allocatable={"cpu": "4000m", "memory": "1024Mi"}),
            [],
            id="allocatable-in-other-words",
        ),
        pytest.param(
            node("n0"), node("n0", features=["f"]), ["Node UPDATE_NODE_DECLARED_FEATURE"], id="declared-features"
        ),
        pytest.param(
            node("n0"),
            node("n0", labels={"a": "b"}, taints=["a:NoSchedule"]),
            ["Node UPDATE_NODE_LABEL", "Node UPDATE_NODE_TAINT"],
            id="two-at-once",
        ),
        pytest.param(node("n0"), node("n0"), [], id="heartbeat"),
    ],
)
def test_a_node_changes(old: Node, new: Node, heard: list[str]) -> None:
    """Each kind of change is a separate event."""
    made, listener = listening()
    made.scheduler.feed.node_updated(old, new)
    assert listener.heard == heard


def test_nodes_come_and_go() -> None:
    """Both are events, and the columns follow."""
    made, listener = listening()
    made.add(node("n1"))
    made.scheduler.feed.node_deleted(node("n1"))
    assert listener.heard == ["Node ADD", "Node DELETE"]
    assert made.context.cache.columns.count == 1


def test_a_node_that_can_be_read_at_last_is_a_new_node() -> None:
    """It was ignored when it was added; its correction is an event of an added node."""
    made, listener = listening()
    bad, good = node("n1", allocatable={"cpu": "x"}), node("n1")
    made.add(bad)
    assert (made.context.cache.columns.count, listener.heard) == (1, [])
    made.scheduler.feed.node_updated(bad, good)
    assert (made.context.cache.columns.count, listener.heard) == (2, ["Node ADD"])


def test_a_node_whose_update_cannot_be_read_stays_as_it_was() -> None:
    """No pod is requeued."""
    made, listener = listening()
    made.scheduler.feed.node_updated(node("n0"), node("n0", allocatable={"cpu": "x"}))
    columns = made.context.cache.columns
    assert columns.allocatable[columns.resources.find("cpu"), 0] == 4000
    assert listener.heard == []


def test_a_pod_deleted_while_it_waits_leaves_the_queue() -> None:
    """Its nomination is dropped too."""
    made, _ = listening()
    nominated = pod("nominated", nominated_node="n0")
    made.add(nominated)
    assert made.queue.nominator.node_of(nominated.metadata.uid) == "n0"
    made.scheduler.feed.pod_deleted(nominated)
    assert made.place_of(nominated) == ""
    assert made.queue.nominator.node_of(nominated.metadata.uid) == ""


def test_a_nomination_follows_the_pods_status() -> None:
    """It is set, changed and cleared with the status, whichever component preempts."""
    made, _ = listening()
    made.add(WEB)
    nominated = pod("web", nominated_node="n0")
    made.scheduler.feed.pod_updated(WEB, nominated)
    assert made.queue.nominator.node_of(WEB.metadata.uid) == "n0"
    made.scheduler.feed.pod_updated(nominated, WEB)
    assert made.queue.nominator.node_of(WEB.metadata.uid) == ""


HIGH, EQUAL, LOW = 10, 0, -10
_NOMINATED = pod("nominated", nominated_node="n0")


@pytest.mark.parametrize(
    ("gone", "heard"),
    [
        pytest.param(pod("plain"), [], id="nothing-promised"),
        pytest.param(pod("other", nominated_node="n0", scheduler_name="other"), [], id="of-another-scheduler"),
        pytest.param(pod("low", nominated_node="n0", priority=LOW), [], id="of-lower-priority"),
        pytest.param(pod("equal", nominated_node="n0", priority=EQUAL), ["Pod DELETE"], id="of-equal-priority"),
        pytest.param(pod("high", nominated_node="n0", priority=HIGH), ["Pod DELETE"], id="of-higher-priority"),
    ],
)
def test_a_waiting_pod_goes(gone: Pod, heard: list[str]) -> None:
    """Its nominated node is free for the pods that it rejected; other deletions help no pod."""
    made, listener = listening()
    made.add(gone)
    listener.heard.clear()
    made.scheduler.feed.pod_deleted(gone)
    assert listener.heard == heard


@pytest.mark.parametrize(
    ("old", "new", "heard"),
    [
        pytest.param(_NOMINATED, pod("nominated"), ["Pod DELETE"], id="withdrawn"),
        pytest.param(_NOMINATED, pod("nominated", nominated_node="n1"), ["Pod DELETE"], id="moved"),
        pytest.param(pod("nominated"), _NOMINATED, [], id="made"),
        pytest.param(_NOMINATED, _NOMINATED, [], id="kept"),
    ],
)
def test_a_nomination_changes(old: Pod, new: Pod, heard: list[str]) -> None:
    """If a nomination ends, the room is freed as if the pod had been deleted."""
    made, listener = listening()
    made.add(old)
    listener.heard.clear()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.heard == heard


def test_a_pod_of_another_uid_is_another_pod() -> None:
    """A watch that missed the deletion shows only the change of UID."""
    made, _ = listening()
    made.add(WEB)
    again = pod("web", uid="another")
    made.scheduler.feed.pod_updated(WEB, again)
    assert (made.place_of(WEB), made.place_of(again)) == ("", "active")


async def test_a_confirmation_before_the_binds_answer() -> None:
    """A watch is often faster than the response to the bind; the later of the two changes nothing."""
    made = rig()
    made.add(node("n0"), WEB)
    attempt = made.decide()
    assert attempt is not None
    bound = pod("web", node_name="n0")
    made.scheduler.feed.pod_updated(WEB, bound)
    made.context.cache.finish_binding(WEB.metadata.uid, made.clock.now())
    placed = made.context.cache.get(WEB.metadata.uid)
    assert placed is not None
    assert placed.placement is Placement.ADDED
    assert made.context.cache.assumed_count == 0
    assert made.context.cache.columns.pod_count.tolist() == [1]


async def test_a_late_confirmation() -> None:
    """It arrives after the response to the bind and confirms the pod."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    assert made.context.cache.assumed_count == 1
    made.scheduler.feed.pod_updated(WEB, pod("web", node_name="n0"))
    assert made.context.cache.assumed_count == 0


async def test_a_stale_update_after_the_bind_does_not_queue_the_pod_again() -> None:
    """A condition that was written earlier is seen after the response to the bind."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.scheduler.feed.pod_updated(WEB, pod("web", labels={"late": "yes"}))
    assert made.place_of(WEB) == ""


async def test_a_node_vanishes_under_an_assumed_pod() -> None:
    """The pod is removed with its node, and counts again when the node returns."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.scheduler.feed.node_deleted(node("n0"))
    assert made.context.cache.columns.count == 0
    made.add(node("n0"))
    assert made.context.cache.columns.pod_count.tolist() == [1]
    made.scheduler.feed.pod_updated(WEB, pod("web", node_name="n0"))
    made.scheduler.feed.pod_deleted(pod("web", node_name="n0"))
    assert made.context.cache.columns.pod_count.tolist() == [0]


async def test_an_assumed_pod_that_is_deleted_frees_its_node_for_others() -> None:
    """Hints see it on the node where it was assumed, although its spec never named one."""
    listener = Listener()
    journal = Journal(registrations={"Rec": listener.registrations()})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    assert made.decide() is not None
    journal.results["Rec.preFilter"] = PreFilterResult(unresolvable("no"))
    made.add(pod("listener"))
    assert made.decide() is None
    made.scheduler.feed.pod_deleted(WEB)
    assert made.context.cache.columns.pod_count.tolist() == [0]
    gone = listener.objects[0][0]
    assert isinstance(gone, Pod)
    assert gone.spec.node_name == "n0"


async def test_a_change_of_an_assumed_pod_is_no_event() -> None:
    """It has its node already; a later rejection is based on the new version, so the event need not be recorded."""
    listener = Listener()
    made = rig([recorder("Rec", Journal(registrations={"Rec": listener.registrations()}))])
    made.add(node("n0"), pod("web"))
    attempt = made.decide()
    assert attempt is not None
    made.scheduler.feed.pod_updated(pod("web"), pod("web", labels={"a": "b"}))
    assert listener.heard == []
    assert made.queue.readings.in_flight_events() == {"PodPopped": 1}
    queued = made.queue.find(attempt.info.uid)
    assert queued is not None
    assert queued.info.pod.metadata.labels == {"a": "b"}
