"""NodeDeclaredFeatures: features that a pod's spec requires must be declared by the node."""

import msgspec
import numpy as np

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Code
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.node_declared_features import (
    NodeDeclaredFeatures,
    after_node_change,
    after_pod_update,
    required_features,
)
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.tables import table

RESTART_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACES = "UserNamespacesHostNetworkSupport"
PLAIN = pod()
RESTARTING = pod(containers=[container(restart_actions=["Restart", "RestartAllContainers"])])


def with_network(*, host_network: bool, host_users: bool | None) -> Pod:
    spec = msgspec.structs.replace(PLAIN.spec, host_network=host_network, host_users=host_users)
    return msgspec.structs.replace(PLAIN, spec=spec)


@table(
    "incoming, features",
    ("no-features", PLAIN, ()),
    ("restart-all", RESTARTING, (RESTART_ALL,)),
    (
        "restart-all-of-an-init-container",
        pod(init_containers=[container(restart_actions=["RestartAllContainers"])]),
        (RESTART_ALL,),
    ),
    ("restarts-itself", pod(containers=[container(restart_actions=["Restart"])]), ()),
    ("user-namespace", with_network(host_network=True, host_users=False), (USER_NAMESPACES,)),
    ("host-network", with_network(host_network=True, host_users=None), ()),
    ("host-users", with_network(host_network=True, host_users=True), ()),
    ("own-network", with_network(host_network=False, host_users=False), ()),
)
def test_required_features(incoming: Pod, features: tuple[str, ...]) -> None:
    """Required features depend on the spec; a pod without required features skips the filter."""
    assert required_features(incoming) == features
    nodes = columns([])
    plugin = NodeDeclaredFeatures(None, FakeHandle(nodes=nodes))
    info = nodes.compile_pod(incoming)
    assert plugin.pre_filter(CycleState(), info, nodes).status.is_skip is not bool(features)


def test_filter() -> None:
    """A node passes if it declares every required feature; other features are ignored."""
    nodes = columns([node("a"), node("b", features=["Other", RESTART_ALL]), node("c", features=["Other"])])
    plugin = NodeDeclaredFeatures(None, FakeHandle(nodes=nodes))
    info = nodes.compile_pod(RESTARTING)
    codes = plugin.filter(CycleState(), info, nodes, ALL_ROWS)
    chosen = plugin.filter(CycleState(), info, nodes, np.array([1, 2]))
    assert codes is not None
    assert chosen is not None
    assert (codes.tolist(), chosen.tolist()) == ([1, 0, 1], [0, 1])


def test_all_nodes_pass_without_required_features() -> None:
    """Filter accepts all nodes, also in a profile that does not enable PreFilter."""
    nodes = columns([node()])
    plugin = NodeDeclaredFeatures(None, FakeHandle(nodes=nodes))
    assert plugin.filter(CycleState(), nodes.compile_pod(PLAIN), nodes, ALL_ROWS) is None


def test_filter_follows_changed_nodes() -> None:
    """A changed node invalidates the cached features."""
    nodes = columns([node("a")])
    plugin = NodeDeclaredFeatures(None, FakeHandle(nodes=nodes))
    info = nodes.compile_pod(RESTARTING)
    before = plugin.filter(CycleState(), info, nodes, ALL_ROWS)
    nodes.update_node(node("a", features=[RESTART_ALL]))
    after = plugin.filter(CycleState(), info, nodes, ALL_ROWS)
    assert before is not None
    assert after is not None
    assert (before.tolist(), after.tolist()) == ([1], [0])


def test_rejection() -> None:
    """The rejection is unresolvable by preemption."""
    nodes = columns([])
    status = NodeDeclaredFeatures(None, FakeHandle()).decode(CycleState(), nodes.compile_pod(RESTARTING), 1)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("node(s) didn't match Pod's required features",)


@table(
    "old, new, hint",
    ("added", None, node(), Hint.QUEUE),
    ("declares-more", node(), node(features=[RESTART_ALL]), Hint.QUEUE),
    ("another-change", node(features=["A"]), node(features=["A"], labels={"a": "b"}), Hint.SKIP),
    ("not-a-node", PLAIN, PLAIN, Hint.QUEUE),
)
def test_node_hint(old: object, new: object, hint: Hint) -> None:
    """A pod is requeued if the declared features of a node changed."""
    assert after_node_change(RESTARTING, old, new) is hint


@table(
    "old, new, hint",
    ("fewer-required-features", RESTARTING, PLAIN, Hint.QUEUE),
    ("equal-required-features", RESTARTING, RESTARTING, Hint.SKIP),
    ("another-pod", pod("other"), pod("other", containers=RESTARTING.spec.containers), Hint.SKIP),
    ("not-a-pod", node(), node(), Hint.QUEUE),
)
def test_pod_hint(old: object, new: object, hint: Hint) -> None:
    """A pod is requeued if its own update changes the required features."""
    assert after_pod_update(RESTARTING, old, new) is hint
