"""Queueing hints of PodTopologySpread."""

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.tables import table

WEB = LabelSelector(match_labels={"app": "web"})
ZONES = TopologySpreadConstraint(topology_key="zone", label_selector=WEB)
HONORING = TopologySpreadConstraint(topology_key="zone", label_selector=WEB, node_taints_policy="Honor")
HOSTS = TopologySpreadConstraint(topology_key="host", label_selector=WEB)
ME = pod("me", labels={"app": "web"}, spread=[ZONES])
HONORING_ME = pod("me", labels={"app": "web"}, spread=[HONORING])
TOLERANT_ME = pod("me", labels={"app": "web"}, spread=[HONORING], tolerations=[Toleration(operator="Exists")])
BROKEN = pod(
    "me",
    spread=[
        TopologySpreadConstraint(
            topology_key="zone", label_selector=LabelSelector(match_expressions=(Requirement("a", "Near"),))
        )
    ],
)
BOUND_WEB = pod("o", node_name="n", labels={"app": "web"})
BOUND_DB = pod("o", node_name="n", labels={"app": "db"})


@table(
    "waiting, old, new, hint",
    ("matching-pod-added", ME, None, BOUND_WEB, Hint.QUEUE),
    ("other-pod-added", ME, None, BOUND_DB, Hint.SKIP),
    ("matching-pod-deleted", ME, BOUND_WEB, None, Hint.QUEUE),
    ("other-pod-deleted", ME, BOUND_DB, None, Hint.SKIP),
    ("a-pod-without-a-node", ME, None, pod("o", labels={"app": "web"}), Hint.SKIP),
    ("a-nominated-pod", ME, None, pod("o", labels={"app": "web"}, nominated_node="n"), Hint.QUEUE),
    ("another-namespace", ME, pod("o", namespace="m", node_name="n", labels={"app": "web"}), None, Hint.SKIP),
    ("pod-matches-now", ME, BOUND_DB, BOUND_WEB, Hint.QUEUE),
    ("pod-no-longer-matches", ME, BOUND_WEB, BOUND_DB, Hint.QUEUE),
    ("nothing-changes", ME, BOUND_WEB, BOUND_WEB, Hint.SKIP),
    ("own-tolerations-with-taints-honored", HONORING_ME, HONORING_ME, TOLERANT_ME, Hint.QUEUE),
    (
        "own-tolerations-with-taints-ignored",
        ME,
        ME,
        pod("me", labels={"app": "web"}, spread=[ZONES], tolerations=[Toleration(operator="Exists")]),
        Hint.SKIP,
    ),
    ("own-labels", ME, pod("me", spread=[ZONES]), ME, Hint.QUEUE),
    ("invalid-selector", BROKEN, None, BOUND_WEB, Hint.QUEUE),
    ("not-a-pod", ME, None, node(), Hint.QUEUE),
    ("no-objects", ME, None, None, Hint.QUEUE),
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it changes the number of matching pods."""
    assert PodTopologySpread(None, FakeHandle()).after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")
TAINTED_A = node("n", labels={"zone": "a"}, taints=["t:NoSchedule"])
TWO_KEYS = pod("me", spread=[ZONES, HOSTS])


@table(
    "waiting, old, new, hint",
    ("node-with-the-key-added", ME, None, ZONE_A, Hint.QUEUE),
    ("node-without-the-key-added", ME, None, BARE, Hint.SKIP),
    ("node-with-the-key-deleted", ME, ZONE_A, None, Hint.QUEUE),
    ("node-without-the-key-deleted", ME, BARE, None, Hint.SKIP),
    ("the-key-is-added", ME, BARE, ZONE_A, Hint.QUEUE),
    ("the-key-is-removed", ME, ZONE_A, BARE, Hint.QUEUE),
    ("another-domain", ME, ZONE_A, ZONE_B, Hint.QUEUE),
    ("taints", ME, ZONE_A, TAINTED_A, Hint.QUEUE),
    ("nothing-changes", ME, ZONE_A, ZONE_A, Hint.SKIP),
    ("taints-without-the-key", ME, BARE, node("n", taints=["t:NoSchedule"]), Hint.SKIP),
    ("node-with-one-of-two-keys-added", TWO_KEYS, None, ZONE_A, Hint.SKIP),
    ("invalid-selector", BROKEN, ZONE_A, ZONE_A, Hint.QUEUE),
    ("not-a-node", ME, BOUND_WEB, None, Hint.QUEUE),
)
def test_node_hint(waiting: Pod, old: Node | Pod | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if it changes domains or the nodes that count in them."""
    assert PodTopologySpread(None, FakeHandle()).after_node_change(waiting, old, new) is hint


@table(
    "event, registered",
    ("pod-add", ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), True),
    ("pod-delete", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), True),
    ("pod-labels", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), True),
    ("own-labels", ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL), True),
    ("own-tolerations", ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION), True),
    ("unscheduled-pod", ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL), False),
    ("pod-scale-down", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN), False),
    ("node-add", ClusterEvent(Resource.NODE, Action.ADD), True),
    ("node-delete", ClusterEvent(Resource.NODE, Action.DELETE), True),
    ("node-labels", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), True),
    ("node-taints", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), True),
    ("node-allocatable", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE), False),
)
def test_events(event: ClusterEvent, registered: bool) -> None:
    """Only events that can change the filter's result are registered."""
    registrations = PodTopologySpread(None, FakeHandle()).events_to_register()
    assert any(registration.event.covers(event) for registration in registrations) is registered
