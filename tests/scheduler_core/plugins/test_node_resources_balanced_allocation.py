"""NodeResourcesBalancedAllocation: scores by the change of balance between resources."""

import msgspec
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
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.devices import allocated_claim, device, device_class, slice_of
from tests.support.handles import FakeHandle
from tests.support.plain_scores import GPU, UNITS, OneNode, plain_balanced, scored_clusters
from tests.support.plugin_calls import scores_of
from tests.support.presence import present
from tests.support.tables import table


def _plugin(nodes: NodeColumns, *resources: str) -> NodeResourcesBalancedAllocation:
    specs = tuple(BalancedResourceSpec(name=name) for name in resources)
    return NodeResourcesBalancedAllocation(
        NodeResourcesBalancedAllocationArgs(resources=specs), FakeHandle(nodes=nodes)
    )


def _scores(nodes: NodeColumns, incoming: Pod, *resources: str) -> list[int]:
    return scores_of(_plugin(nodes, *resources), incoming, nodes)


@table(
    "incoming",
    ("best effort", pod()),
    ("zero request", pod(requests={"cpu": "0"})),
    ("another resource", pod(requests={"example.com/a": 1})),
)
def test_pods_without_requests_are_skipped(incoming: Pod) -> None:
    """PreScore skips a pod without requests, and Score without PreScore returns 0; defaults do not count."""
    nodes = columns([node("a")])
    info = nodes.compile_pod(incoming)
    plugin, state = _plugin(nodes), CycleState()
    assert plugin.pre_score(state, info, nodes, ALL_ROWS) == SKIP
    assert plugin.score(state, info, nodes, ALL_ROWS).tolist() == [0]


@table(
    "incoming, score",
    ("a little: 1 of 4,000, 99 after 100", pod(requests={"cpu": "1m"}), 74),
    ("as a whole: 1 of 16, 96 after 100", pod(pod_requests={"memory": "1Gi"}), 73),
    ("overhead: 1 of 4, 87 after 100", pod(overhead={"cpu": "1"}), 68),
)
def test_requests_that_are_scored(incoming: Pod, score: int) -> None:
    """Container requests, pod-level requests and overhead count, here on an empty node with 4 CPUs and 16 GiB."""
    assert _scores(columns([node("a")]), incoming) == [score]


def test_existing_pods_count_with_their_requests() -> None:
    """Existing pods without requests do not change the balance."""
    nodes = columns([node("a"), node("b")], [pod(f"p{number}", node_name="a") for number in range(9)])
    scores = _scores(nodes, pod(requests={"cpu": "2"}))
    assert scores[0] == scores[1]


@table(
    "requests, resources, score",
    ("an extended resource without a request is ignored", {"cpu": "4"}, ("cpu", GPU), 75),
    ("all of both", {"cpu": "4", GPU: 2}, ("cpu", GPU), 75),
    ("all of one, half of the other", {"cpu": "4", GPU: 1}, ("cpu", GPU), 62),
    ("the node lacks one resource", {"cpu": "4"}, ("cpu", "ephemeral-storage"), 75),
    ("the node lacks all resources", {"cpu": "4", "example.com/a": 1}, ("example.com/a",), 75),
)
def test_resources_of_the_profile(requests: dict[str, str | int], resources: tuple[str, ...], score: int) -> None:
    """On a node with 4 CPUs and 2 GPUs, the score is 75 if fewer than two resources count."""
    nodes = columns([node("a", allocatable={"cpu": "4", GPU: 2})])
    assert _scores(nodes, pod(requests=requests), *resources) == [score]


def test_a_resource_that_no_node_offers() -> None:
    """A configured resource that no node offers is ignored."""
    nodes = columns([node("a"), node("b")])
    info = nodes.compile_pod(pod(requests={"cpu": "1"}))
    plugin = _plugin(nodes, "cpu", "hugepages-1Gi")
    assert plugin.score(CycleState(), info, nodes, ALL_ROWS).tolist() == [75, 75]


def test_removed_nodes_do_not_change_scores() -> None:
    """A freed row has capacity 0 and does not affect the scores of other rows."""
    nodes = columns([node(name) for name in "abc"])
    before = _scores(nodes, pod(requests={"cpu": "2"}))
    nodes.remove_node("b")
    after = _scores(nodes, pod(requests={"cpu": "2"}))
    assert (after[0], after[2]) == (before[0], before[2])


@given(scored_clusters(least_cpu=1), st.lists(st.sampled_from(["memory", "ephemeral-storage", GPU]), unique=True))
def test_equals_the_form_for_one_node(cluster: tuple[list[Node], list[Pod], Pod], others: list[str]) -> None:
    """Scores of all rows equal the formula for single nodes."""
    nodes, placed, incoming = cluster

    def requested(one: Pod, name: str) -> int:
        return int(one.spec.containers[0].resources.requests.get(name, 0)) * UNITS[name]

    def plain(here: Node) -> int:
        on_it = [each for each in placed if each.spec.node_name == here.metadata.name]
        return plain_balanced(
            [
                OneNode(
                    int(here.status.allocatable.get(name, 0)) * UNITS[name],
                    sum(requested(each, name) for each in on_it),
                    requested(incoming, name),
                )
                for name in ("cpu", *others)
                if requested(incoming, name) or name != GPU
            ]
        )

    assert _scores(columns(nodes, placed), incoming, "cpu", *others) == [plain(here) for here in nodes]


def test_an_extended_resource_of_a_device_class_is_balanced_by_devices() -> None:
    """The pod uses a second of 4 devices and half of the CPUs, which improves the balance."""
    nodes = columns([node("a", allocatable={"cpu": "10", "pods": "110"})])
    nodes.devices.assign(slice_of([device(f"d{number}") for number in range(4)], node="a"))
    nodes.devices.assign(allocated_claim({"device": "d0", "pool": "a"}))
    incoming = pod(requests={"cpu": "5", GPU: "1"})
    plugin = _plugin(nodes, "cpu", GPU)
    check = present(plugin.reuse_check(nodes.compile_pod(incoming), nodes))
    assert check()
    with_resource = msgspec.structs.replace(device_class("gpu"), spec=DeviceClassSpec(extended_resource_name=GPU))
    nodes.devices.assign(with_resource)
    assert not check()
    assert plugin.reuse_check(nodes.compile_pod(incoming), nodes) is None
    assert scores_of(plugin, incoming, nodes) == [81]
