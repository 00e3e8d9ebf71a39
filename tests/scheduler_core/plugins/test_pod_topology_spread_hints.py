"""PodTopologySpread says which events may help a pod that it rejected."""

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
PLACED_WEB = pod("o", node_name="n", labels={"app": "web"})
PLACED_DB = pod("o", node_name="n", labels={"app": "db"})


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(ME, None, PLACED_WEB, Hint.QUEUE, id="a-counted-pod-comes"),
        pytest.param(ME, None, PLACED_DB, Hint.SKIP, id="another-pod-comes"),
        pytest.param(ME, PLACED_WEB, None, Hint.QUEUE, id="a-counted-pod-goes"),
        pytest.param(ME, PLACED_DB, None, Hint.SKIP, id="another-pod-goes"),
        pytest.param(ME, None, pod("o", labels={"app": "web"}), Hint.SKIP, id="a-pod-without-a-node"),
        pytest.param(ME, None, pod("o", labels={"app": "web"}, nominated_node="n"), Hint.QUEUE, id="a-nominated-pod"),
        pytest.param(
            ME, pod("o", namespace="m", node_name="n", labels={"app": "web"}), None, Hint.SKIP, id="another-namespace"
        ),
        pytest.param(ME, PLACED_DB, PLACED_WEB, Hint.QUEUE, id="a-pod-becomes-counted"),
        pytest.param(ME, PLACED_WEB, PLACED_DB, Hint.QUEUE, id="a-pod-ceases-to-be-counted"),
        pytest.param(ME, PLACED_WEB, PLACED_WEB, Hint.SKIP, id="nothing-changes"),
        pytest.param(HONORING_ME, HONORING_ME, TOLERANT_ME, Hint.QUEUE, id="own-tolerations-where-taints-matter"),
        pytest.param(
            ME,
            ME,
            pod("me", labels={"app": "web"}, spread=[ZONES], tolerations=[Toleration(operator="Exists")]),
            Hint.SKIP,
            id="own-tolerations-where-they-do-not",
        ),
        pytest.param(ME, pod("me", spread=[ZONES]), ME, Hint.QUEUE, id="own-labels"),
        pytest.param(BROKEN, None, PLACED_WEB, Hint.QUEUE, id="an-unreadable-selector"),
        pytest.param(ME, None, node(), Hint.QUEUE, id="not-a-pod"),
        pytest.param(ME, None, None, Hint.QUEUE, id="nothing-known"),
    ],
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod helps by changing what the constraints count."""
    assert PodTopologySpread(None, FakeHandle()).after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")
TAINTED_A = node("n", labels={"zone": "a"}, taints=["t:NoSchedule"])
TWO_KEYS = pod("me", spread=[ZONES, HOSTS])


@pytest.mark.parametrize(
    ("waiting", "old", "new", "hint"),
    [
        pytest.param(ME, None, ZONE_A, Hint.QUEUE, id="a-node-with-the-key-comes"),
        pytest.param(ME, None, BARE, Hint.SKIP, id="a-node-without-it-comes"),
        pytest.param(ME, ZONE_A, None, Hint.QUEUE, id="a-node-with-the-key-goes"),
        pytest.param(ME, BARE, None, Hint.SKIP, id="a-node-without-it-goes"),
        pytest.param(ME, BARE, ZONE_A, Hint.QUEUE, id="the-key-is-added"),
        pytest.param(ME, ZONE_A, BARE, Hint.QUEUE, id="the-key-is-removed"),
        pytest.param(ME, ZONE_A, ZONE_B, Hint.QUEUE, id="another-domain"),
        pytest.param(ME, ZONE_A, TAINTED_A, Hint.QUEUE, id="taints"),
        pytest.param(ME, ZONE_A, ZONE_A, Hint.SKIP, id="nothing-changes"),
        pytest.param(ME, BARE, node("n", taints=["t:NoSchedule"]), Hint.SKIP, id="taints-without-the-key"),
        pytest.param(TWO_KEYS, None, ZONE_A, Hint.SKIP, id="a-node-lacks-one-of-two-keys"),
        pytest.param(BROKEN, ZONE_A, ZONE_A, Hint.QUEUE, id="an-unreadable-selector"),
    ],
)
def test_node_hint(waiting: Pod, old: Node | None, new: Node | None, hint: Hint) -> None:
    """A node helps by changing domains, or which nodes count in them."""
    assert PodTopologySpread(None, FakeHandle()).after_node_change(waiting, old, new) is hint


def test_node_hint_of_another_kind() -> None:
    """What is not understood is tried."""
    assert PodTopologySpread(None, FakeHandle()).after_node_change(ME, PLACED_WEB, None) is Hint.QUEUE


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
    """Only what can change the answer wakes a pod."""
    registrations = PodTopologySpread(None, FakeHandle()).events_to_register()
    assert any(registration.event.covers(event) for registration in registrations) is registered
