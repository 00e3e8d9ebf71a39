"""Matching of event registrations with cluster events, and the names of events."""

from __future__ import annotations

from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_ADD,
    EVERY_EVENT,
    NODE_ADD,
    NODE_DELETE,
    TARGET_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    UNSCHEDULED_POD_ADD,
    Action,
    ClusterEvent,
    Resource,
)
from tests.support.tables import table

TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


@table(
    "registered, event, covers",
    ("itself", NODE_ADD, NODE_ADD, True),
    ("another-action", NODE_ADD, NODE_DELETE, False),
    ("one-of-two", ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), TAINT, True),
    ("any-update", ClusterEvent(Resource.NODE, Action.UPDATE), TAINT, True),
    ("an-update-is-not-an-add", ClusterEvent(Resource.NODE, Action.UPDATE), NODE_ADD, False),
    ("all-actions", ClusterEvent(Resource.NODE, Action.ALL), NODE_DELETE, True),
    ("another-kind", ClusterEvent(Resource.POD, Action.ADD), NODE_ADD, False),
    ("any-pod", ClusterEvent(Resource.POD, Action.ADD), ASSIGNED_POD_ADD, True),
    ("any-pod-the-target", ClusterEvent(Resource.POD, Action.UPDATE), TARGET_POD_UPDATE, True),
    ("an-assigned-pod-only", ASSIGNED_POD_ADD, UNSCHEDULED_POD_ADD, False),
    ("every-event", EVERY_EVENT, ASSIGNED_POD_ADD, True),
    ("any-kind", ClusterEvent(Resource.WILDCARD, Action.ADD), NODE_ADD, True),
    ("any-kind-another-action", ClusterEvent(Resource.WILDCARD, Action.ADD), NODE_DELETE, False),
    ("the-timeout-matches-all", TAINT, UNSCHEDULABLE_TIMEOUT, True),
)
def test_covers(registered: ClusterEvent, event: ClusterEvent, covers: bool) -> None:
    """Events match by kind and by action; a wildcard on either side matches all kinds."""
    assert registered.covers(event) is covers


@table(
    "event, name",
    ("kind-and-action", NODE_ADD, "NodeAdd"),
    ("words", TAINT, "NodeUpdateNodeTaint"),
    ("pod", ASSIGNED_POD_ADD, "AssignedPodAdd"),
    ("any-update", TARGET_POD_UPDATE, "TargetPodUpdate"),
    ("label", UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout"),
    ("with-group", ClusterEvent(Resource.CSI_NODE, Action.ADD), "storage.k8s.io/CSINodeAdd"),
    (
        "declared-kind",
        ClusterEvent(Resource.DECLARED_KIND, Action.ADD, kind="/apis/example.com/v1/quotas"),
        "quotasAdd",
    ),
)
def test_names(event: ClusterEvent, name: str) -> None:
    """Event names equal kube-scheduler's labels in metrics and logs."""
    assert event.name == name


def test_every_action_is_add_delete_or_update() -> None:
    """Each bit of Action belongs to ADD, DELETE or UPDATE."""
    assert Action.ALL == Action.ADD | Action.DELETE | Action.UPDATE
    for action in Action:
        assert action & Action.ALL
        assert bool(action & Action.UPDATE) is action.name.startswith("UPDATE")  # type: ignore[union-attr]  # named
