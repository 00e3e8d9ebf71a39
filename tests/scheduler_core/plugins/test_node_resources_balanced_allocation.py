"""NodeResourcesBalancedAllocation on columns."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import BalancedResourceSpec, NodeResourcesBalancedAllocationArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SKIP
from scheduler_core.model.devices import DeviceClassSpec
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim, device, device_class, slice_of
from tests.support.handles import FakeHandle
from tests.support.plain_scores import OneNode, plain_balanced
from tests.support.plugin_calls import scores_of

GPU = "nvidia.com/gpu"


def _plugin(nodes: NodeColumns, *resources: str) -> NodeResourcesBalancedAllocation:
    specs = tuple(BalancedResourceSpec(name=name) for name in resources)
    return NodeResourcesBalancedAllocation(
        NodeResourcesBalancedAllocationArgs(resources=specs), FakeHandle(nodes=nodes)
    )


def _scores(nodes: NodeColumns, incoming: Pod, *resources: str) -> list[int]:
    return scores_of(_plugin(nodes, *resources), incoming, nodes)


@pytest.mark.parametrize(
    "incoming",
    [
        pytest.param(pod(), id="best effort"),
        pytest.param(pod(requests={"cpu": "0"}), id="asks for nothing of it"),
        pytest.param(pod(requests={"example.com/a": 1}), id="asks for something else"),
    ],
)
def test_pods_that_ask_for_nothing_are_skipped(incoming: Pod) -> None:
    """Defaults do not count: a pod without requests has no say in balance, and Score alone gives it 0."""
    nodes = columns([node("a")])
    info = nodes.compile_pod(incoming)
    plugin, state = _plugin(nodes), CycleState()
    assert plugin.pre_score(state, info, nodes, ALL_ROWS) == SKIP
    assert plugin.score(state, info, nodes, ALL_ROWS).tolist() == [0]


@pytest.mark.parametrize(
    ("incoming", "score"),
    [
        pytest.param(pod(requests={"cpu": "1m"}), 74, id="a little: 1 of 4,000, 99 after 100"),
        pytest.param(pod(pod_requests={"memory": "1Gi"}), 73, id="as a whole: 1 of 16, 96 after 100"),
        pytest.param(pod(overhead={"cpu": "1"}), 68, id="overhead: 1 of 4, 87 after 100"),
    ],
)
def test_what_of_a_pod_is_scored(incoming: Pod, score: int) -> None:
    """An empty node with 4 CPUs and 16 GiB, from which the pod takes of one resource only."""
    assert _scores(columns([node("a")]), incoming) == [score]


@pytest.mark.parametrize(
    ("requests", "score"),
    [
        pytest.param({"cpu": "4"}, 50, id="takes all of one: worst"),
        pytest.param({"cpu": "2", "memory": "8Gi"}, 75, id="takes half of both"),
        pytest.param({"cpu": "8"}, 50, id="takes more than there is"),
    ],
)
def test_empty_node(requests: dict[str, str | int], score: int) -> None:
    """An empty node is balanced; the pod can only keep it so or make it worse."""
    assert _scores(columns([node("a")]), pod(requests=requests)) == [score]


def test_the_pod_mends_the_balance() -> None:
    """Where all memory is taken and no cpu, a pod that takes all cpu is best placed."""
    nodes = columns([node("a")], [pod("old", requests={"memory": "16Gi"}, node_name="a")])
    assert _scores(nodes, pod(requests={"cpu": "4"})) == [100]


def test_placed_pods_count_as_they_ask() -> None:
    """Pods without requests leave a node as balanced as an empty one."""
    nodes = columns([node("a"), node("b")], [pod(f"p{number}", node_name="a") for number in range(9)])
    scores = _scores(nodes, pod(requests={"cpu": "2"}))
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("requests", "resources", "score"),
    [
        pytest.param({"cpu": "4"}, ("cpu", GPU), 75, id="an extended resource not asked for takes no part"),
        pytest.param({"cpu": "4", GPU: 2}, ("cpu", GPU), 75, id="asked for: all of both"),
        pytest.param({"cpu": "4", GPU: 1}, ("cpu", GPU), 62, id="asked for: all of one, half of the other"),
        pytest.param({"cpu": "4"}, ("cpu", "ephemeral-storage"), 75, id="the node has none of the other"),
        pytest.param({"cpu": "4", "example.com/a": 1}, ("example.com/a",), 75, id="the node has none at all"),
    ],
)
def test_resources_of_the_profile(requests: dict[str, str | int], resources: tuple[str, ...], score: int) -> None:
    """A node with 4 CPUs and 2 GPUs; what takes no part leaves 75 for one resource or none."""
    nodes = columns([node("a", allocatable={"cpu": "4", GPU: 2})])
    assert _scores(nodes, pod(requests=requests), *resources) == [score]


def test_a_resource_that_no_node_has_ever_named() -> None:
    """It takes no part, and neither does anything else here."""
    nodes = columns([node("a"), node("b")])
    info = nodes.compile_pod(pod(requests={"cpu": "1"}))
    plugin = _plugin(nodes, "cpu", "hugepages-1Gi")
    assert plugin.score(CycleState(), info, nodes, ALL_ROWS).tolist() == [75, 75]


def test_rows_of_removed_nodes_do_no_harm() -> None:
    """A freed row has capacity 0 and leaves the scores of the others as they were."""
    nodes = columns([node(name) for name in "abc"])
    before = _scores(nodes, pod(requests={"cpu": "2"}))
    nodes.remove_node("b")
    after = _scores(nodes, pod(requests={"cpu": "2"}))
    assert (after[0], after[2]) == (before[0], before[2])


_RESOURCES = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1, GPU: 1}
_AMOUNTS = st.dictionaries(st.sampled_from(list(_RESOURCES)), st.integers(0, 12))


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], Pod]:
    nodes = [node(f"n{row}", allocatable=draw(_AMOUNTS)) for row in range(draw(st.integers(1, 4)))]
    placed = [
        pod(f"p{number}", requests=draw(_AMOUNTS), node_name=draw(st.sampled_from(nodes)).metadata.name)
        for number in range(draw(st.integers(0, 5)))
    ]
    asked = {"cpu": draw(st.integers(1, 12)), **draw(_AMOUNTS)}
    asked["cpu"] = max(asked["cpu"], 1)
    return nodes, placed, pod("incoming", containers=[container(requests=asked)])


@given(_clusters(), st.lists(st.sampled_from(["memory", "ephemeral-storage", GPU]), unique=True))
def test_equals_the_form_for_one_node(cluster: tuple[list[Node], list[Pod], Pod], others: list[str]) -> None:
    """Scores over columns are what the formula gives on the objects of each node."""
    nodes, placed, incoming = cluster

    def asked(one: Pod, name: str) -> int:
        return int(one.spec.containers[0].resources.requests.get(name, 0)) * _RESOURCES[name]

    def plain(here: Node) -> int:
        on_it = [each for each in placed if each.spec.node_name == here.metadata.name]
        return plain_balanced(
            [
                OneNode(
                    int(here.status.allocatable.get(name, 0)) * _RESOURCES[name],
                    sum(asked(each, name) for each in on_it),
                    asked(incoming, name),
                )
                for name in ("cpu", *others)
                if asked(incoming, name) or name != GPU
            ]
        )

    assert _scores(columns(nodes, placed), incoming, "cpu", *others) == [plain(here) for here in nodes]


def test_a_served_resource_is_balanced_by_devices() -> None:
    """One of 4 devices is in use; with the pod half of them are, and half of the CPUs."""
    nodes = columns([node("a", allocatable={"cpu": "10", "pods": "110"})])
    nodes.devices.assign(slice_of([device(f"d{number}") for number in range(4)], node="a"))
    nodes.devices.assign(allocated_claim({"device": "d0", "pool": "a"}))
    incoming = pod(requests={"cpu": "5", GPU: "1"})
    plugin = _plugin(nodes, "cpu", GPU)
    check = plugin.reuse_check(nodes.compile_pod(incoming), nodes)
    assert check is not None
    assert check()
    served = msgspec.structs.replace(device_class("gpu"), spec=DeviceClassSpec(extended_resource_name=GPU))
    nodes.devices.assign(served)
    assert not check()
    assert plugin.reuse_check(nodes.compile_pod(incoming), nodes) is None
    assert scores_of(plugin, incoming, nodes) == [81]
