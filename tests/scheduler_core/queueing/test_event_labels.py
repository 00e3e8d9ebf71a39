"""What metrics call events."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import (
    ASSIGNED_POD_DELETE,
    FORCE_ACTIVATE,
    NODE_ADD,
    UNSCHEDULED_POD_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from scheduler_core.queueing.event_labels import label_of
from tests.support.builders import pod

WAITING, BOUND = pod("web"), pod("web", node_name="n0")
LABELLED = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)


@pytest.mark.parametrize(
    ("event", "old", "new", "label"),
    [
        pytest.param(NODE_ADD, None, object(), "NodeAdd", id="node"),
        pytest.param(
            ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), 1, 2, "NodeUpdateNodeTaint", id="node-taint"
        ),
        pytest.param(LABELLED, WAITING, WAITING, "UnschedulablePodUpdatePodLabel", id="waiting-pod"),
        pytest.param(LABELLED, BOUND, BOUND, "AssignedPodUpdatePodLabel", id="bound-pod"),
        pytest.param(
            ClusterEvent(Resource.POD, Action.DELETE), BOUND, None, "AssignedPodDelete", id="bound-pod-deleted"
        ),
        pytest.param(
            ClusterEvent(Resource.POD, Action.UPDATE_OTHER), BOUND, BOUND, "AssignedPodUpdate", id="something-of-a-pod"
        ),
        pytest.param(UNSCHEDULED_POD_UPDATE, WAITING, WAITING, "UnschedulablePodUpdate", id="labelled"),
        pytest.param(ASSIGNED_POD_DELETE, WAITING, None, "AssignedPodDelete", id="promise-ended"),
        pytest.param(FORCE_ACTIVATE, None, WAITING, "ForceActivate", id="activated"),
        pytest.param(
            ClusterEvent(Resource.CSI_NODE, Action.UPDATE_OTHER), 1, 2, "storage.k8s.io/CSINodeUpdate", id="with-group"
        ),
        pytest.param(
            ClusterEvent(Resource.DECLARED_KIND, Action.ADD, kind="/apis/example.com/v1/quotas"),
            None,
            1,
            "quotasAdd",
            id="declared-kind",
        ),
    ],
)
def test_labels(event: ClusterEvent, old: object | None, new: object | None, label: str) -> None:
    """As kube-scheduler writes them."""
    assert label_of(event, old, new) == label
