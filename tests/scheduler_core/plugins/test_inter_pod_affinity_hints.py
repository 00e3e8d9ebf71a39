"""Queueing hints of InterPodAffinity."""

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity, after_node_change, after_pod_change
from tests.support.affinities import affinity_to, anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.tables import table

WITH_AFFINITY = pod("me", labels={"app": "me"}, affinity=affinity_to("web"))
WITH_ANTI_AFFINITY = pod("me", labels={"app": "me"}, affinity=anti_affinity_to("web"))
WEB = pod("o", node_name="n", labels={"app": "web"})
DB = pod("o", node_name="n", labels={"app": "db"})
WAITING_WEB = pod("o", labels={"app": "web"})
BROKEN = pod("me", affinity=affinity_to(term(LabelSelector(match_expressions=(Requirement("a", "Near"),)))))


@table(
    "waiting, old, new, hint",
    ("affinity-matching-pod-added", WITH_AFFINITY, None, WEB, Hint.QUEUE),
    ("affinity-other-pod-added", WITH_AFFINITY, None, DB, Hint.SKIP),
    ("affinity-matching-pod-without-a-node", WITH_AFFINITY, None, WAITING_WEB, Hint.SKIP),
    (
        "affinity-matching-pod-nominated",
        WITH_AFFINITY,
        None,
        pod("o", nominated_node="n", labels={"app": "web"}),
        Hint.QUEUE,
    ),
    ("anti-affinity-matching-pod-added", WITH_ANTI_AFFINITY, None, WEB, Hint.SKIP),
    ("anti-affinity-matching-pod-deleted", WITH_ANTI_AFFINITY, WEB, None, Hint.QUEUE),
    ("anti-affinity-other-pod-deleted", WITH_ANTI_AFFINITY, DB, None, Hint.SKIP),
    ("affinity-matching-pod-deleted", WITH_AFFINITY, WEB, None, Hint.SKIP),
    (
        "pod-with-anti-affinity-to-this-one-deleted",
        pod("me", labels={"app": "me"}),
        pod("o", node_name="n", affinity=anti_affinity_to("me")),
        None,
        Hint.QUEUE,
    ),
    (
        "pod-with-two-anti-affinity-terms-deleted",
        pod("me", labels={"app": "me"}),
        pod("o", node_name="n", affinity=anti_affinity_to("me", "web")),
        None,
        Hint.QUEUE,
    ),
    ("affinity-pod-matches-now", WITH_AFFINITY, DB, WEB, Hint.QUEUE),
    ("affinity-pod-matched-before", WITH_AFFINITY, WEB, WEB, Hint.SKIP),
    ("anti-affinity-pod-no-longer-matches", WITH_ANTI_AFFINITY, WEB, DB, Hint.QUEUE),
    ("anti-affinity-pod-matches-now", WITH_ANTI_AFFINITY, DB, WEB, Hint.SKIP),
    ("own-labels", WITH_AFFINITY, pod("me"), WITH_AFFINITY, Hint.QUEUE),
    ("pod-without-a-node-before", WITH_AFFINITY, WAITING_WEB, WEB, Hint.SKIP),
    ("invalid-terms", BROKEN, None, WEB, Hint.QUEUE),
    ("not-a-pod", WITH_AFFINITY, None, node(), Hint.QUEUE),
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it may satisfy affinity, or may end a conflict with anti-affinity."""
    assert after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")


@table(
    "waiting, old, new, hint",
    ("node-with-the-key-added", WITH_AFFINITY, None, ZONE_A, Hint.QUEUE),
    ("node-without-the-key-added", WITH_AFFINITY, None, BARE, Hint.SKIP),
    ("anti-node-without-the-key-added", WITH_ANTI_AFFINITY, None, BARE, Hint.QUEUE),
    ("no-terms", pod("me"), None, ZONE_A, Hint.SKIP),
    ("the-key-is-added", WITH_AFFINITY, BARE, ZONE_A, Hint.QUEUE),
    ("another-domain", WITH_AFFINITY, ZONE_A, ZONE_B, Hint.QUEUE),
    ("the-same-domain", WITH_AFFINITY, ZONE_A, ZONE_A, Hint.SKIP),
    ("the-key-is-removed", WITH_AFFINITY, ZONE_A, BARE, Hint.SKIP),
    ("anti-the-key-is-added", WITH_ANTI_AFFINITY, BARE, ZONE_A, Hint.SKIP),
    ("anti-another-domain", WITH_ANTI_AFFINITY, ZONE_A, ZONE_B, Hint.QUEUE),
    ("anti-the-key-is-removed", WITH_ANTI_AFFINITY, ZONE_A, BARE, Hint.QUEUE),
    ("anti-the-same-domain", WITH_ANTI_AFFINITY, ZONE_A, ZONE_A, Hint.SKIP),
    ("invalid-terms", BROKEN, ZONE_A, ZONE_A, Hint.QUEUE),
    ("not-a-change", WITH_AFFINITY, ZONE_A, None, Hint.QUEUE),
)
def test_node_hint(waiting: Pod, old: Node | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if the node's topology domain may satisfy the pod's terms."""
    assert after_node_change(waiting, old, new) is hint


@table(
    "event, registered",
    ("pod-add", ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), True),
    ("pod-delete", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), True),
    ("pod-labels", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), True),
    ("own-labels", ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL), True),
    ("unscheduled-pod", ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL), False),
    ("pod-scale-down", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN), False),
    ("node-add", ClusterEvent(Resource.NODE, Action.ADD), True),
    ("node-labels", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), True),
    ("node-taints", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), False),
    ("node-delete", ClusterEvent(Resource.NODE, Action.DELETE), False),
)
def test_events(event: ClusterEvent, registered: bool) -> None:
    """Only events that can change the filter's result are registered."""
    registrations = InterPodAffinity(None, FakeHandle()).events_to_register()
    assert any(registration.event.covers(event) for registration in registrations) is registered
