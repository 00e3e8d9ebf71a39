"""Law of the cache: each node's requested amounts are the sums over its pods, after any sequence of events."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import node, pod
from tests.support.presence import present

NODE_NAMES = st.sampled_from(["a", "b", "c"])
POD_NAMES = st.sampled_from([f"p{number}" for number in range(4)])
AMOUNTS = st.fixed_dictionaries(
    {"cpu": st.integers(0, 4)}, optional={"example.com/gpu": st.integers(0, 2), "example.com/fpga": st.integers(1, 2)}
)
PORTS = st.sets(st.integers(80, 82), max_size=2)


@dataclass
class Expected:
    """Expected state of an assumed or bound pod."""

    node_name: str
    amounts: dict[str, int]
    ports: set[int]
    state: PodState
    bound_at: float = 0.0


class CacheMachine(RuleBasedStateMachine):
    """Applies the same events to a cache and to dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ClusterCache()
        self.nodes: set[str] = set()
        self.pods: dict[str, Expected] = {}
        self.assumed: dict[str, PodInfo] = {}
        self.now = 0.0

    @rule(name=NODE_NAMES)
    def add_or_update_node(self, name: str) -> None:
        self.cache.add_node(node(name))
        self.nodes.add(name)

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.nodes.discard(name)

    @rule(name=POD_NAMES, node_name=NODE_NAMES, amounts=AMOUNTS, ports=PORTS)
    def assume(self, name: str, node_name: str, amounts: dict[str, int], ports: set[int]) -> None:
        if name in self.pods:
            return
        info = self.cache.columns.compile_pod(pod(name, requests=amounts, ports=sorted(ports)))
        self.cache.assume(info, node_name)
        self.assumed[name] = info
        self.pods[name] = Expected(node_name, amounts, ports, PodState.ASSUMED)

    @rule(name=POD_NAMES)
    def finish_binding(self, name: str) -> None:
        self.now += 1.0
        self.cache.finish_binding(f"uid-of-default-{name}", self.now)
        expected = self.pods.get(name)
        if expected is not None and expected.state is not PodState.ADDED:
            expected.state, expected.bound_at = PodState.BOUND, self.now

    @rule(name=POD_NAMES)
    def forget(self, name: str) -> None:
        info = self.assumed.pop(name, None)
        if info is None:
            return
        self.cache.forget(info)
        if name in self.pods and self.pods[name].state is not PodState.ADDED:
            del self.pods[name]

    @rule(name=POD_NAMES)
    def confirm(self, name: str) -> None:
        expected = self.pods.get(name)
        if expected is not None:
            self.watch(name, expected.node_name, expected.amounts, expected.ports)

    @rule(name=POD_NAMES, node_name=NODE_NAMES, amounts=AMOUNTS, ports=PORTS)
    def watch(self, name: str, node_name: str, amounts: dict[str, int], ports: set[int]) -> None:
        self.cache.add_pod(pod(name, node_name=node_name, requests=amounts, ports=sorted(ports)))
        self.pods[name] = Expected(node_name, amounts, ports, PodState.ADDED)

    @rule(name=POD_NAMES)
    def remove_pod(self, name: str) -> None:
        info = self.cache.remove_pod(f"uid-of-default-{name}")
        assert (info is not None) is (name in self.pods)
        self.pods.pop(name, None)
        self.assumed.pop(name, None)

    @invariant()
    def amounts_are_the_sum_over_pods(self) -> None:
        columns = self.cache.columns
        expected = np.zeros((4, columns.size), dtype=np.int64)
        scalars: Counter[tuple[str, int]] = Counter()
        counts = np.zeros_like(columns.pod_count)
        for each in self.pods.values():
            row = columns.row_of(each.node_name)
            if row == NO_ROW:
                continue
            counts[row] += 1
            for name, amount in each.amounts.items():
                if name == "cpu":
                    expected[CPU_COLUMN, row] += amount * 1000
                else:
                    scalars[name, row] += amount
        # Resources that no node offers have no columns.
        assert (columns.requested == expected).all()
        assert all(columns.requested_amount(*place) == amount for place, amount in scalars.items())
        assert (columns.pod_count == counts).all()
        assert (columns.nonzero_requested[0] == expected[0]).all()
        assert (columns.nonzero_requested[1] == counts * 200 * 1024 * 1024).all()

    @invariant()
    def each_node_has_one_row(self) -> None:
        columns = self.cache.columns
        rows = {name: columns.row_of(name) for name in self.nodes}
        assert len(set(rows.values())) == len(rows) == columns.count == columns.alive.sum()
        assert all(columns.names[row] == name and columns.alive[row] for name, row in rows.items())
        assert columns.size <= 3

    @invariant()
    def each_pod_is_on_the_row_of_its_node(self) -> None:
        columns = self.cache.columns
        assert len(self.cache) == len(self.pods)
        for name, expected in self.pods.items():
            entry = present(self.cache.get(f"uid-of-default-{name}"))
            assert (entry.state, entry.info.node_name) == (expected.state, expected.node_name)
            row = columns.row_of(expected.node_name)
            assert entry.info.row == row
            assert row == NO_ROW or columns.pods[row][entry.info.uid] is entry.info

    @invariant()
    def ports_are_in_use_on_the_rows_of_their_pods(self) -> None:
        columns = self.cache.columns
        for port in (80, 81, 82):
            taken = set(columns.host_ports.conflicting_rows((("TCP", port, "1.1.1.1"),)).tolist())
            holders = {columns.row_of(each.node_name) for each in self.pods.values() if port in each.ports}
            assert taken == holders - {NO_ROW}

    @invariant()
    def only_bound_pods_become_overdue(self) -> None:
        unconfirmed = [each for each in self.pods.values() if each.state is not PodState.ADDED]
        assert self.cache.assumed_count == len(unconfirmed)
        late = {name for name, each in self.pods.items() if each.state is PodState.BOUND and each.bound_at < self.now}
        assert {info.pod.metadata.name for info in self.cache.overdue(self.now)} == late


TestCache = CacheMachine.TestCase
TestCache.settings = settings(stateful_step_count=40)
