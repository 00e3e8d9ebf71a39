"""Rows by host port, image, and priority of their pods."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.node import ContainerImage
from scheduler_core.snapshot.indexes.row_indexes import HostPortIndex, ImageIndex, PriorityCounts
from scheduler_core.snapshot.pod_info import WILDCARD_IP, HostPort, host_ports, ports_conflict
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.presence import present
from tests.support.tables import table


def conflicts(index: HostPortIndex, *ports: HostPort) -> set[int]:
    return set(index.conflicting_rows(ports).tolist())


@table(
    "requested, rows",
    ("its-address-and-the-wildcard", ("TCP", 80, "1.1.1.1"), {0, 2}),
    ("another-address-and-the-wildcard", ("TCP", 80, "9.9.9.9"), {2}),
    ("wildcard-and-every-address", ("TCP", 80, WILDCARD_IP), {0, 1, 2}),
    ("another-protocol", ("UDP", 80, WILDCARD_IP), set()),
    ("another-port", ("TCP", 81, WILDCARD_IP), set()),
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


PORTS = st.tuples(
    st.sampled_from(("TCP", "UDP")), st.integers(80, 81), st.sampled_from(("1.1.1.1", "2.2.2.2", WILDCARD_IP))
)
"""Host ports that often conflict."""


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), PORTS), max_size=12), st.lists(PORTS, max_size=3), st.data()
)
def test_conflicts_equal_the_rule_port_by_port(
    changes: list[tuple[int, bool, HostPort]], wanted: list[HostPort], data: st.DataObject
) -> None:
    """After any additions and removals, and with any ports hidden, each pair of ports is compared."""
    index, held = HostPortIndex(), list[tuple[int, HostPort]]()
    for row, is_removed, port in changes:
        if is_removed and held:
            gone = held.pop(0)
            index.remove(gone[0], (gone[1],))
        index.add(row, (port,))
        held.append((row, port))
    hidden = set(data.draw(st.lists(st.sampled_from(held), max_size=3))) if held else set()
    for row, port in hidden:
        index.hide(row, (port,))
    expected = {
        row
        for row, port in held
        if (row, port) not in hidden
        and any(port[:2] == each[:2] and (port[2] == each[2] or WILDCARD_IP in (port[2], each[2])) for each in wanted)
    }
    assert conflicts(index, *wanted) == expected
    assert {row for row, port in held if ports_conflict(wanted, [port])} >= expected


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


def rows_of(index: ImageIndex, name: str) -> list[int]:
    state = index.get(name)
    return [] if state is None else state.row_array().tolist()


def test_every_name_of_an_image_is_found() -> None:
    """An image is found by tag and by digest."""
    index = ImageIndex()
    index.add_node(2, [ContainerImage(("app:v1", "app@sha256:1"), 100)])
    index.add_node(0, [ContainerImage(("app:v1",), 100)])
    assert rows_of(index, "app:v1") == [0, 2]
    assert rows_of(index, "app@sha256:1") == [2]
    assert index.get("unknown") is None


def test_the_first_size_is_stored_until_no_node_has_the_image() -> None:
    """The size is that of the first node that reported the image, as in kube-scheduler."""
    index = ImageIndex()
    first, second = ContainerImage(("app",), 100), ContainerImage(("app",), 999)
    index.add_node(0, [first])
    index.add_node(1, [second])
    index.remove_node(0, [first])
    state = present(index.get("app"))
    assert state.size_bytes == 100
    index.remove_node(1, [second])
    assert index.get("app") is None
    index.add_node(1, [second])
    added_again = present(index.get("app"))
    assert added_again.size_bytes == 999


def test_every_change_raises_the_version() -> None:
    """Each added or removed image increases the version, which invalidates cached results."""
    index = ImageIndex()
    versions = [index.version]
    for _ in range(2):
        index.add_node(0, [ContainerImage(("app",), 1)])
        versions.append(index.version)
        index.remove_node(0, [ContainerImage(("app",), 1)])
        versions.append(index.version)
    assert versions == sorted(set(versions))


def test_rows_are_not_writeable() -> None:
    """Rows are read-only because plugins receive them."""
    index = ImageIndex()
    index.add_node(0, [ContainerImage(("app",), 1)])
    state = present(index.get("app"))
    with pytest.raises(ValueError, match="read-only"):
        state.row_array()[0] = 1


_IMAGES = st.lists(st.sampled_from("abc"), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 3), _IMAGES)))
def test_the_index_equals_what_nodes_report(reports: list[tuple[int, list[str]]]) -> None:
    """After any sequence of reports, the rows of an image are those of the nodes' last reports."""
    index = ImageIndex()
    current: dict[int, list[ContainerImage]] = {}
    for row, names in reports:
        index.remove_node(row, current.get(row, []))
        current[row] = [ContainerImage((name,), 1) for name in names]
        index.add_node(row, current[row])
        for name in "abc":
            holders = [each for each, images in sorted(current.items()) if any(name in image.names for image in images)]
            assert rows_of(index, name) == holders


ROWS = np.arange(4, dtype=np.intp)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.booleans())), st.integers(-3, 3))
def test_counts_equal_the_pods(steps: list[tuple[int, int, bool]], priority: int) -> None:
    """below() equals a search over the pods, after any sequence of additions and removals."""
    counts, present = PriorityCounts(), list[tuple[int, int]]()
    counts.resize(4)
    for row, of_pod, is_added in steps:
        if is_added:
            counts.add(row, of_pod)
            present.append((row, of_pod))
        elif (row, of_pod) in present:
            counts.remove(row, of_pod)
            present.remove((row, of_pod))
    expected = [any(at == row and other < priority for at, other in present) for row in range(4)]
    assert counts.below(priority, ROWS).tolist() == expected
    assert counts.below(priority, ROWS[2:]).tolist() == expected[2:]


def test_counts_follow_the_columns() -> None:
    """Pods are counted when the columns add them, and not counted after their node is removed."""
    nodes = columns([node(f"n{index}") for index in range(100)], [pod("low", node_name="n90", priority=-1)])
    assert np.flatnonzero(nodes.priorities.below(0, np.arange(100))).tolist() == [90]
    nodes.remove_node("n90")
    assert not nodes.priorities.below(0, np.arange(100)).any()


def test_resize_does_not_lose_counts() -> None:
    """Counts of new rows are 0."""
    counts = PriorityCounts()
    counts.resize(1)
    counts.add(0, 1)
    counts.resize(4)
    assert counts.below(2, ROWS).tolist() == [True, False, False, False]
