"""Matching of event registrations with cluster events, and the names of events."""

from __future__ import annotations

import pytest

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

TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)


@pytest.mark.parametrize(
    ("registered", "event", "covers"),
    [
        pytest.param(NODE_ADD, NODE_ADD, True, id="itself"),
        pytest.param(NODE_ADD, NODE_DELETE, False, id="another-action"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT), TAINT, True, id="one-of-two"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE), TAINT, True, id="any-update"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE), NODE_ADD, False, id="an-update-is-not-an-add"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ALL), NODE_DELETE, True, id="all-actions"),
        pytest.param(ClusterEvent(Resource.POD, Action.ADD), NODE_ADD, False, id="another-kind"),
        pytest.param(ClusterEvent(Resource.POD, Action.ADD), ASSIGNED_POD_ADD, True, id="any-pod"),
        pytest.param(ClusterEvent(Resource.POD, Action.UPDATE), TARGET_POD_UPDATE, True, id="any-pod-the-target"),
        pytest.param(ASSIGNED_POD_ADD, UNSCHEDULED_POD_ADD, False, id="an-assigned-pod-only"),
        pytest.param(EVERY_EVENT, ASSIGNED_POD_ADD, True, id="every-event"),
        pytest.param(ClusterEvent(Resource.WILDCARD, Action.ADD), NODE_ADD, True, id="any-kind"),
        pytest.param(ClusterEvent(Resource.WILDCARD, Action.ADD), NODE_DELETE, False, id="any-kind-another-action"),
        pytest.param(TAINT, UNSCHEDULABLE_TIMEOUT, True, id="the-timeout-matches-all"),
    ],
)
def test_covers(registered: ClusterEvent, event: ClusterEvent, covers: bool) -> None:
    """Events match by kind and by action; a wildcard on either side matches all kinds."""
    assert registered.covers(event) is covers


@pytest.mark.parametrize(
    ("event", "name"),
    [
        pytest.param(NODE_ADD, "NodeAdd", id="kind-and-action"),
        pytest.param(TAINT, "NodeUpdateNodeTaint", id="words"),
        pytest.param(ASSIGNED_POD_ADD, "AssignedPodAdd", id="pod"),
        pytest.param(TARGET_POD_UPDATE, "TargetPodUpdate", id="any-update"),
        pytest.param(UNSCHEDULABLE_TIMEOUT, "UnschedulableTimeout", id="label"),
        pytest.param(ClusterEvent(Resource.CSI_NODE, Action.ADD), "storage.k8s.io/CSINodeAdd", id="with-group"),
        pytest.param(
            ClusterEvent(Resource.DECLARED_KIND, Action.ADD, kind="/apis/example.com/v1/quotas"),
            "quotasAdd",
            id="declared-kind",
        ),
    ],
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
