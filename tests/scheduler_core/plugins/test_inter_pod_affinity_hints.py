"""Queueing hints of InterPodAffinity."""

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity, after_node_change, after_pod_change
from tests.support.affinities import affinity_to, anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle

WITH_AFFINITY = pod("me", labels={"app": "me"}, affinity=affinity_to("web"))
WITH_ANTI_AFFINITY = pod("me", labels={"app": "me"}, affinity=anti_affinity_to("web"))
WEB = pod("o", node_name="n", labels={"app": "web"})
DB = pod("o", node_name="n", labels={"app": "db"})
WAITING_WEB = pod("o", labels={"app": "web"})
BROKEN = pod("me", affinity=affinity_to(term(LabelSelector(match_expressions=(Requirement("a", "Near"),)))))


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(WITH_AFFINITY, None, WEB, Hint.QUEUE, id="affinity-matching-pod-added"),
        pytest.param(WITH_AFFINITY, None, DB, Hint.SKIP, id="affinity-other-pod-added"),
        pytest.param(WITH_AFFINITY, None, WAITING_WEB, Hint.SKIP, id="affinity-matching-pod-without-a-node"),
        pytest.param(
            WITH_AFFINITY,
            None,
            pod("o", nominated_node="n", labels={"app": "web"}),
            Hint.QUEUE,
            id="affinity-matching-pod-nominated",
        ),
        pytest.param(WITH_ANTI_AFFINITY, None, WEB, Hint.SKIP, id="anti-affinity-matching-pod-added"),
        pytest.param(WITH_ANTI_AFFINITY, WEB, None, Hint.QUEUE, id="anti-affinity-matching-pod-deleted"),
        pytest.param(WITH_ANTI_AFFINITY, DB, None, Hint.SKIP, id="anti-affinity-other-pod-deleted"),
        pytest.param(WITH_AFFINITY, WEB, None, Hint.SKIP, id="affinity-matching-pod-deleted"),
        pytest.param(
            pod("me", labels={"app": "me"}),
            pod("o", node_name="n", affinity=anti_affinity_to("me")),
            None,
            Hint.QUEUE,
            id="pod-with-anti-affinity-to-this-one-deleted",
        ),
        pytest.param(
            pod("me", labels={"app": "me"}),
            pod("o", node_name="n", affinity=anti_affinity_to("me", "web")),
            None,
            Hint.QUEUE,
            id="pod-with-two-anti-affinity-terms-deleted",
        ),
        pytest.param(WITH_AFFINITY, DB, WEB, Hint.QUEUE, id="affinity-pod-matches-now"),
        pytest.param(WITH_AFFINITY, WEB, WEB, Hint.SKIP, id="affinity-pod-matched-before"),
        pytest.param(WITH_ANTI_AFFINITY, WEB, DB, Hint.QUEUE, id="anti-affinity-pod-no-longer-matches"),
        pytest.param(WITH_ANTI_AFFINITY, DB, WEB, Hint.SKIP, id="anti-affinity-pod-matches-now"),
        pytest.param(WITH_AFFINITY, pod("me"), WITH_AFFINITY, Hint.QUEUE, id="own-labels"),
        pytest.param(WITH_AFFINITY, WAITING_WEB, WEB, Hint.SKIP, id="pod-without-a-node-before"),
        pytest.param(BROKEN, None, WEB, Hint.QUEUE, id="invalid-terms"),
        pytest.param(WITH_AFFINITY, None, node(), Hint.QUEUE, id="not-a-pod"),
    ],
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it may satisfy affinity, or may end a conflict with anti-affinity."""
    assert after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(WITH_AFFINITY, None, ZONE_A, Hint.QUEUE, id="node-with-the-key-added"),
        pytest.param(WITH_AFFINITY, None, BARE, Hint.SKIP, id="node-without-the-key-added"),
        pytest.param(WITH_ANTI_AFFINITY, None, BARE, Hint.QUEUE, id="anti-node-without-the-key-added"),
        pytest.param(pod("me"), None, ZONE_A, Hint.SKIP, id="no-terms"),
        pytest.param(WITH_AFFINITY, BARE, ZONE_A, Hint.QUEUE, id="the-key-is-added"),
        pytest.param(WITH_AFFINITY, ZONE_A, ZONE_B, Hint.QUEUE, id="another-domain"),
        pytest.param(WITH_AFFINITY, ZONE_A, ZONE_A, Hint.SKIP, id="the-same-domain"),
        pytest.param(WITH_AFFINITY, ZONE_A, BARE, Hint.SKIP, id="the-key-is-removed"),
        pytest.param(WITH_ANTI_AFFINITY, BARE, ZONE_A, Hint.SKIP, id="anti-the-key-is-added"),
        pytest.param(WITH_ANTI_AFFINITY, ZONE_A, ZONE_B, Hint.QUEUE, id="anti-another-domain"),
        pytest.param(WITH_ANTI_AFFINITY, ZONE_A, BARE, Hint.QUEUE, id="anti-the-key-is-removed"),
        pytest.param(WITH_ANTI_AFFINITY, ZONE_A, ZONE_A, Hint.SKIP, id="anti-the-same-domain"),
        pytest.param(BROKEN, ZONE_A, ZONE_A, Hint.QUEUE, id="invalid-terms"),
        pytest.param(WITH_AFFINITY, ZONE_A, None, Hint.QUEUE, id="not-a-change"),
    ],
)
def test_node_hint(waiting: Pod, old: Node | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if the node's topology domain may satisfy the pod's terms."""
    assert after_node_change(waiting, old, new) is hint


@pytest.mark.parametrize(
    ("event", "registered"),
    [
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), True, id="pod-add"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), True, id="pod-delete"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), True, id="pod-labels"),
        pytest.param(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL), True, id="own-labels"),
        pytest.param(ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL), False, id="unscheduled-pod"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN), False, id="pod-scale-down"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD), True, id="node-add"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), True, id="node-labels"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), False, id="node-taints"),
        pytest.param(ClusterEvent(Resource.NODE, Action.DELETE), False, id="node-delete"),
    ],
)
def test_events(event: ClusterEvent, registered: bool) -> None:
    """Only events that can change the filter's result are registered."""
    registrations = InterPodAffinity(None, FakeHandle()).events_to_register()
    assert any(registration.event.covers(event) for registration in registrations) is registered
