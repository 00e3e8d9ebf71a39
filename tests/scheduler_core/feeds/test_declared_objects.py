"""Annotations, status fields and kinds that plugins declare: plugins read them, and their changes requeue pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.object_reads import NodeView, ObjectKind, ObjectReads, StatusField, annotations_of
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.scheduling import Rig, rig
from tests.support.tables import table


class License(Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    free_seats: int = 0


LICENSES = ObjectKind("/apis/example.com/v1/licenses", License)
UNDECLARED = ObjectKind("/apis/example.com/v1/others", License)


class LicenseFilter(NodeFilterPlugin):
    """Filter plugin that requires the annotation ``ok=yes`` of node and pod, the phase ``yes``, and a free license."""

    name = "LicenseFilter"
    reads = ObjectReads(
        node_annotations=True, pod_annotations=True, node_status=(StatusField("phase", str, ""),), kinds=(LICENSES,)
    )

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        license_ = self.handle.objects(LICENSES).get("one", "default")
        results = {
            "license": license_ is not None and license_.free_seats > 0,
            "annotation": node.annotations.get("ok") == "yes",
            "phase": getattr(node.node.status, "phase", "") == "yes",
            "pod": annotations_of(pod.pod).get("ok") == "yes",
        }
        missing = [name for name, holds in results.items() if not holds]
        return unschedulable(f"no {', '.join(missing)}") if missing else SUCCESS

    def events_to_register(self) -> Sequence[EventRegistration]:
        node_changes = Action.UPDATE_NODE_ANNOTATION | Action.UPDATE_NODE_CONDITION
        return (
            EventRegistration(ClusterEvent(Resource.NODE, node_changes)),
            EventRegistration(ClusterEvent(Resource.POD, Action.UPDATE_OTHER)),
            EventRegistration(LICENSES.event(Action.ALL)),
        )


def _decoded(kind: type[Any], **fields: Any) -> Any:
    meta = {"name": "one", "uid": "uid-one", "namespace": fields.pop("namespace", ""), **fields.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, **fields}, kind)


class World:
    """Scheduler with the plugin, and objects that are decoded with the declared fields."""

    def __init__(self) -> None:
        self.rig: Rig = rig([LicenseFilter])
        self.feed = self.rig.scheduler.feed
        self.licenses = self.rig.scheduler.declared_feeds[LICENSES.path]

    def node(self, ok: str = "yes", phase: str = "yes", **annotations: str) -> Node:
        """Return a node with the annotation ``ok`` and a phase."""
        kind = self.rig.scheduler.decoded.node
        status = {"allocatable": {"cpu": "4", "pods": "10"}, "phase": phase}
        made: Node = _decoded(kind, metadata={"annotations": {"ok": ok, **annotations}}, status=status)
        return made

    def license(self, seats: int) -> License:
        """Return a license with a number of free seats."""
        made: License = _decoded(License, namespace="default", freeSeats=seats)
        return made

    def pod(self, ok: str = "yes") -> Pod:
        """Return a pending pod with the annotation ``ok``."""
        kind, spec = self.rig.scheduler.decoded.pod, {"schedulerName": "default-scheduler"}
        meta = {"name": "p", "uid": "uid-p", "annotations": {"ok": ok}}
        made: Pod = _decoded(kind, namespace="default", metadata=meta, spec=spec)
        return made


@pytest.fixture
def world() -> World:
    return World()


async def test_a_plugin_reads_what_it_declares(world: World) -> None:
    """A plugin reads declared annotations, a declared status field and objects of a declared kind."""
    world.feed.node_added(world.node())
    world.licenses.added(world.license(1))
    world.feed.pod_added(world.pod())
    assert await world.rig.attempt() == "one"


@table(
    "change, requeues",
    ("node's annotation", lambda world: world.feed.node_updated(world.node(), world.node(more="x")), True),
    ("node's declared status", lambda world: world.feed.node_updated(world.node(), world.node(phase="no")), True),
    ("node's heartbeat", lambda world: world.feed.node_updated(world.node(), world.node()), False),
    ("object added", lambda world: world.licenses.added(world.license(1)), True),
    ("object updated", lambda world: world.licenses.updated(world.license(0), world.license(1)), True),
    ("object deleted", lambda world: world.licenses.deleted(world.license(1)), True),
    ("pod's own annotation", lambda world: world.feed.pod_updated(world.pod("no"), world.pod("yes")), True),
    ("pod's heartbeat", lambda world: world.feed.pod_updated(world.pod(), world.pod()), False),
)
async def test_changes_of_declared_parts_requeue_rejected_pods(
    world: World, change: Callable[[World], None], requeues: bool
) -> None:
    """A change of any declared part is an event that requeues a rejected pod; heartbeats are not."""
    world.feed.node_added(world.node())
    waiting = world.pod()
    world.feed.pod_added(waiting)
    assert await world.rig.attempt() == ""
    assert world.rig.place_of(waiting) == "unschedulable"
    change(world)
    assert (world.rig.place_of(waiting) != "unschedulable") is requeues


async def test_the_object_store_is_updated(world: World) -> None:
    """The store has the last version of each object, by name and namespace."""
    (instance,) = world.rig.context.profiles
    store = instance.plugins["LicenseFilter"].handle.objects(LICENSES)
    world.licenses.added(world.license(1))
    world.licenses.updated(world.license(1), world.license(2))
    found = present(store.get("one", "default"))
    assert ([each.free_seats for each in store], len(store), found.free_seats) == ([2], 1, 2)
    world.licenses.deleted(world.license(2))
    assert store.get("one", "default") is None


async def test_an_undeclared_kind_is_rejected(world: World) -> None:
    """Reading an undeclared kind raises an error that contains where to declare it."""
    (instance,) = world.rig.context.profiles
    with pytest.raises(PluginError, match=r"name the kind in the plugin's reads\.kinds"):
        instance.plugins["LicenseFilter"].handle.objects(UNDECLARED)


async def test_without_declarations_annotations_are_no_events() -> None:
    """If no plugin declares anything, nodes and pods are decoded as the scheduler's own types."""
    made = rig()
    assert (made.scheduler.decoded.node, made.scheduler.decoded.pod, made.scheduler.declared_feeds) == (Node, Pod, {})
    assert annotations_of(pod("p")) == {}
