"""Queueing hints of PodTopologySpread."""

import pytest

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle

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


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(ME, None, BOUND_WEB, Hint.QUEUE, id="matching-pod-added"),
        pytest.param(ME, None, BOUND_DB, Hint.SKIP, id="other-pod-added"),
        pytest.param(ME, BOUND_WEB, None, Hint.QUEUE, id="matching-pod-deleted"),
        pytest.param(ME, BOUND_DB, None, Hint.SKIP, id="other-pod-deleted"),
        pytest.param(ME, None, pod("o", labels={"app": "web"}), Hint.SKIP, id="a-pod-without-a-node"),
        pytest.param(ME, None, pod("o", labels={"app": "web"}, nominated_node="n"), Hint.QUEUE, id="a-nominated-pod"),
        pytest.param(
            ME, pod("o", namespace="m", node_name="n", labels={"app": "web"}), None, Hint.SKIP, id="another-namespace"
        ),
        pytest.param(ME, BOUND_DB, BOUND_WEB, Hint.QUEUE, id="pod-matches-now"),
        pytest.param(ME, BOUND_WEB, BOUND_DB, Hint.QUEUE, id="pod-no-longer-matches"),
        pytest.param(ME, BOUND_WEB, BOUND_WEB, Hint.SKIP, id="nothing-changes"),
        pytest.param(HONORING_ME, HONORING_ME, TOLERANT_ME, Hint.QUEUE, id="own-tolerations-with-taints-honored"),
        pytest.param(
            ME,
            ME,
            pod("me", labels={"app": "web"}, spread=[ZONES], tolerations=[Toleration(operator="Exists")]),
            Hint.SKIP,
            id="own-tolerations-with-taints-ignored",
        ),
        pytest.param(ME, pod("me", spread=[ZONES]), ME, Hint.QUEUE, id="own-labels"),
        pytest.param(BROKEN, None, BOUND_WEB, Hint.QUEUE, id="invalid-selector"),
        pytest.param(ME, None, node(), Hint.QUEUE, id="not-a-pod"),
        pytest.param(ME, None, None, Hint.QUEUE, id="no-objects"),
    ],
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it changes the number of matching pods."""
    assert PodTopologySpread(None, FakeHandle()).after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")
TAINTED_A = node("n", labels={"zone": "a"}, taints=["t:NoSchedule"])
TWO_KEYS = pod("me", spread=[ZONES, HOSTS])


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(ME, None, ZONE_A, Hint.QUEUE, id="node-with-the-key-added"),
        pytest.param(ME, None, BARE, Hint.SKIP, id="node-without-the-key-added"),
        pytest.param(ME, ZONE_A, None, Hint.QUEUE, id="node-with-the-key-deleted"),
        pytest.param(ME, BARE, None, Hint.SKIP, id="node-without-the-key-deleted"),
        pytest.param(ME, BARE, ZONE_A, Hint.QUEUE, id="the-key-is-added"),
        pytest.param(ME, ZONE_A, BARE, Hint.QUEUE, id="the-key-is-removed"),
        pytest.param(ME, ZONE_A, ZONE_B, Hint.QUEUE, id="another-domain"),
        pytest.param(ME, ZONE_A, TAINTED_A, Hint.QUEUE, id="taints"),
        pytest.param(ME, ZONE_A, ZONE_A, Hint.SKIP, id="nothing-changes"),
        pytest.param(ME, BARE, node("n", taints=["t:NoSchedule"]), Hint.SKIP, id="taints-without-the-key"),
        pytest.param(TWO_KEYS, None, ZONE_A, Hint.SKIP, id="node-with-one-of-two-keys-added"),
        pytest.param(BROKEN, ZONE_A, ZONE_A, Hint.QUEUE, id="invalid-selector"),
        pytest.param(ME, BOUND_WEB, None, Hint.QUEUE, id="not-a-node"),
    ],
)
def test_node_hint(waiting: Pod, old: Node | Pod | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if it changes domains or the nodes that count in them."""
    assert PodTopologySpread(None, FakeHandle()).after_node_change(waiting, old, new) is hint


@pytest.mark.parametrize(
    ("event", "registered"),
    [
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), True, id="pod-add"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), True, id="pod-delete"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL), True, id="pod-labels"),
        pytest.param(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL), True, id="own-labels"),
        pytest.param(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION), True, id="own-tolerations"),
        pytest.param(ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL), False, id="unscheduled-pod"),
        pytest.param(ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN), False, id="pod-scale-down"),
        pytest.param(ClusterEvent(Resource.NODE, Action.ADD), True, id="node-add"),
        pytest.param(ClusterEvent(Resource.NODE, Action.DELETE), True, id="node-delete"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), True, id="node-labels"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), True, id="node-taints"),
        pytest.param(ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE), False, id="node-allocatable"),
    ],
)
def test_events(event: ClusterEvent, registered: bool) -> None:
    """Only events that can change the filter's result are registered."""
    registrations = PodTopologySpread(None, FakeHandle()).events_to_register()
    assert any(registration.event.covers(event) for registration in registrations) is registered
