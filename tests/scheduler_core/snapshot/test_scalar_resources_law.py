"""Law of scalar resources: after any sequence of node and pod events, columns equal the sums over pods and nodes."""

from collections import Counter

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.interning import UNOFFERED_COLUMN, SnapshotBounds
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import node, pod

NODE_NAMES = st.sampled_from(["a", "b", "c"])
POD_NAMES = st.sampled_from([f"p{number}" for number in range(4)])
RESOURCES = tuple(f"example.com/{letter}" for letter in "abcde")
AMOUNTS = st.dictionaries(st.sampled_from([*RESOURCES, "cpu"]), st.integers(0, 3), max_size=4)


class ResourcesMachine(RuleBasedStateMachine):
    """Applies the same events to a cache and to dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[str, dict[str, int]]] = {}
        self.waiting: dict[str, PodInfo] = {}

    @initialize(limit=st.sampled_from([1, 3, 1024]))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.cache = ClusterCache(SnapshotBounds(resources=limit))

    @rule(name=NODE_NAMES, amounts=AMOUNTS)
    def add_or_update_node(self, name: str, amounts: dict[str, int]) -> None:
        self.cache.add_node(node(name, allocatable={each: str(amount) for each, amount in amounts.items()}))
        self.offers[name] = amounts

    @rule(name=NODE_NAMES)
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.offers.pop(name, None)

    @rule(name=POD_NAMES, amounts=AMOUNTS)
    def wait(self, name: str, amounts: dict[str, int]) -> None:
        self.waiting[name] = self.cache.columns.compile_pod(pod(name, requests=amounts))

    @rule(name=POD_NAMES, node_name=NODE_NAMES)
    def assume(self, name: str, node_name: str) -> None:
        if name in self.waiting and name not in self.pods:
            info = self.waiting.pop(name)
            self.cache.assume(info, node_name)
            self.pods[name] = node_name, dict(info.requests.accounted)

    @rule(name=POD_NAMES, node_name=NODE_NAMES, amounts=AMOUNTS)
    def watch(self, name: str, node_name: str, amounts: dict[str, int]) -> None:
        info = self.cache.add_pod(pod(name, node_name=node_name, requests=amounts))
        self.pods[name] = node_name, dict(info.requests.accounted)

    @rule(name=POD_NAMES)
    def remove_pod(self, name: str) -> None:
        self.cache.remove_pod(f"uid-of-default-{name}")
        self.pods.pop(name, None)

    @invariant()
    def columns_are_those_of_offered_resources(self) -> None:
        resources = self.cache.columns.resources
        offered = {name for amounts in self.offers.values() for name in amounts} - {"cpu"}
        known = {name for name in RESOURCES if resources.find(name) is not None}
        assert known <= offered
        assert len(known) == min(self.limit, len(offered))
        assert len(resources) <= min(self.limit, len(RESOURCES)) + UNOFFERED_COLUMN + 1
        assert len(self.cache.columns.allocatable) >= len(resources)

    @invariant()
    def amounts_are_the_sums(self) -> None:
        columns = self.cache.columns
        taken: Counter[tuple[str, str]] = Counter()
        for node_name, amounts in self.pods.values():
            for name, amount in amounts.items():
                taken[node_name, name] += amount
        allocatable, requested = np.zeros_like(columns.allocatable), np.zeros_like(columns.requested)
        for node_name, amounts in self.offers.items():
            row = columns.row_of(node_name)
            assert row != NO_ROW
            for name in ("cpu", *RESOURCES):
                column, unit = columns.resources.find(name), 1000 if name == "cpu" else 1
                assert columns.requested_amount(name, row) == taken[node_name, name]
                if column is not None:
                    allocatable[column, row] = amounts.get(name, 0) * unit
                    requested[column, row] = taken[node_name, name]
        assert (columns.allocatable == allocatable).all()
        assert (columns.requested == requested).all()

    @invariant()
    def pods_follow_their_columns(self) -> None:
        keys = self.cache.columns.resources.keys
        infos = [*self.waiting.values(), *(placed.info for placed in self.cache.placed_pods())]
        for info in infos:
            requested = info.requests.fit
            assert [amount for _, amount in info.fit] == [requested[name] for name in info.fit_names]
            assert all(keys[column] in ("", name) for (column, _), name in zip(info.fit, info.fit_names, strict=True))
            named = {keys[column]: amount for column, amount in info.accounted}
            known = {name for name in requested if name in keys}
            assert named == {name: amount for name, amount in requested.items() if amount and name in known}


TestScalarResources = ResourcesMachine.TestCase
TestScalarResources.settings = settings(stateful_step_count=40)
