"""Index of the rows on which host ports are in use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.indexes.row_indexes import HostPortIndex
from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort, host_ports
from tests.support.builders import container, pod


def conflicts(index: HostPortIndex, *ports: HostPort) -> set[int]:
    return set(index.conflicting_rows(ports).tolist())


@pytest.mark.parametrize(
    ("requested", "rows"),
    [
        pytest.param(("TCP", 80, "1.1.1.1"), {0, 2}, id="its-address-and-the-wildcard"),
        pytest.param(("TCP", 80, "9.9.9.9"), {2}, id="another-address-and-the-wildcard"),
        pytest.param(("TCP", 80, WILDCARD_IP), {0, 1, 2}, id="wildcard-and-every-address"),
        pytest.param(("UDP", 80, WILDCARD_IP), set(), id="another-protocol"),
        pytest.param(("TCP", 81, WILDCARD_IP), set(), id="another-port"),
    ],
)
def test_conflicts(requested: HostPort, rows: set[int]) -> None:
    """Two ports conflict if protocol and port are equal and the addresses overlap."""
    index = HostPortIndex()
    for row, address in enumerate(("1.1.1.1", "2.2.2.2", WILDCARD_IP)):
        index.add(row, (("TCP", 80, address),))
    assert conflicts(index, requested) == rows


def test_one_of_several_ports_is_enough() -> None:
    """Rows conflict if one of the requested ports is in use."""
    index = HostPortIndex()
    index.add(3, (("TCP", 80, WILDCARD_IP),))
    index.add(4, (("UDP", 53, WILDCARD_IP),))
    assert conflicts(index, ("TCP", 80, WILDCARD_IP), ("UDP", 53, "1.1.1.1"), ("TCP", 1, WILDCARD_IP)) == {3, 4}
    assert conflicts(index) == set()


def test_a_port_of_two_pods_is_free_after_both_are_removed() -> None:
    """Two pods that were bound by another scheduler may use the same port."""
    index, ports = HostPortIndex(), (("TCP", 80, WILDCARD_IP),)
    index.add(0, ports)
    index.add(0, ports)
    index.remove(0, ports)
    assert conflicts(index, *ports) == {0}
    index.remove(0, ports)
    assert conflicts(index, *ports) == set()


def test_hidden_ports_count_as_free() -> None:
    """Hidden ports are free on their row until they are revealed."""
    index, ports = HostPortIndex(), (("TCP", 80, WILDCARD_IP), ("TCP", 81, WILDCARD_IP))
    for row in (0, 1):
        index.add(row, ports)
    index.hide(0, ports[:1])
    assert (conflicts(index, ports[0]), conflicts(index, ports[1])) == ({1}, {0, 1})
    assert index.reveal(0, ports) == ports[:1]
    assert conflicts(index, ports[0]) == {0, 1}
    assert index.reveal(0, ports) == ()


def test_hiding_an_unused_port_has_no_effect() -> None:
    """A port that is added after hide() is in use."""
    index, ports = HostPortIndex(), (("TCP", 80, WILDCARD_IP),)
    index.hide(0, ports)
    index.add(0, ports)
    assert conflicts(index, *ports) == {0}


def test_host_ports_of_a_pod() -> None:
    """host_ports() returns the distinct host ports of containers and sidecars, not of init containers."""
    sidecar = container(name="s", ports=[81], restart_policy="Always")
    requested = pod(
        containers=[container(name="a", ports=[80]), container(name="b", ports=[80])],
        init_containers=[sidecar, container(name="i", ports=[82])],
    )
    assert host_ports(requested) == (("TCP", 80, WILDCARD_IP), ("TCP", 81, WILDCARD_IP))


_PORTS = st.tuples(
    st.sampled_from(["TCP", "UDP"]), st.integers(1, 2), st.sampled_from([WILDCARD_IP, "1.1.1.1", "2.2.2.2"])
)
_POD_PORTS = st.lists(_PORTS, max_size=2, unique=True).map(tuple)


@given(st.lists(st.tuples(st.integers(0, 3), _POD_PORTS)), st.data())
def test_the_index_equals_the_remaining_pods(pods: list[tuple[int, tuple[HostPort, ...]]], data: st.DataObject) -> None:
    """Conflicts equal a search over the remaining pods, after any pods are removed."""
    index = HostPortIndex()
    for row, ports in pods:
        index.add(row, ports)
    gone = data.draw(st.sets(st.integers(0, len(pods) - 1))) if pods else set()
    for position in gone:
        index.remove(*pods[position])
    protocol, number, address = data.draw(_PORTS)
    expected = {
        row
        for position, (row, ports) in enumerate(pods)
        for taken_protocol, taken_number, taken_address in ports
        if position not in gone
        and (taken_protocol, taken_number) == (protocol, number)
        and (WILDCARD_IP in (address, taken_address) or address == taken_address)
    }
    assert conflicts(index, (protocol, number, address)) == expected
