"""Unblocking events of an unschedulable pod."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.explain.candidate_events import Candidate, matching_labels, node_labels, required_terms, satisfied
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.explain.unblocking_events import Found
from scheduler_core.framework.cluster_events import EventRegistration, Hint
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.status import Status, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ClaimVolumeSource, Pod, TopologySpreadConstraint, Volume
from scheduler_core.model.selectors import compile_label_selector
from tests.support.affinities import affinity_to, anti_affinity_to, node_affinity, term
from tests.support.builders import node, pod
from tests.support.cluster_state import cluster_state
from tests.support.devices import DRIVER, allocated_claim, claim, device, exactly, slice_of, using, with_reserved
from tests.support.presence import present
from tests.support.rejected_claims import A100, H100, L4, RejectedPod, gpus
from tests.support.scheduling import Rig, default_rig, plugin_set, rig
from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"


def spread(labels: dict[str, str]) -> TopologySpreadConstraint:
    """Return a spread constraint over zones with maxSkew 1."""
    return TopologySpreadConstraint(topology_key=ZONE, label_selector=LabelSelector(match_labels=labels))


def zoned(name: str, zone: str, **fields: Any) -> Node:
    return node(name, labels={ZONE: zone}, **fields)


WEB = {"app": "web"}
FULL = pod("full", node_name="n", requests={"cpu": "3500m"})

SCENARIOS = [
    pytest.param(
        [node("n"), FULL],
        pod(requests={"cpu": "1"}),
        [
            "node n grown to 4.5 cpu allocatable",
            "pod default/full deleted from node n",
            "a node added with 1 cpu or more free",
        ],
        id="too little cpu",
    ),
    pytest.param(
        [node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": "1"}), pod("other", node_name="n")],
        pod(),
        ["node n grown to 2 pods allocatable", "pod default/other deleted from node n", "a node added"],
        id="too many pods",
    ),
    pytest.param(
        [node("n", taints=["gpu=yes:NoSchedule", "soft:PreferNoSchedule"])],
        pod(),
        ["the pod tolerates gpu=yes:NoSchedule", "taint gpu=yes:NoSchedule removed from node n", "a node added"],
        id="a taint",
    ),
    pytest.param(
        [node("n", unschedulable=True)],
        pod(),
        ["the pod tolerates node.kubernetes.io/unschedulable:NoSchedule", "node n uncordoned", "a node added"],
        id="a cordon",
    ),
    pytest.param(
        [node("n", labels={"disk": "hdd"})],
        pod(node_selector={"disk": "ssd"}),
        ["label disk=ssd set on node n", "a node added, labelled disk=ssd"],
        id="a node selector",
    ),
    pytest.param(
        [node("n", labels={"old": "true", "cores": "4"})],
        pod(
            affinity=node_affinity(
                NodeSelectorTerm(
                    (
                        Requirement("old", "DoesNotExist"),
                        Requirement("cores", "Gt", ("7",)),
                        Requirement("new", "Exists"),
                    )
                )
            )
        ),
        [
            "label cores=8, new=true set on node n and label old removed from node n",
            "a node added, labelled cores=8, new=true",
        ],
        id="node affinity by several operators",
    ),
    pytest.param(
        [node("n"), pod("holder", node_name="n", ports=[80]), pod("other", node_name="n")],
        pod(ports=[80]),
        ["pod default/holder deleted from node n", "a node added"],
        id="a host port",
    ),
    pytest.param(
        [zoned("n", "a"), pod("rival", node_name="n", labels=WEB)],
        pod(affinity=anti_affinity_to(term("web", ZONE))),
        ["pod default/rival deleted from node n", "a node added"],
        id="anti-affinity",
    ),
    pytest.param(
        [zoned("n", "a")],
        pod(affinity=affinity_to(term("db", ZONE))),
        ["a pod labelled app=db starts on node n (namespace default)"],
        id="affinity to a pod that is not there",
    ),
    pytest.param(
        [zoned("n", "a"), zoned("m", "b", unschedulable=True), pod("one", node_name="n", labels=WEB)],
        pod(labels=WEB, spread=[spread(WEB)], requests={"cpu": "1"}),
        [
            "the pod tolerates node.kubernetes.io/unschedulable:NoSchedule",
            "node m uncordoned",
            "pod default/one deleted from node n",
            "a pod labelled app=web starts on node m (namespace default)",
            "a node added with 1 cpu or more free",
            "a node added with 1 cpu or more free, labelled topology.kubernetes.io/zone=b",
        ],
        id="spread over zones",
    ),
    pytest.param(
        [node("n")],
        pod(gates=["example.com/one", "example.com/two"]),
        ["scheduling gates example.com/one, example.com/two removed from the pod"],
        id="gates",
    ),
]


def rejected(objects: list[Node | Pod], waiting: Pod) -> Rig:
    """Return a scheduler with the default plugins that has rejected or gated the pod."""
    made = default_rig(*objects, waiting)
    if not waiting.spec.scheduling_gates:
        assert made.decide() is None
    made.writer.patches.clear()
    return made


def dry_run_events(made: Rig, waiting: Pod) -> tuple[Examination, list[Found]]:
    """Return the dry run of a pod, and its unblocking events."""
    context = made.context
    instance = present(context.profiles.get(waiting.spec.scheduler_name))
    found = made.scheduler.cycles.examiner.examine(instance, context.cache.columns.compile_pod(waiting))
    misses = near_misses(context.cache.columns, instance, found, 5)
    return found, Explainers(context, made.scheduler.cycles, made.scheduler.reservations).unblocking.search(
        instance, found, misses
    )


@pytest.mark.parametrize(("objects", "waiting", "expected"), SCENARIOS)
def test_the_expected_events_are_returned(objects: list[Node | Pod], waiting: Pod, expected: list[str]) -> None:
    """The expected events are returned; the pod is feasible after each of them, and the dry runs change nothing."""
    made = rejected(objects, waiting)
    first, events = dry_run_events(made, waiting)
    assert [event.what for _, event in events] == expected
    assert all(event.fits_on for _, event in events)
    # The first dry runs may leave the free row of a hypothetical node.
    before = cluster_state(made.context)
    second, again = dry_run_events(made, waiting)
    assert cluster_state(made.context) == before
    assert made.columns.count == sum(isinstance(each, Node) for each in objects)
    assert second.rejected == first.rejected
    assert [event.what for _, event in again] == expected
    assert made.writer.patches == []


@pytest.mark.parametrize(("objects", "waiting", "expected"), SCENARIOS)
def test_a_hint_returns_queue_for_each_event(objects: list[Node | Pod], waiting: Pod, expected: list[str]) -> None:
    """A queueing hint of every listed plugin returns Queue for the event's objects."""
    del expected
    made = rejected(objects, waiting)
    found, events = dry_run_events(made, waiting)
    instance = present(made.context.profiles.get(waiting.spec.scheduler_name))
    for candidate, event in events:
        assert event.plugins
        for plugin in event.plugins:
            assert plugin in found.rejected_by
            results = {
                Hint.QUEUE if registration.hint is None else registration.hint(waiting, candidate.old, candidate.new)
                for registration in instance.registrations[plugin]
                if registration.event.covers(candidate.event)
            }
            assert Hint.QUEUE in results


@pytest.mark.parametrize(("objects", "waiting", "expected"), SCENARIOS)
def test_the_pod_is_scheduled_after_each_event(objects: list[Node | Pod], waiting: Pod, expected: list[str]) -> None:
    """Each event requeues the pod, whose next attempt finds a node."""
    for index in range(len(expected)):
        made = rejected(objects, waiting)
        candidate, event = dry_run_events(made, waiting)[1][index]
        made.clock.advance(20.0)
        assert made.place_of(waiting) in ("unschedulable", "gated")
        deliver(made, candidate)
        made.clock.advance(20.0)
        assert made.place_of(waiting) == "active", event.what
        assert made.decide() is not None, event.what


def deliver(made: Rig, event: Candidate) -> None:
    """Deliver the watch event of an unblocking event."""
    feed, old, new = made.scheduler.feed, event.old, event.new
    match old, new:
        case None, Node():
            feed.node_added(new)
        case Node(), Node():
            feed.node_updated(old, new)
        case None, Pod():
            feed.pod_added(new)
        case Pod(), None:
            feed.pod_deleted(old)
        case Pod(), Pod():
            feed.pod_updated(old, new)
        case _:
            raise AssertionError(event)


def test_events_without_a_node_are_returned_if_none_is_sufficient() -> None:
    """If no single event is sufficient, events for which a hint returns Queue are returned without a node."""
    waiting = pod(requests={"cpu": "1"}, node_selector={"disk": "ssd"}, tolerations=(), priority=0)
    objects: list[Node | Pod] = [node("n", taints=["a:NoSchedule"], allocatable={"cpu": "2", "memory": "1Gi"})]
    made = rig((RejectsAll,), defaults=with_default(RejectsAll))
    made.add(*objects, waiting)
    assert made.decide() is None
    _, events = dry_run_events(made, waiting)
    assert events
    assert not any(event.fits_on for _, event in events)


class RejectsAll(NodeFilterPlugin):
    """Filter plugin that rejects all nodes and has no queueing hints, so that every event may help."""

    name = "RejectsAll"

    def filter_node(self, state: object, pod: object, node: object) -> Status:
        del state, pod, node
        return unschedulable("never")


class RaisingHint(RejectsAll):
    """Filter plugin whose queueing hint raises."""

    name = "RaisingHint"

    def events_to_register(self) -> tuple[EventRegistration, ...]:
        event = RejectsAll.events_to_register(self)[0].event

        def hint(*_: object) -> Hint:
            raise RuntimeError

        return (EventRegistration(event, hint),)


def with_default(*plugins: type[NodeFilterPlugin]) -> Any:
    """Return the default plugins and the given ones."""
    defaults = default_plugins()
    entries = (*defaults.multi_point.enabled, *plugin_set(*(plugin.name for plugin in plugins)).enabled)
    return defaults.model_copy(update={"multi_point": defaults.multi_point.model_copy(update={"enabled": entries})})


def test_a_hint_that_raises_returns_no_event() -> None:
    """An event whose hint raises is not returned, although the queue would requeue the pod."""
    waiting = pod()
    made = rig((RaisingHint,), defaults=with_default(RaisingHint))
    made.add(node("n"), waiting)
    assert made.decide() is None
    assert dry_run_events(made, waiting)[1] == []


def test_a_pod_that_fits_needs_no_event() -> None:
    """A feasible pod has no unblocking events."""
    waiting = pod()
    made = default_rig(node("n"), waiting)
    assert dry_run_events(made, waiting)[1] == []


def test_a_missing_claim() -> None:
    """A missing claim of a pod that PreFilter rejects is returned without a node."""
    waiting = pod(volumes=[Volume("data", claim=ClaimVolumeSource("data"))])
    made = rejected([node("n")], waiting)
    _, events = dry_run_events(made, waiting)
    assert "claim default/data created" in [event.what for _, event in events]
    assert not any(event.fits_on for _, event in events)


def test_deallocation_and_a_published_device_are_proposed() -> None:
    """A deallocated claim and a published device are proposed; the first names the pod that must end."""
    found = RejectedPod([claim(exactly("r"))], gpus("a100"), with_reserved(allocated_claim({"device": "d0"}), "train"))
    assert [(each.event, each.what, each.fits_on) for each in found.events()] == [
        ("resource.k8s.io/ResourceClaimUpdate", "claim ns/held deallocated after pod train ends", "n0"),
        ("resource.k8s.io/ResourceSliceAdd", "a device like n0/d0 published on node n0", "n0"),
    ]


def test_one_more_device_is_proposed_if_all_match_but_are_too_few() -> None:
    """If all devices of the node match but are too few, one more device like them is proposed."""
    found = RejectedPod([claim(exactly("r", count=2))], gpus("a100"))
    assert [(each.what, each.fits_on) for each in found.events()] == [
        ("a device like n0/d0 published on node n0", "n0")
    ]
    assert found.details() == [("n0", ("request r: needs 2 devices, 1 can be used",))]


def test_a_published_device_has_the_values_that_selectors_require() -> None:
    """The proposed devices have the values that selectors require, and are as many as are missing."""
    memory = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    owned = [device(f"d{number}", "l4", capacity={"memory": {"value": "24Gi"}}) for number in range(2)]
    found = RejectedPod([claim(exactly("r", A100, memory, count=2))], slice_of(owned))
    assert [(each.what, each.fits_on) for each in found.events()] == [
        ("2 devices like n0/d0 with model a100 and memory 40Gi published on node n0", "n0")
    ]


def test_a_device_with_unknown_values_has_no_node() -> None:
    """A device whose required values are ambiguous is proposed without a node, because it cannot be dry-run."""
    found = RejectedPod([claim(exactly("r", f"{L4} || {H100}"))], gpus("a100"))
    assert ("a device for request r published on node n0", None) in [
        (each.what, each.fits_on) for each in found.events()
    ]


@table(
    "made, what",
    ("class", claim(exactly("r", device_class_name="nic")), "device class nic created"),
    ("claim", None, "claim ns/missing created"),
)
def test_missing_objects_are_proposed(made: ResourceClaim | None, what: str) -> None:
    """A missing device class and a missing claim are proposed, although no node was evaluated."""
    found = RejectedPod([] if made is None else [made], gpus("a100"))
    if made is None:
        waiting = using(found.pod, "missing")
        info = found.columns.compile_pod(waiting)
        found.found = found.made.scheduler.cycles.examiner.examine(found.instance, info)
    assert what in [each.what for each in found.events()]


def test_dry_runs_leave_the_devices_as_they_are() -> None:
    """The dry runs leave slices, allocations and claims unchanged."""
    found = RejectedPod([claim(exactly("r"))], gpus("a100"), with_reserved(allocated_claim({"device": "d0"}), "train"))
    devices = found.columns.devices

    def state() -> object:
        usage = devices.hardware.allocated.usage((DRIVER, "n0"))
        slices = sorted(each.name for each in devices.hardware.inventory.slices())
        return slices, list(devices.claims), None if usage is None else dict(usage.dedicated)

    before = state()
    assert found.events()
    assert state() == before


# -- labels that satisfy requirements ----------------------------------------------------------------------------------


@table(
    "labels, requirement, expected",
    ("In, holds", {"a": "x"}, Requirement("a", "In", ("x", "y")), {"a": "x"}),
    ("In", {"a": "z"}, Requirement("a", "In", ("x", "y")), {"a": "x"}),
    ("NotIn", {"a": "x"}, Requirement("a", "NotIn", ("x",)), {}),
    ("NotIn, holds", {"a": "y"}, Requirement("a", "NotIn", ("x",)), {"a": "y"}),
    ("Exists", {}, Requirement("a", "Exists"), {"a": "true"}),
    ("DoesNotExist", {"a": "x"}, Requirement("a", "DoesNotExist"), {}),
    ("Gt", {"a": "3"}, Requirement("a", "Gt", ("7",)), {"a": "8"}),
    ("Gt, holds", {"a": "9"}, Requirement("a", "Gt", ("7",)), {"a": "9"}),
    ("Lt", {"a": "text"}, Requirement("a", "Lt", ("7",)), {"a": "6"}),
    ("unreadable", {"a": "x"}, Requirement("a", "Gt", ("text",)), {"a": "x"}),
)
def test_at_most_one_label_changes(labels: dict[str, str], requirement: Requirement, expected: dict[str, str]) -> None:
    """A requirement that does not hold changes one label, and one that holds changes none."""
    assert satisfied(labels, [requirement]) == expected


def test_labels_for_a_selector_match_it() -> None:
    selector = LabelSelector({"app": "db"}, (Requirement("tier", "In", ("a", "b")), Requirement("old", "DoesNotExist")))
    assert compile_label_selector(selector).matches(matching_labels(selector))
    assert matching_labels(None) == {}


def test_a_pod_without_affinity_has_one_empty_term() -> None:
    """A pod without node affinity has one empty term, to which the node selector is added."""
    waiting = pod(node_selector={"disk": "ssd"})
    assert required_terms(waiting) == (NodeSelectorTerm(),)
    assert node_labels(waiting, NodeSelectorTerm(), {"disk": "hdd", "a": "b"}) == {"disk": "ssd", "a": "b"}
