"""The feed of pods and nodes: changes of the cache and the queue, and events for queueing hints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed, pod_events
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.status import unresolvable
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.taints import Toleration
from scheduler_core.snapshot.cluster_cache import PodState
from tests.support.builders import container, node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, default_rig, rig
from tests.support.storage import csi_node
from tests.support.tables import table

WEB = pod("web")
RUNNING = pod("run", node_name="n0", requests={"cpu": "2"}, labels={"app": "db"})


class Listener:
    """A queueing hint that records its events and always returns Skip."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.objects: list[tuple[object | None, object | None]] = []

    def registrations(self) -> list[EventRegistration]:
        """Return one registration for each action, so that the hint can record the event."""
        actions = [action for action in Action if action.name]
        kinds = [Resource.POD, Resource.NODE]
        return [
            EventRegistration(ClusterEvent(kind, action), self._hint(f"{kind.value} {action.name}"))
            for kind in kinds
            for action in actions
        ]

    def _hint(self, name: str) -> Callable[[Pod, object | None, object | None], Hint]:
        def hint(_pod: Pod, old: object | None, new: object | None) -> Hint:
            self.events.append(name)
            self.objects.append((old, new))
            return Hint.SKIP

        return hint


def rig_with_listener() -> tuple[Rig, Listener]:
    """Return a scheduler with one unschedulable pod, and the listener that records the events for its hints."""
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
    """A pending pod is queued, and requeues no other pod."""
    made, listener = rig_with_listener()
    made.add(WEB)
    assert made.place_of(WEB) == "active"
    assert listener.events == []


def test_a_bound_pod_enters_the_cache() -> None:
    """A bound pod is added to the cache, and its addition is an event."""
    made, listener = rig_with_listener()
    made.add(RUNNING)
    assert made.place_of(RUNNING) == ""
    assert made.columns.pod_count.tolist() == [1]
    assert listener.events == ["Pod ADD"]
    assert listener.objects == [(None, RUNNING)]


def test_an_ended_pod_is_not_stored() -> None:
    """An ended pod is neither cached nor queued, and a pod that ends is removed."""
    made, listener = rig_with_listener()
    made.add(pod("done", phase="Succeeded", node_name="n0"))
    assert made.columns.pod_count.tolist() == [0]
    made.add(RUNNING)
    listener.events.clear()
    made.scheduler.feed.pod_updated(RUNNING, pod("run", phase="Failed", node_name="n0"))
    assert made.columns.pod_count.tolist() == [0]
    assert listener.events == ["Pod DELETE"]


def test_a_pod_with_an_invalid_quantity_is_ignored() -> None:
    """A pod with an invalid quantity is not queued, and other pods are."""
    made, _ = rig_with_listener()
    bad = pod("bad", requests={"cpu": "lots"})
    made.add(bad, WEB)
    assert (made.place_of(bad), made.place_of(WEB)) == ("", "active")


@table(
    "old, new, events",
    ("labels", RUNNING, pod("run", node_name="n0", requests={"cpu": "2"}), ["Pod UPDATE_POD_LABEL"]),
    (
        "scale-down",
        RUNNING,
        pod("run", node_name="n0", requests={"cpu": "1"}, labels={"app": "db"}),
        ["Pod UPDATE_POD_SCALE_DOWN"],
    ),
    (
        "scale-up",
        RUNNING,
        pod("run", node_name="n0", requests={"cpu": "3"}, labels={"app": "db"}),
        ["Pod UPDATE_POD_SCALE_UP"],
    ),
    (
        "scale-down-by-less-than-a-unit",
        pod("run", node_name="n0", requests={"cpu": "2", "memory": "1900m"}),
        pod("run", node_name="n0", requests={"cpu": "2", "memory": "1100m"}),
        ["Pod UPDATE_POD_SCALE_DOWN"],
    ),
    (
        "request-of-0-is-removed",
        pod("run", node_name="n0", requests={"cpu": "2", "memory": "0"}),
        pod("run", node_name="n0", requests={"cpu": "2"}),
        ["Pod UPDATE_POD_SCALE_DOWN"],
    ),
    ("unchanged", RUNNING, RUNNING, []),
)
def test_a_bound_pod_changes(old: Pod, new: Pod, events: list[str]) -> None:
    """Changes of a bound pod that may help other pods are events."""
    made, listener = rig_with_listener()
    made.add(old)
    listener.events.clear()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.events == events
    columns = made.columns
    wanted = columns.compile_pod(new).requests.accounted["cpu"]
    assert columns.requested[columns.resources.find("cpu"), 0] == wanted


@table(
    "old, new, events",
    (
        "tolerations",
        pod("listener"),
        pod("listener", tolerations=[Toleration(operator="Exists")]),
        ["Pod UPDATE_POD_TOLERATION"],
    ),
    (
        "replaced-toleration",
        pod("listener", tolerations=[Toleration("a", "Exists")]),
        pod("listener", tolerations=[Toleration("b", "Exists")]),
        ["Pod UPDATE_OTHER"],
    ),
    ("labels", pod("listener"), pod("listener", labels={"a": "b"}), ["Pod UPDATE_POD_LABEL"]),
    ("last-gate", pod("listener", gates=["g"]), pod("listener"), ["Pod UPDATE_POD_SCHEDULING_GATES_ELIMINATED"]),
    ("another-field-of-the-spec", pod("listener"), pod("listener", priority=7), ["Pod UPDATE_OTHER"]),
)
def test_a_waiting_pod_changes(old: Pod, new: Pod, events: list[str]) -> None:
    """A change of a waiting pod is an event for its hints, and the queue stores the new version."""
    made, listener = rig_with_listener()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.events == events
    queued = present(made.queue.find(new.metadata.uid))
    assert queued.info.pod is new


@table(
    "old, new, events",
    ("labels", node("n0"), node("n0", labels={"a": "b"}), ["Node UPDATE_NODE_LABEL"]),
    ("taints", node("n0"), node("n0", taints=["a:NoSchedule"]), ["Node UPDATE_NODE_TAINT"]),
    ("cordon", node("n0"), node("n0", unschedulable=True), []),
    ("uncordon", node("n0", unschedulable=True), node("n0"), ["Node UPDATE_NODE_TAINT"]),
    ("allocatable", node("n0"), node("n0", allocatable={"cpu": "8"}), ["Node UPDATE_NODE_ALLOCATABLE"]),
    (
        "allocatable-in-other-units",
        node("n0", allocatable={"cpu": "4", "memory": "1Gi"}),
        node("n0", allocatable={"cpu": "4000m", "memory": "1024Mi"}),
        [],
    ),
    ("declared-features", node("n0"), node("n0", features=["f"]), ["Node UPDATE_NODE_DECLARED_FEATURE"]),
    (
        "two-at-once",
        node("n0"),
        node("n0", labels={"a": "b"}, taints=["a:NoSchedule"]),
        ["Node UPDATE_NODE_LABEL", "Node UPDATE_NODE_TAINT"],
    ),
    ("heartbeat", node("n0"), node("n0"), []),
)
def test_a_node_changes(old: Node, new: Node, events: list[str]) -> None:
    """Each kind of node change is a separate event."""
    made, listener = rig_with_listener()
    made.scheduler.feed.node_updated(old, new)
    assert listener.events == events


def test_nodes_are_added_and_deleted() -> None:
    """The addition and the deletion of a node are events and change the columns."""
    made, listener = rig_with_listener()
    made.add(node("n1"))
    made.scheduler.feed.node_deleted(node("n1"))
    assert listener.events == ["Node ADD", "Node DELETE"]
    assert made.columns.count == 1


def test_an_invalid_node_that_is_corrected_is_added() -> None:
    """An invalid node exists and accepts no pods; its correction is the event of an added node."""
    made, listener = rig_with_listener()
    bad, good = node("n1", allocatable={"cpu": "x"}), node("n1")
    made.add(bad)
    columns = made.columns
    assert (columns.count, listener.events) == (2, [])
    assert '"x" is not a quantity' in columns.held.reason("n1")
    made.scheduler.feed.node_updated(bad, good)
    assert (columns.count, columns.held.reason("n1")) == (2, "")
    assert listener.events[0] == "Node ADD"


def test_an_invalid_update_of_a_node_is_ignored() -> None:
    """After an invalid update a node accepts no pods; its amounts stay, and no pod is requeued."""
    made, listener = rig_with_listener()
    made.scheduler.feed.node_updated(node("n0"), node("n0", allocatable={"cpu": "x"}))
    columns = made.columns
    assert columns.allocatable[columns.resources.find("cpu"), 0] == 4000
    assert columns.held.reason("n0")
    assert listener.events == []


def test_a_pod_deleted_while_it_waits_leaves_the_queue() -> None:
    """A deleted waiting pod leaves the queue, and its nomination ends."""
    made, _ = rig_with_listener()
    nominated = pod("nominated", nominated_node="n0")
    made.add(nominated)
    assert made.queue.nominator.node_of(nominated.metadata.uid) == "n0"
    made.scheduler.feed.pod_deleted(nominated)
    assert made.place_of(nominated) == ""
    assert made.queue.nominator.node_of(nominated.metadata.uid) == ""


def test_a_nomination_follows_the_pods_status() -> None:
    """A nomination is set and cleared with the pod's status."""
    made, _ = rig_with_listener()
    made.add(WEB)
    nominated = pod("web", nominated_node="n0")
    made.scheduler.feed.pod_updated(WEB, nominated)
    assert made.queue.nominator.node_of(WEB.metadata.uid) == "n0"
    made.scheduler.feed.pod_updated(nominated, WEB)
    assert made.queue.nominator.node_of(WEB.metadata.uid) == ""


HIGH, EQUAL, LOW = 10, 0, -10
_NOMINATED = pod("nominated", nominated_node="n0")


@table(
    "deleted, events",
    ("not-nominated", pod("plain"), []),
    ("another-scheduler", pod("other", nominated_node="n0", scheduler_name="other"), []),
    ("lower-priority", pod("low", nominated_node="n0", priority=LOW), []),
    ("equal-priority", pod("equal", nominated_node="n0", priority=EQUAL), ["Pod DELETE"]),
    ("higher-priority", pod("high", nominated_node="n0", priority=HIGH), ["Pod DELETE"]),
)
def test_a_waiting_pod_is_deleted(deleted: Pod, events: list[str]) -> None:
    """The deletion of a waiting pod is an event only if its nomination may have rejected other pods."""
    made, listener = rig_with_listener()
    made.add(deleted)
    listener.events.clear()
    made.scheduler.feed.pod_deleted(deleted)
    assert listener.events == events


@table(
    "old, new, events",
    ("cleared", _NOMINATED, pod("nominated"), ["Pod DELETE"]),
    ("changed", _NOMINATED, pod("nominated", nominated_node="n1"), ["Pod DELETE"]),
    ("set", pod("nominated"), _NOMINATED, []),
    ("unchanged", _NOMINATED, _NOMINATED, []),
)
def test_a_nomination_changes(old: Pod, new: Pod, events: list[str]) -> None:
    """The end of a nomination is an event like the deletion of the pod."""
    made, listener = rig_with_listener()
    made.add(old)
    listener.events.clear()
    made.scheduler.feed.pod_updated(old, new)
    assert listener.events == events


def test_a_pod_of_another_uid_is_another_pod() -> None:
    """An update with another UID replaces the pod, as after a missed deletion."""
    made, _ = rig_with_listener()
    made.add(WEB)
    again = pod("web", uid="another")
    made.scheduler.feed.pod_updated(WEB, again)
    assert (made.place_of(WEB), made.place_of(again)) == ("", "active")


async def test_a_watch_event_before_the_bind_response() -> None:
    """A watch event that arrives before the bind response confirms the pod, and the response changes nothing."""
    made = rig()
    made.add(node("n0"), WEB)
    present(made.decide())
    bound = pod("web", node_name="n0")
    made.scheduler.feed.pod_updated(WEB, bound)
    made.context.cache.finish_binding(WEB.metadata.uid, made.clock.now())
    placed = present(made.context.cache.get(WEB.metadata.uid))
    assert placed.state is PodState.ADDED
    assert made.context.cache.assumed_count == 0
    assert made.columns.pod_count.tolist() == [1]


async def test_a_watch_event_after_the_bind_response() -> None:
    """A watch event after the bind response confirms the assumed pod."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    assert made.context.cache.assumed_count == 1
    made.scheduler.feed.pod_updated(WEB, pod("web", node_name="n0"))
    assert made.context.cache.assumed_count == 0


async def test_a_stale_update_after_the_bind_does_not_queue_the_pod_again() -> None:
    """An older update that arrives after the bind response does not queue the pod."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.scheduler.feed.pod_updated(WEB, pod("web", labels={"late": "yes"}))
    assert made.place_of(WEB) == ""


async def test_the_node_of_an_assumed_pod_is_deleted() -> None:
    """An assumed pod is removed with its node, and counts again when the node is added again."""
    made = rig()
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.scheduler.feed.node_deleted(node("n0"))
    assert made.columns.count == 0
    made.add(node("n0"))
    assert made.columns.pod_count.tolist() == [1]
    made.scheduler.feed.pod_updated(WEB, pod("web", node_name="n0"))
    made.scheduler.feed.pod_deleted(pod("web", node_name="n0"))
    assert made.columns.pod_count.tolist() == [0]


async def test_a_deleted_assumed_pod_is_an_event_with_its_node() -> None:
    """Hints get a deleted assumed pod with the node on which it was assumed."""
    listener = Listener()
    journal = Journal(registrations={"Rec": listener.registrations()})
    made = rig([recorder("Rec", journal)])
    made.add(node("n0"), WEB)
    assert made.decide() is not None
    journal.results["Rec.preFilter"] = PreFilterResult(unresolvable("no"))
    made.add(pod("listener"))
    assert made.decide() is None
    made.scheduler.feed.pod_deleted(WEB)
    assert made.columns.pod_count.tolist() == [0]
    deleted = listener.objects[0][0]
    assert isinstance(deleted, Pod)
    assert deleted.spec.node_name == "n0"


async def test_a_change_of_an_assumed_pod_is_no_event() -> None:
    """A change of an assumed pod is no event and is not stored; the queue stores the new version."""
    listener = Listener()
    made = rig([recorder("Rec", Journal(registrations={"Rec": listener.registrations()}))])
    made.add(node("n0"), pod("web"))
    attempt = present(made.decide())
    made.scheduler.feed.pod_updated(pod("web"), pod("web", labels={"a": "b"}))
    assert listener.events == []
    assert made.queue.readings.in_flight_events() == {"PodPopped": 1}
    queued = present(made.queue.find(attempt.info.uid))
    assert queued.info.pod.metadata.labels == {"a": "b"}


NODE = node("a")


def by_its_csi_node(made: Rig, reason: str) -> None:
    made.scheduler.storage_feed.unreadable(csi_node("a"), reason)


def by_itself(made: Rig, reason: str) -> None:
    made.scheduler.feed.node_unreadable(NODE, reason)


def by_a_pod(made: Rig, reason: str) -> None:
    made.scheduler.feed.pod_unreadable(pod("p", node_name="a"), reason)


@pytest.mark.parametrize("hold", [by_itself, by_a_pod, by_its_csi_node], ids=lambda each: each.__name__)
def test_reservations_are_notified(hold: Callable[[Rig, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gang for which a node is reserved is notified when the node is held, and when it is released."""
    made = default_rig(NODE)
    notified: list[str] = []
    monkeypatch.setattr(made.scheduler.reservations, "node_changed", notified.append)
    hold(made, "a field has another type")
    assert notified == ["a"]
    assert made.columns.held.reason("a")
    hold(made, "")
    assert notified == ["a", "a"]
    assert not made.columns.held.reason("a")


SMALL = node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"})
ON_NODE = pod("on-node", node_name="a", requests={"cpu": "1"})


@table(
    "before, change, broken",
    ("less room", (NODE,), lambda feed: feed.node_updated(NODE, SMALL), "update_node"),
    ("pods of a new node", (ON_NODE,), lambda feed: feed.node_added(NODE), "add_pod"),
    ("a bound pod", (NODE,), lambda feed: feed.pod_added(ON_NODE), "compile_pod"),
)
def test_an_interrupted_change_fails_closed(
    before: tuple[Any, ...], change: Callable[[PodAndNodeFeed], None], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has no room for new pods until the change that raised is delivered again."""
    made = default_rig(*before)
    columns, faults = made.columns, [RuntimeError("no memory")]
    unbroken = getattr(columns, broken)

    def failing(*args: Any) -> Any:
        if faults:
            raise faults.pop()
        return unbroken(*args)

    monkeypatch.setattr(columns, broken, failing)
    with pytest.raises(RuntimeError, match="no memory"):
        change(made.scheduler.feed)
    assert columns.held.reason("a")
    change(made.scheduler.feed)
    assert not columns.held.reason("a")


def test_a_pod_that_another_scheduler_has_bound_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting pod leaves the queue when it is bound, also if that change raises."""
    made = default_rig()
    waiting, bound = pod("web"), pod("web", node_name="a")
    made.add(NODE, waiting)
    faults = [RuntimeError("no memory")]
    unbroken = made.queue.gangs.saw

    def failing(shown: Pod) -> Any:
        if faults:
            raise faults.pop()
        return unbroken(shown)

    monkeypatch.setattr(made.queue.gangs, "saw", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        made.scheduler.feed.pod_updated(waiting, bound)
    assert made.place_of(waiting) == ""
    assert made.columns.held.reason("a")
    made.scheduler.feed.pod_updated(waiting, bound)
    assert made.columns.pod_count.tolist() == [1]
    assert not made.columns.held.reason("a")


@pytest.mark.parametrize("kind", ["containers", "init_containers"])
def test_a_bind_sums_the_requests_of_no_container(kind: str) -> None:
    """A pod may have thousands of containers; a bind changes the spec, and none of them."""
    many = [container(name=f"c{each}", requests={"cpu": f"{each}m"}) for each in range(500)]
    waiting, placed = pod("p", **{kind: many}), pod("p", node_name="n", **{kind: many})  # type: ignore[arg-type]
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        assert pod_events(waiting, placed) == []
    finally:
        sys.setprofile(None)
    assert 0 < calls < 100
