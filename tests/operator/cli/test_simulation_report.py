"""Tests of the output of ``bayplan simulate`` for clusters of every size."""

from __future__ import annotations

import json

import pytest
from bayplan.cli import bayplan
from bayplan.cli.simulate import SHORT_LIST, Lists, as_document, as_table
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.packing import NodeUsage, ResourceUsage, measure_packing
from bayplan.simulation.simulation import GangPlacement, PodPlacement, SimulationResult, Verdict, simulate
from click.testing import CliRunner

from tests.support.gpu_cluster import GPU, gpu_cluster
from tests.support.tables import table

GIBIBYTE = 1 << 30


@pytest.fixture(
    scope="module", params=[(101, 541), pytest.param((1523, 8152), marks=pytest.mark.nightly)], ids=["small", "large"]
)
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Return the numbers of nodes and pods; every night those of a cluster of production size."""
    found: tuple[int, int] = request.param
    return found


@pytest.fixture(scope="module")
def large_result(size: tuple[int, int], tmp_path_factory: pytest.TempPathFactory) -> SimulationResult:
    """Return the result for a cluster with too few GPUs."""
    path = tmp_path_factory.mktemp("cluster") / "cluster.json"
    path.write_text(gpu_cluster(*size), encoding="utf-8")
    return simulate(admit(read_cluster_files([str(path)])))


def test_a_large_cluster_is_summarised(large_result: SimulationResult, size: tuple[int, int]) -> None:
    """The default output fits a screen: counts, resources, causes, and flags for the lists."""
    nodes, pods = size
    lines = as_table(large_result).splitlines()
    placed = large_result.count(Verdict.PLACED)
    assert len(lines) <= 24
    assert lines[0].startswith(f"{placed} of {pods} pods scheduled to {nodes} of {nodes} nodes; ")
    assert [line.split()[0] for line in lines[3:7]] == ["pods", "cpu", "memory", GPU]
    causes = [line.split(maxsplit=1)[1].split("  ")[0] for line in lines[9:-2]]
    assert causes == [
        "Insufficient cpu, Insufficient nvidia.com/gpu",
        "node(s) didn't match Pod's node affinity/selector",
        "waiting for scheduling gates: [example.com/quota]",
        'no profile in the files serves schedulerName "nightly"; available profiles: default-scheduler',
    ]
    assert sum(int(line.split()[0]) for line in lines[9:-2]) == pods - placed
    assert lines[-1] == f"not listed: {pods} pods (--pods), {nodes} nodes (--nodes)"


def test_totals_are_the_sums_of_nodes_and_pods(large_result: SimulationResult, size: tuple[int, int]) -> None:
    """The amounts of a resource are the sums over the nodes and over the scheduled pods."""
    document = as_document(large_result)
    total = document.summary.resources[GPU]
    amounts = [node.others[GPU] for node in document.nodes if node.others]
    assert (total.requested, total.allocatable) == (
        sum(amount.requested for amount in amounts),
        sum(amount.allocatable for amount in amounts),
    )
    assert total.requested == sum(
        (0, 1, 1, 2)[int(pod.name[-4:]) % 4] for pod in large_result.pods if pod.verdict is Verdict.PLACED
    )
    assert sum(cause.pods for cause in document.summary.causes) == size[1] - document.summary.placed


def result_with(
    pods: tuple[PodPlacement, ...] = (),
    nodes: tuple[NodeUsage, ...] = (),
    gangs: tuple[GangPlacement, ...] = (),
    running: int = 0,
) -> SimulationResult:
    """Return a result without devices and claims."""
    return SimulationResult(pods, nodes, measure_packing(nodes, {}, (), {}, ()), running, (), gangs)


def result_of(count: int) -> SimulationResult:
    """Return a result with this number of pods, gangs and nodes."""
    pods = tuple(PodPlacement("ns", f"pod-{n}", "p", Verdict.PLACED, "n", "", 1) for n in range(count))
    gangs = tuple(GangPlacement("ns", f"gang-{n}", "bayplan.dev", 1, 1, 1, "", "Scheduled", "") for n in range(count))
    nodes = tuple(NodeUsage(f"node-{n}", 1, 10, 1000, 2000, GIBIBYTE, GIBIBYTE) for n in range(count))
    return result_with(pods, nodes, gangs)


@table(
    "count, ending",
    ("short", SHORT_LIST, []),
    ("long", SHORT_LIST + 1, ["not listed: 51 pods (--pods), 51 gangs (--gangs), 51 nodes (--nodes)"]),
)
def test_short_lists_are_printed_by_default(count: int, ending: list[str]) -> None:
    """Lists up to the limit are printed, longer lists are not."""
    lines = as_table(result_of(count)).splitlines()
    assert [line for line in lines if line.startswith("not listed")] == ending
    assert sum(line.startswith(("ns/pod-", "ns/gang-", "node-")) for line in lines) == (0 if ending else 3 * count)


@table(
    "lists, prefix, rest",
    ("pods", Lists(pods=True), "ns/pod-", "51 gangs (--gangs), 51 nodes (--nodes)"),
    ("gangs", Lists(gangs=True), "ns/gang-", "51 pods (--pods), 51 nodes (--nodes)"),
    ("nodes", Lists(nodes=True), "node-", "51 pods (--pods), 51 gangs (--gangs)"),
)
def test_long_lists_on_request(lists: Lists, prefix: str, rest: str) -> None:
    """A requested list has a row for every object."""
    lines = as_table(result_of(SHORT_LIST + 1), lists).splitlines()
    assert sum(line.startswith(prefix) for line in lines) == SHORT_LIST + 1
    assert lines[-1] == f"not listed: {rest}"


@pytest.mark.parametrize("flag", ["--pods", "--gangs", "--nodes"])
def test_flags_reach_the_report(flag: str) -> None:
    """Each flag prints its own list."""
    document = json.loads(gpu_cluster(60, 60))
    for pod in (item for item in document["items"] if item["kind"] == "Pod"):
        pod["metadata"]["labels"] = {"bayplan.dev/pod-group": pod["metadata"]["name"]}
    output = CliRunner().invoke(bayplan, ["simulate", "-", flag], input=json.dumps(document)).stdout
    listed = {name for name in ("--pods", "--gangs", "--nodes") if f"({name})" not in output}
    assert listed == {flag}


def test_causes_beyond_the_limit_are_counted() -> None:
    pods = tuple(PodPlacement("ns", f"p-{n}", "p", Verdict.ERROR, "", f"failure {n:03d}", 1) for n in range(60))
    lines = as_table(result_with(pods)).splitlines()
    assert "40 more causes, of 40 pods, are in -o json" in lines
    assert sum("failure" in line for line in lines) == 20


def test_other_resources_of_a_node() -> None:
    """Extended resources are always shown, other resources only if a pod requests them."""
    others = {
        "ephemeral-storage": ResourceUsage(0, 100 * GIBIBYTE),
        "example.com/fpga": ResourceUsage(0, 2),
        "hugepages-2Mi": ResourceUsage(GIBIBYTE, 2 * GIBIBYTE),
    }
    nodes = (NodeUsage("a", 1, 10, 1000, 2000, 0, GIBIBYTE, others), NodeUsage("b", 0, 10, 0, 2000, 0, GIBIBYTE))
    lines = as_table(result_with((), nodes, running=1)).splitlines()
    assert lines[-2].endswith("example.com/fpga 0/2, hugepages-2Mi 1Gi/2Gi")
    assert not any("ephemeral-storage" in line for line in lines)
