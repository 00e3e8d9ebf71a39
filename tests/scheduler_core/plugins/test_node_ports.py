"""NodePorts: a host port can be used once per node."""

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.pod import ContainerPort, Pod
from scheduler_core.plugins.node_ports import NodePorts, after_pod_deletion
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import codes_or_none
from tests.support.tables import table

ANY = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens on it


def port(number: int, protocol: str = "TCP", address: str = "") -> ContainerPort:
    return ContainerPort(container_port=1, host_port=number, protocol=protocol, host_ip=address)


def filtered(incoming: Pod, running: list[Pod], rows: Rows = ALL_ROWS) -> list[int] | None:
    nodes = columns([node("a"), node("b"), node("c")], running)
    return codes_or_none(NodePorts(None, FakeHandle(nodes=nodes)), incoming, nodes, rows)


@table(
    "requested, skipped",
    ("no-ports", pod(), True),
    ("container-port-only", pod(ports=[ContainerPort(container_port=80)]), True),
    ("host-port", pod(ports=[80]), False),
    ("init-container", pod(init_containers=[container(ports=[80])]), True),
    ("sidecar", pod(init_containers=[container(ports=[80], restart_policy="Always")]), False),
)
def test_pods_without_host_ports_skip_the_filter(requested: Pod, skipped: bool) -> None:
    """PreFilter skips pods without host ports; ports of init containers that are not sidecars do not count."""
    nodes = columns([])
    plugin = NodePorts(None, FakeHandle(nodes=nodes))
    assert plugin.pre_filter(CycleState(), nodes.compile_pod(requested), nodes).status.is_skip is skipped


def test_codes_of_selected_rows() -> None:
    """filter() returns codes of the requested rows, in their order."""
    running = pod("running", node_name="b", ports=[80])
    assert filtered(pod(ports=[80]), [running], np.array([1, 2])) == [1, 0]


def test_a_port_is_free_after_its_pod_is_removed() -> None:
    """Filter reads the current columns."""
    nodes = columns([node("a")])
    plugin = NodePorts(None, FakeHandle(nodes=nodes))
    requested, running = nodes.compile_pod(pod(ports=[80])), nodes.compile_pod(pod("running", ports=[80]))
    nodes.add_pod(running, 0)
    used = plugin.filter(CycleState(), requested, nodes, ALL_ROWS)
    nodes.remove_pod(running)
    assert used is not None
    assert used.tolist() == [1]
    assert plugin.filter(CycleState(), requested, nodes, ALL_ROWS) is None


@table(
    "deleted, hint",
    ("same-port", pod("gone", node_name="a", ports=[80]), Hint.QUEUE),
    ("another-port", pod("gone", node_name="a", ports=[81]), Hint.SKIP),
    ("no-ports", pod("gone", node_name="a"), Hint.SKIP),
    ("without-a-node", pod("gone", ports=[80]), Hint.SKIP),
    ("nominated", pod("gone", ports=[80], nominated_node="a"), Hint.QUEUE),
    ("an-address", pod("gone", node_name="a", ports=[port(80, address="127.0.0.1")]), Hint.QUEUE),
    ("another-protocol", pod("gone", node_name="a", ports=[port(80, "UDP")]), Hint.SKIP),
    ("not-a-pod", node(), Hint.QUEUE),
)
def test_hint(deleted: object, hint: Hint) -> None:
    """A pod is requeued if the deleted pod had a node and a conflicting port."""
    assert after_pod_deletion(pod("waiting", ports=[80]), deleted, None) is hint


class UsedPort(NamedTuple):
    node_name: str
    port: ContainerPort


_PORTS = st.builds(
    port, st.integers(1, 3), st.sampled_from(["TCP", "UDP", ""]), st.sampled_from(["", "1.1.1.1", "2.2.2.2"])
)


@given(
    requested=st.lists(_PORTS, max_size=3),
    running=st.lists(st.builds(UsedPort, st.sampled_from("abc"), _PORTS), max_size=8),
)
def test_all_nodes_at_once_equals_one_at_a_time(requested: list[ContainerPort], running: list[UsedPort]) -> None:
    """Codes of all rows equal those of single nodes."""

    def conflict(one: ContainerPort, other: ContainerPort) -> bool:
        addresses = {one.host_ip or ANY, other.host_ip or ANY}
        return (
            one.host_port == other.host_port
            and (one.protocol or "TCP") == (other.protocol or "TCP")
            and (len(addresses) == 1 or ANY in addresses)
        )

    expected = [
        int(any(conflict(one, used.port) for one in requested for used in running if used.node_name == name))
        for name in "abc"
    ]
    pods = [pod(f"p{index}", node_name=used.node_name, ports=[used.port]) for index, used in enumerate(running)]
    assert (filtered(pod(ports=requested), pods) or [0, 0, 0]) == expected
