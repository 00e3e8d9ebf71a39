"""Decoded object types: the scheduler's own, plus the fields that plugins declare."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from scheduler_core.errors import RegistryError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.framework.object_reads import (
    NO_EXTRA_READS,
    DecodedTypes,
    ObjectKind,
    ObjectReads,
    StatusField,
    annotations_of,
    decoded_types,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.tables import table


class License(Struct, frozen=True):
    metadata: ObjectMeta
    seats: int = 0


class OtherLicense(Struct, frozen=True):
    metadata: ObjectMeta


LICENSES = ObjectKind("/apis/example.com/v1/licenses", License)
_NODE = b"""{"metadata": {"name": "a", "annotations": {"example.com/cost": "3"}},
             "status": {"capacity": {"cpu": "1"}, "nodeInfo": {"osImage": "x"}}}"""


def test_without_declarations_the_types_are_unchanged() -> None:
    """The scheduler's own types are used unchanged."""
    assert decoded_types([("A", NO_EXTRA_READS), ("B", NO_EXTRA_READS)]) == DecodedTypes(Node, Pod, ())


def test_declared_annotations_are_decoded() -> None:
    """Nodes are decoded with annotations if one plugin declares them; pods are unchanged."""
    types = decoded_types([("A", NO_EXTRA_READS), ("B", ObjectReads(node_annotations=True))])
    node = msgspec.json.decode(_NODE, type=types.node)
    assert isinstance(node, Node)
    assert annotations_of(node) == {"example.com/cost": "3"}
    assert types.pod is Pod


def test_annotations_are_empty_without_a_declaration() -> None:
    """Without a declaration, annotations_of() returns no annotations even if the object has some."""
    assert annotations_of(msgspec.json.decode(_NODE, type=Node)) == {}


def test_status_fields_are_decoded_in_the_declared_form() -> None:
    """A declared field is an attribute of the status, in addition to the scheduler's own."""
    reads = ObjectReads(node_status=(StatusField("node_info", dict[str, str], None),))
    node = msgspec.json.decode(_NODE, type=decoded_types([("A", reads), ("B", reads)]).node)
    assert (node.status.node_info, node.status.capacity) == ({"osImage": "x"}, {"cpu": "1"})  # type: ignore[attr-defined]  # declared above
    assert msgspec.json.decode(b'{"metadata": {"name": "b"}}', type=type(node)).status.node_info is None  # type: ignore[attr-defined]  # as above


def test_kinds_are_watched_once() -> None:
    """Two plugins that read a kind as the same struct share it."""
    reads = ObjectReads(kinds=(LICENSES,))
    assert decoded_types([("A", reads), ("B", reads)]).kinds == (LICENSES,)


@table(
    "first, second, expected",
    (
        "kind",
        ObjectReads(kinds=(LICENSES,)),
        ObjectReads(kinds=(ObjectKind(LICENSES.path, OtherLicense),)),
        "plugins A and B read /apis/example.com/v1/licenses by different structs",
    ),
    (
        "status field",
        ObjectReads(pod_status=(StatusField("host_ips", list[str], None),)),
        ObjectReads(pod_status=(StatusField("host_ips", str, ""),)),
        "plugins A and B read status field host_ips in different forms",
    ),
    (
        "known field",
        NO_EXTRA_READS,
        ObjectReads(node_status=(StatusField("capacity", dict[str, str], None),)),
        "plugin B reads status field capacity, which is decoded anyway",
    ),
)
def test_conflicting_declarations_are_rejected(first: ObjectReads, second: ObjectReads, expected: str) -> None:
    """The error names the plugins and the conflict."""
    with pytest.raises(RegistryError, match=expected):
        decoded_types([("A", first), ("B", second)])


@table(
    "event, covered",
    ("same kind", LICENSES.event(Action.ADD), True),
    ("another kind", ObjectKind("/apis/example.com/v1/seats", License).event(Action.ADD), False),
    ("node", ClusterEvent(Resource.NODE, Action.ADD), False),
    ("anything", ClusterEvent(Resource.WILDCARD, Action.ALL), True),
)
def test_events_of_declared_kinds_are_distinguished(event: ClusterEvent, covered: bool) -> None:
    """A registration for one declared kind does not match another."""
    assert LICENSES.event(Action.ADD | Action.UPDATE_OTHER).covers(event) is covered


def test_an_event_is_named_by_its_kind() -> None:
    """The name of an event contains the resource of its kind."""
    assert LICENSES.event(Action.ADD).name == "licensesAdd"
