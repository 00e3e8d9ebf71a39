"""The benchmark of recovered GPUs with a small trace: the state that it starts from, what it counts, and its ways."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.packing.trace import NODES_FILE, PODS_FILE, Trace, TraceNode, TracePod
from benchmarks.recovered_gpus import Bound, filled, free_in_one_piece, main
from tests.support.tables import table

SHARES = (0, 300, 500, 1000, 2000)


def trace() -> Trace:
    """Return 12 nodes, three of them without GPUs, and 40 pods."""
    rng = random.Random(1)
    nodes = [
        TraceNode(f"node-{number}", 32000, 65536, number % 4 and 4, "A" * (number % 4 > 0)) for number in range(12)
    ]
    pods = [TracePod(f"pod-{number}", 2000, 4096, rng.choice(SHARES), (), number) for number in range(40)]
    return Trace(tuple(nodes), tuple(pods))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the files of the trace."""
    found = trace()
    nodes = [f"{each.name},{each.cpu_milli},{each.memory_mib},{each.gpus},{each.model}" for each in found.nodes]
    (tmp_path / NODES_FILE).write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *nodes]))
    pods = []
    for each in found.pods:
        gpus, milli = max(each.gpu_milli // 1000, int(each.gpu_milli > 0)), min(each.gpu_milli, 1000)
        pods.append(f"{each.name},{each.cpu_milli},{each.memory_mib},{gpus},{milli},,{each.created}")
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time"
    (tmp_path / PODS_FILE).write_text("\n".join([header, *pods]))
    return tmp_path


def test_the_state_at_the_start() -> None:
    """Equal seeds give equal states; all pods have nodes with room, and 30 % of them ended."""
    full, state, again = (asyncio.run(filled(trace(), 7, ended)) for ended in (0.0, 0.3, 0.3))
    assert state == again
    assert len(state.pods) == round(0.7 * len(full.pods))
    assert set(state.pods) < set(full.pods)
    used: Counter[str] = Counter()
    for each in full.pods:
        used[each.node] += each.pod.gpu_milli
    assert all(used[node.name] <= 1000 * node.gpus for node in full.nodes)
    assert sum(used.values()) > 0.9 * trace().gpu_milli


def test_kinds_of_pods() -> None:
    """Each kind has a ReplicaSet, and each pod one kind."""
    state = asyncio.run(filled(trace(), 7, 0.3))
    assert Counter(each for pods in state.kinds.values() for each in pods) == Counter(state.pods)
    shapes = [{(each.pod.cpu_milli, each.pod.gpu_milli) for each in pods} for pods in state.kinds.values()]
    assert all(len(each) == 1 for each in shapes)
    assert len(shapes) == len(set.union(*shapes))


CPU, GPU = TracePod("cpu", 1, 1, 0, (), 0), TracePod("gpu", 1, 1, 500, (), 0)


@table(
    "pods, free",
    ("no pods", [], 6),
    ("without a GPU", [Bound("a", CPU, "four")], 6),
    ("a share", [Bound("a", GPU, "four")], 2),
    ("two on one node", [Bound("a", GPU, "two"), Bound("b", GPU, "two")], 4),
    ("pending", [Bound("a", GPU, "")], 6),
)
def test_gpus_in_one_piece(pods: list[Bound], free: int) -> None:
    """The GPUs of a node count if no pod on it requests a GPU."""
    nodes = [TraceNode("four", 1, 1, 4, "A"), TraceNode("two", 1, 1, 2, "A"), TraceNode("none", 1, 1, 0, "")]
    assert free_in_one_piece(nodes, pods) == free


def test_invalid_arguments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors name the option, or the missing file."""
    for arguments, error in ((["--ways", "other"], "--ways"), (["--ended", "1"], "--ended")):
        with pytest.raises(SystemExit):
            main([str(folder), *arguments])
        assert error in capsys.readouterr().err
    assert main([str(folder / "nowhere")]) == 2


# One of the two schedulers, because each takes half a minute; they differ in the program that is started.
@pytest.mark.timeout(240)
@pytest.mark.cluster
@pytest.mark.controllers
@pytest.mark.descheduler
def test_on_an_api_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real descheduler frees GPUs, and all replacements have nodes at the end."""
    assert main([str(folder), "--ways", "bayplan", "--ended", "0.6", "--rounds", "2", "-o", "json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["pending"] == 0
    assert outcome["evictions"] > 0
    assert outcome["free_after"] > outcome["free_before"]
