"""NodeResourcesFit's three scoring strategies."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import NodeResourcesFitArgs, read_args
from scheduler_core.model.devices import DeviceClassSpec
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ContainerStatus, Pod, ResourceRequirements
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.plugins.resource_scoring import Demand, DeviceUses, scored_resource
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.device_world import DeviceWorld
from tests.support.devices import allocated_claim, device, device_class, slice_of
from tests.support.handles import FakeHandle
from tests.support.plain_scores import GPU, UNITS, OneNode, plain_least, plain_most, plain_ratio, scored_clusters
from tests.support.plugin_calls import scores_of
from tests.support.tables import table

RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}


def _args(strategy: str, *resources: tuple[str, int]) -> NodeResourcesFitArgs:
    scoring: dict[str, Any] = {
        "type": strategy,
        "resources": [{"name": name, "weight": weight} for name, weight in resources],
    }
    if strategy == "RequestedToCapacityRatio":
        scoring["requestedToCapacityRatio"] = RATIO
    return read_args("NodeResourcesFit", NodeResourcesFitArgs, {"scoringStrategy": scoring})


def _scores(nodes: NodeColumns, incoming: Pod, args: NodeResourcesFitArgs) -> list[int]:
    return scores_of(NodeResourcesFit(args, FakeHandle(nodes=nodes)), incoming, nodes)


def _one(incoming: Pod, args: NodeResourcesFitArgs, *placed: Pod) -> int:
    """Return the score of a node with 10 CPUs, 20 GiB and 4 GPUs."""
    here = node("a", allocatable={"cpu": "10", "memory": "20Gi", GPU: "4", "pods": "110"})
    return _scores(columns([here], placed), incoming, args)[0]


@table(
    "strategy, score",
    ("free share", "LeastAllocated", (80 + 60) // 2),
    ("used share", "MostAllocated", (20 + 40) // 2),
    ("line through the used share", "RequestedToCapacityRatio", (20 + 40) // 2),
)
def test_strategies(strategy: str, score: int) -> None:
    """By default, cpu and memory are scored: here 2 of 10 CPUs and 8 of 20 GiB, including the pod's half."""
    half = {"cpu": "1", "memory": "4Gi"}
    assert _one(pod(requests=half), _args(strategy), pod("old", requests=half, node_name="a")) == score


@table(
    "incoming, score",
    ("one container without requests counts 100 milli-CPU", pod(), 1),
    ("three containers count 300", pod(containers=[container(name=str(number)) for number in range(3)]), 3),
    ("a zero request has no default", pod(requests={"cpu": "0"}), 0),
    ("request", pod(requests={"cpu": "2"}), 20),
    ("overhead counts", pod(requests={"cpu": "2"}, overhead={"cpu": "1"}), 30),
    (
        "pod-level requests do not count",
        pod(containers=[container(requests={"cpu": "2"})], pod_requests={"cpu": "5"}),
        20,
    ),
    (
        "resources in force do not count",
        pod(
            requests={"cpu": "2"}, container_statuses=[ContainerStatus("main", {}, ResourceRequirements({"cpu": "6"}))]
        ),
        20,
    ),
    (
        "the largest init container counts",
        pod(init_containers=[container(name="init", requests={"cpu": "4"})], requests={"cpu": "1"}),
        40,
    ),
)
def test_requests_that_are_scored(incoming: Pod, score: int) -> None:
    """The score is the share of 10 CPUs that the pod's requests or defaults use."""
    assert _one(incoming, _args("MostAllocated", ("cpu", 1))) == score


def test_existing_pods_count_with_defaults() -> None:
    """Five pods without requests count as 500 milli-CPU of 10 CPUs."""
    placed = [pod(f"p{number}", node_name="a") for number in range(4)]
    assert _one(pod(), _args("MostAllocated", ("cpu", 1)), *placed) == 5


@table(
    "requests, score",
    ("not requested", {"cpu": "1"}, 10),
    ("requested", {"cpu": "1", GPU: 1}, (10 + 3 * 50) // 4),
    ("zero requested", {"cpu": "1", GPU: 0}, 10),
)
def test_extended_resources(requests: dict[str, str | int], score: int) -> None:
    """GPUs, of which one of four is in use, count only for pods that request GPUs."""
    existing = pod("old", requests={"cpu": "0", GPU: 1}, node_name="a")
    assert _one(pod(requests=requests), _args("MostAllocated", ("cpu", 1), (GPU, 3)), existing) == score


@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"])
@pytest.mark.parametrize("resource", [GPU, "example.com/unknown", "pods", "storage"])
def test_no_resource_to_score(strategy: str, resource: str) -> None:
    """Every node has score 0 if no configured resource counts."""
    nodes = columns([node("a"), node("b")])
    assert _scores(nodes, pod(requests={"cpu": "1"}), _args(strategy, (resource, 1))) == [0, 0]


def test_removed_nodes_do_not_change_scores() -> None:
    """A freed row has capacity 0 and does not affect the scores of other rows."""
    nodes = columns([node(name, allocatable={"cpu": "10", "memory": "20Gi"}) for name in "abc"])
    nodes.remove_node("b")
    scores = _scores(nodes, pod(requests={"cpu": "2", "memory": "2Gi"}), _args("LeastAllocated"))
    assert (scores[0], scores[2]) == (85, 85)


def _plain_use(here: Node, placed: list[Pod], incoming: Pod, weights: dict[str, int]) -> list[OneNode]:
    """Return the capacity, use and request of each scored resource on one node."""
    defaults = {"cpu": 100, "memory": 200 * 2**20}

    def requested(one: Pod, name: str) -> int:
        requests = one.spec.containers[0].resources.requests
        return int(requests[name]) * UNITS[name] if name in requests else defaults.get(name, 0)

    on_it = [each for each in placed if each.spec.node_name == here.metadata.name]
    return [
        OneNode(
            int(here.status.allocatable.get(name, 0)) * UNITS[name],
            sum(requested(each, name) for each in on_it),
            requested(incoming, name),
            weight,
        )
        for name, weight in weights.items()
        if requested(incoming, name) or name != GPU
    ]


@given(scored_clusters(), st.dictionaries(st.sampled_from(list(UNITS)), st.integers(1, 100), min_size=1))
def test_equals_the_form_for_one_node(cluster: tuple[list[Node], list[Pod], Pod], weights: dict[str, int]) -> None:
    """Scores of all strategies equal the formulas for single nodes."""
    nodes, placed, incoming = cluster
    filled = columns(nodes, placed)
    uses = [_plain_use(here, placed, incoming, weights) for here in nodes]
    resources = tuple(weights.items())
    assert _scores(filled, incoming, _args("LeastAllocated", *resources)) == [plain_least(use) for use in uses]
    assert _scores(filled, incoming, _args("MostAllocated", *resources)) == [plain_most(use) for use in uses]
    ratio = _scores(filled, incoming, _args("RequestedToCapacityRatio", *resources))
    assert ratio == [plain_ratio(use, [(0, 0), (100, 100)]) for use in uses]


def _with_devices(nodes: NodeColumns, extended: str = GPU) -> NodeColumns:
    """Publish 4 devices on node a, one of them in use, and a class with an extended resource name for them."""
    nodes.devices.assign(slice_of([device(f"d{number}") for number in range(4)], node="a"))
    nodes.devices.assign(allocated_claim({"device": "d0", "pool": "a"}))
    gpu_class = device_class("gpu")
    nodes.devices.assign(msgspec.structs.replace(gpu_class, spec=DeviceClassSpec(extended_resource_name=extended)))
    return nodes


@table(
    "strategy, scores",
    ("free share", "LeastAllocated", [25, 62, 0]),
    ("used share", "MostAllocated", [75, 37, 0]),
    ("line through the used share", "RequestedToCapacityRatio", [75, 37, 0]),
)
def test_an_extended_resource_of_a_device_class_is_scored_by_devices(strategy: str, scores: list[int]) -> None:
    """2 are requested, on nodes with 4 devices (one in use), with 8 of a device plugin (one in use), and with none."""
    offers = [node("a"), node("b", allocatable={"cpu": "8", GPU: "8", "pods": "110"}), node("c")]
    nodes = _with_devices(columns(offers, [pod("old", requests={GPU: "1"}, node_name="b")]))
    assert _scores(nodes, pod(requests={GPU: "2"}), _args(strategy, (GPU, 1))) == scores


@table(
    "requests, is_counted",
    ("requested", {GPU: "2"}, True),
    ("not requested", {"cpu": "2"}, False),
    ("another resource", {"example.com/other": "2"}, False),
)
def test_scores_by_devices_are_not_reused(requests: dict[str, str], is_counted: bool) -> None:
    """Scores by devices are not reused for other pods, because any claim can change them."""
    nodes = _with_devices(columns([node("a")]))
    plugin = NodeResourcesFit(_args("LeastAllocated", (GPU, 1)), FakeHandle(nodes=nodes))
    check = plugin.reuse_check(nodes.compile_pod(pod(requests=requests)), nodes)
    assert (check is None) == is_counted


def test_a_resource_that_no_node_offers_is_scored_by_devices() -> None:
    """A resource without a column is scored by devices, together with cpu."""
    nodes = _with_devices(columns([node("a", allocatable={"cpu": "10", "pods": "110"})]), "example.com/accel")
    args = _args("LeastAllocated", ("cpu", 1), ("example.com/accel", 1))
    assert _scores(nodes, pod(requests={"cpu": "5", "example.com/accel": "1"}), args) == [50]


# -- devices in use ----------------------------------------------------------------------------------------------------


STEPS = 60


@pytest.mark.parametrize("seed", range(10))
def test_refreshed_counts_equal_new_ones(seed: int) -> None:
    """After each random change of claims, slices and nodes, the refreshed counts equal those of a new object."""
    world = DeviceWorld(seed)
    demand = Demand((scored_resource("deviceclass.resource.kubernetes.io/gpu"),), (1,), nonzero=False)
    refreshed = DeviceUses(world.nodes, max_classes=1)
    seen = set()
    for step in range(STEPS):
        for _ in range(world.random.choice([1, 1, 2, 5])):
            world.step()
        (found,) = refreshed.uses(demand, ALL_ROWS)
        (expected,) = DeviceUses(world.nodes).uses(demand, ALL_ROWS)
        assert found.capacity.tolist() == expected.capacity.tolist(), f"step {step}"
        assert found.used.tolist() == expected.used.tolist(), f"step {step}"
        seen.add((sum(found.capacity.tolist()), sum(found.used.tolist())))
    assert len(seen) > STEPS // 4, "the counts change"
