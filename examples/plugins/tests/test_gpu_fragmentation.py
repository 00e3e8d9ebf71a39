"""Tests the measure of fragmentation against its definition, and the stored costs against fresh ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from bayplan_example_plugins.gpu_shares.args import GpuSharesArgs, Policy, TypicalPod
from bayplan_example_plugins.gpu_shares.fragmentation import TargetWorkload
from bayplan_example_plugins.gpu_shares.gpu_columns import GpuColumns, reservations
from bayplan_example_plugins.gpu_shares.policies import Demand, cost_function
from bayplan_example_plugins.gpu_shares.row_costs import RowCosts, option_of

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

MODELS = ("A", "B", "")
NAMES = GpuSharesArgs()


def defined_fragments(kinds: Sequence[TypicalPod], cpu_milli: int, gpu_milli: Sequence[int], model: str) -> int:
    """Return the expected fragments of one node, as the paper defines them, one GPU and one kind at a time."""
    total = 0
    for kind in kinds:
        share, whole = min(kind.gpu_milli, 1000), max(1, kind.gpu_milli // 1000)
        runs = (
            kind.gpu_milli > 0
            and cpu_milli >= kind.cpu_milli
            and (not kind.models or model in kind.models)
            and sum(free >= share for free in gpu_milli) >= whole
        )
        total += kind.weight * sum(free for free in gpu_milli if not runs or free < share)
    return total


def drawn_kinds(rng: random.Random) -> list[TypicalPod]:
    return [
        TypicalPod(
            cpu_milli=rng.choice([0, 500, 4000, 9000]),
            gpu_milli=rng.choice([0, 100, 460, 460, 999, 1000, 1000, 2000, 4000]),
            models=tuple(rng.sample(MODELS[:2], rng.randint(0, 2))),
            weight=rng.randint(1, 50),
        )
        for _ in range(rng.randint(1, 8))
    ]


@pytest.mark.parametrize("seed", range(30))
def test_expected_fragments_are_those_of_the_definition(seed: int) -> None:
    """Arrays over nodes give the same sums as the definition, also beyond the size of one step."""
    rng = random.Random(seed)
    kinds = drawn_kinds(rng)
    count = 2100 if seed == 0 else 25
    cpu = [rng.choice([-100, 0, 499, 500, 4000, 10_000]) for _ in range(count)]
    free = [[rng.choice([0, 40, 459, 460, 998, 999, 1000, 1000]) for _ in range(4)] for _ in range(count)]
    models = [rng.randrange(3) for _ in range(count)]
    found = TargetWorkload(kinds).expected_fragments(
        np.array(cpu, dtype=np.int64), np.array(free, dtype=np.int64), np.array(models, dtype=np.intp), MODELS
    )
    expected = [
        defined_fragments(kinds, *node) for node in zip(cpu, free, (MODELS[each] for each in models), strict=True)
    ]
    assert found.tolist() == expected


def node(name: str, gpus: int, cpu: int, model: str) -> Node:
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", NAMES.resource: str(gpus * 1000)}
    return msgspec.convert(
        {"metadata": {"name": name, "labels": {NAMES.model_label: model}}, "status": {"allocatable": amounts}}, Node
    )


def pod(name: str, demand: Demand) -> Pod:
    requests = {"cpu": f"{demand.cpu_milli}m", NAMES.resource: str(demand.gpu_milli)}
    container = {"name": "main", "resources": {"requests": requests}}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}}, Pod)


@pytest.mark.parametrize("policy", [each for each in Policy if each.scores_nodes])
@pytest.mark.parametrize("seed", range(4))
def test_stored_costs_equal_fresh_ones(policy: Policy, seed: int) -> None:
    """While nodes and pods are added and deleted, stored costs equal those of a new plugin."""
    rng = random.Random(f"{policy}/{seed}")
    nodes, function = NodeColumns(), cost_function(policy, TargetWorkload(drawn_kinds(rng)))
    columns = GpuColumns(nodes, NAMES)
    stored = RowCosts(columns, function, most_demands=3)
    demands = [Demand(rng.choice([100, 4000]), 0, gpu) for gpu in (0, 100, 300, 460, 700, 1000, 2000)]
    placed: list[PodInfo] = []
    for step in range(120):
        action = rng.random()
        if action < 0.1 or nodes.count < 3:
            nodes.add_node(node(f"n{step}", rng.randint(0, 4), rng.choice([8, 32]), rng.choice(MODELS)))
        elif action < 0.15:
            name = rng.choice([name for name in nodes.names if name is not None])
            gone = nodes.remove_node(name)
            placed = [info for info in placed if info not in gone]
        elif action < 0.3 and placed:
            nodes.remove_pod(placed.pop(rng.randrange(len(placed))))
        else:
            demand = rng.choice(demands)
            costs = stored.of(demand, ALL_ROWS)
            fresh = RowCosts(GpuColumns(nodes, NAMES), function)
            assert costs.tolist() == fresh.of(demand, ALL_ROWS).tolist()
            row = int(np.argmin(np.where(nodes.alive, costs, np.iinfo(np.int64).max)))
            info = nodes.compile_pod(pod(f"p{step}", demand))
            devices = option_of(function, demand, columns.states(np.array([row])), stored.largest(), None)
            if devices is not None:
                reservations[info] = devices
                nodes.add_pod(info, row)
                placed.append(info)
    assert len(placed) > 3
