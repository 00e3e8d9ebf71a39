"""Measures the GPUs that are recovered per eviction: by the descheduler with either scheduler, and by Bayplan's plan.

    make bench-recovery TRACE=folder
    python -m benchmarks.recovered_gpus FOLDER --ways plan                        # in memory, seconds
    python -m benchmarks.recovered_gpus FOLDER --ways kube-scheduler,bayplan --rounds 3

FOLDER has the CSV files of Alibaba's cluster-trace-gpu-v2023 (github.com/alibaba/clusterdata). The nodes are filled in
memory with pods of the trace until these request as many GPUs as the nodes have, and a share of the pods ends, drawn at
random. Every way starts from this state:

- `kube-scheduler`, `bayplan`: on a real API server, rounds of the descheduler (HighNodeUtilization) until one evicts
  nothing. kube-controller-manager replaces evicted pods of its ReplicaSets, and the scheduler binds the replacements.
- `plan`: the moves of Bayplan's plan to consolidate, in memory.

Both schedulers have the same profile, which packs by GPU, CPU and memory. A GPU is free in one piece if no pod of its
node requests a GPU. Shares of GPUs are summed over a node, because kube-scheduler has no shares of single GPUs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan_example_plugins.gpu_shares.args import GPU_MILLI, GpuSharesArgs
from rich import box

from benchmarks.harness import (
    ResultLines,
    UnreadableResultsError,
    add_output,
    command_line,
    report,
    table_of,
    wide_console,
)
from benchmarks.packing.replay import SCHEDULER_NAME, Replay, node_document, pod_document, scheduled
from benchmarks.packing.trace import NODES_FILE, PODS_FILE, Trace, TraceError, TraceNode, TracePod, read_trace, sampled
from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import run_descheduler
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_scheduler
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.rebalance.requests import Consolidate, RebalanceRequest, Scope
from scheduler_core.scheduler import Scheduler

_GPUS = GpuSharesArgs()
_PODS = "/api/v1/namespaces/default/pods"
_CONTROLLERS = ("--controllers=replicaset-controller",)
_QUIET_SECONDS = 8.0
_LIMIT_SECONDS = 1800.0
_KIND_LABEL = "kind"

PLAN = "plan"
_STEPS = 100_000_000

PACKS: Mapping[str, Any] = {
    "plugins": {"score": {"enabled": [{"name": "NodeResourcesFit"}], "disabled": [{"name": "*"}]}},
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", _GPUS.resource)],
                }
            },
        }
    ],
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one way.

    Attributes:
        capacity_gpus, requested_gpus: GPUs of all nodes, and GPUs that the pods request.
        free_before, free_after: GPUs that are free in one piece.
        pending: Pods that have no node at the end.
        seconds: Wall-clock time of the rounds; CPU time of the plan.
        load: Load average of the machine over the last minute, at the end.
    """

    way: str
    seed: int
    nodes: int
    pods: int
    capacity_gpus: int
    requested_gpus: float
    free_before: int
    free_after: int
    evictions: int
    pending: int
    seconds: float
    load: float

    @property
    def per_eviction(self) -> float:
        return (self.free_after - self.free_before) / self.evictions if self.evictions else 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod of the trace with its name and its node; "" for none."""

    name: str
    pod: TracePod
    node: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state from which every way starts."""

    nodes: Sequence[TraceNode]
    pods: Sequence[Bound]
    seed: int

    @property
    def kinds(self) -> dict[str, list[Bound]]:
        """The pods by the name of their ReplicaSet, of which each kind of pods has one."""
        found: dict[str, list[Bound]] = {}
        numbers: dict[object, str] = {}
        for each in self.pods:
            pod = each.pod
            kind = pod.cpu_milli, pod.memory_mib, pod.gpu_milli, pod.models
            found.setdefault(numbers.setdefault(kind, f"kind-{len(numbers):03d}"), []).append(each)
        return found


def free_in_one_piece(nodes: Sequence[TraceNode], pods: Sequence[Bound]) -> int:
    """Return the number of GPUs of nodes whose pods request none."""
    used = {each.node for each in pods if each.pod.gpu_milli}
    return sum(node.gpus for node in nodes if node.name not in used)


async def filled(trace: Trace, seed: int, ended: float) -> Cluster:
    """Fill the nodes, and end a share of the pods that were bound."""
    arrivals = sampled(trace, seed, 1.0)
    found = await scheduled(PACKS, Replay(trace.nodes, arrivals, (), seed))
    columns = found.scheduler.context.cache.columns
    names = {
        info.pod.metadata.name: node.metadata.name
        for node, pods in zip(columns.nodes, columns.pods, strict=True)
        for info in pods.values()
        if node is not None
    }
    await found.scheduler.stop(0)
    # The name of a pod begins with the number of its arrival.
    bound = [Bound(name, arrivals[int(name.partition("-")[0])], names[name]) for name in sorted(names)]
    remaining = random.Random(seed).sample(bound, round((1 - ended) * len(bound)))
    return Cluster(trace.nodes, sorted(remaining, key=lambda each: each.name), seed)


# -- on a real API server ---------------------------------------------------------------------------------------------


def descheduled(cluster: Cluster, scheduler: str, threshold: int, rounds: int) -> Outcome:
    """Run rounds of the descheduler beside a scheduler, until one evicts nothing."""
    with ControlPlane() as plane, ApiClient(plane) as api:
        by_kind = _create(api, cluster)
        start_scheduler(plane, scheduler, SCHEDULER_NAME, PACKS)
        plane.start_kube_controller_manager(_CONTROLLERS)
        evictions, began = 0, time.monotonic()
        for _ in range(rounds):
            before = {each["metadata"]["uid"] for each in api.items(_PODS)}
            run_descheduler(plane, policy(threshold), _LIMIT_SECONDS)
            after = _when_quiet(api, len(cluster.pods))
            evicted = len(before - {each["metadata"]["uid"] for each in after})
            evictions += evicted
            sys.stderr.write(f"{scheduler}: the descheduler evicted {evicted} pods\n")
            if not evicted:
                break
        seconds = time.monotonic() - began
        found = [
            Bound(
                each["metadata"]["name"],
                by_kind[each["metadata"]["labels"][_KIND_LABEL]],
                each["spec"].get("nodeName", ""),
            )
            for each in api.items(_PODS)
        ]
    return _outcome(scheduler, cluster, found, evictions, seconds)


def policy(threshold: int) -> Mapping[str, Any]:
    """Return the descheduler's policy: nodes with a smaller share of their GPUs in use are to be emptied."""
    return {
        "nodeSelector": _GPUS.model_label,
        "profiles": [
            {
                "name": "pack",
                "pluginConfig": [
                    {"name": "DefaultEvictor", "args": {"nodeFit": True}},
                    {"name": "HighNodeUtilization", "args": {"thresholds": {_GPUS.resource: threshold}}},
                ],
                "plugins": {"balance": {"enabled": ["HighNodeUtilization"]}},
            }
        ],
    }


def _create(api: ApiClient, cluster: Cluster) -> dict[str, TracePod]:
    """Create nodes, ReplicaSets and their bound pods; return the pod of each kind."""
    api.create_all(map(_ready_node, cluster.nodes))
    by_kind = {}
    for name, pods in cluster.kinds.items():
        by_kind[name] = pods[0].pod
        template = _template(name, pods[0].pod)
        spec = {
            "replicas": len(pods),
            "selector": {"matchLabels": {_KIND_LABEL: name}},
            "template": template,
        }
        made = api.create({**_named("apps/v1", "ReplicaSet", name), "spec": spec})
        owner = {**_reference(name), "uid": made["metadata"]["uid"]}
        api.create_all(_bound_pod(each, name, template, owner) for each in pods)
    return by_kind


def _bound_pod(bound: Bound, kind: str, template: Manifest, owner: Manifest) -> Manifest:
    made = _named("v1", "Pod", bound.name)
    made["metadata"] |= {"labels": {_KIND_LABEL: kind}, "ownerReferences": [owner]}
    return {**made, "spec": {**template["spec"], "nodeName": bound.node}}


def _named(version: str, kind: str, name: str) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}}


def _reference(name: str) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}


def _ready_node(node: TraceNode) -> Manifest:
    document = node_document(node)
    del document["metadata"]["uid"]
    document["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return {"apiVersion": "v1", "kind": "Node", **document}


def _template(name: str, pod: TracePod) -> Manifest:
    spec = pod_document(pod)["spec"]
    for container in spec["containers"]:
        requests = container["resources"]["requests"]
        if _GPUS.resource in requests:
            container["resources"]["limits"] = {_GPUS.resource: requests[_GPUS.resource]}
    # No kubelet runs: a pod with a grace period would never be gone.
    return {"metadata": {"labels": {_KIND_LABEL: name}}, "spec": {**spec, "terminationGracePeriodSeconds": 0}}


def _when_quiet(api: ApiClient, count: int) -> list[Manifest]:
    """Return the pods once all are replaced, and none has been bound for a while."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    state, since = (-1, -1), time.monotonic()
    while True:
        pods = api.items(_PODS)
        now = (len(pods), sum("nodeName" in each["spec"] for each in pods))
        if now != state:
            state, since = now, time.monotonic()
        if now[0] == count and (now[1] == count or time.monotonic() - since > _QUIET_SECONDS):
            return pods
        if time.monotonic() > deadline:
            raise TimeoutError(f"{now[0]} pods exist and {now[1]} are bound after {_LIMIT_SECONDS:g} s, of {count}")
        time.sleep(0.5)


def _outcome(way: str, cluster: Cluster, found: Sequence[Bound], evictions: int, seconds: float) -> Outcome:
    gpus = sum(each.gpus for each in cluster.nodes)
    return Outcome(
        way,
        cluster.seed,
        len(cluster.nodes),
        len(cluster.pods),
        gpus,
        sum(each.pod.gpu_milli for each in cluster.pods) / GPU_MILLI,
        free_in_one_piece(cluster.nodes, cluster.pods),
        free_in_one_piece(cluster.nodes, found),
        evictions,
        sum(not each.node for each in found),
        seconds,
        round(os.getloadavg()[0], 1),
    )


# -- by Bayplan's plan, in memory --------------------------------------------------------------------------------------


async def planned(cluster: Cluster) -> Outcome:
    """Plan moves that empty nodes with GPUs, and make them."""
    scheduler = _scheduler_with(cluster)
    with_gpus = LabelSelector(match_expressions=(Requirement(_GPUS.model_label, "Exists"),))
    request = RebalanceRequest(Consolidate(), Scope(nodes=compile_label_selector(with_gpus)))
    began = time.process_time()
    plan = plan_search(scheduler.context, scheduler.reservations).plan(request, _STEPS)
    seconds = time.process_time() - began
    await scheduler.stop(0)
    targets = {move.info.pod.metadata.name: move.target for move in plan.moves}
    moved = [replace(each, node=targets.get(each.name, each.node)) for each in cluster.pods]
    return _outcome(PLAN, cluster, moved, len(plan.moves), seconds)


def _scheduler_with(cluster: Cluster) -> Scheduler:
    registry = in_tree_registry()
    types = registry.decoded_types(plans_moves=True)
    scheduler = Scheduler(SimulatedClock(), MemoryCluster(), registry=registry)
    scheduler.activate([scheduler.build(ProfileConfig.model_validate({**PACKS, "schedulerName": SCHEDULER_NAME}))])
    for node in cluster.nodes:
        scheduler.feed.node_added(msgspec.convert(node_document(node), types.node))
    for kind, pods in cluster.kinds.items():
        template = _template(kind, pods[0].pod)
        for each in pods:
            document = _bound_pod(each, kind, template, {**_reference(kind), "uid": kind})
            document["metadata"]["uid"] = each.name
            scheduler.feed.pod_added(msgspec.convert(document, types.pod))
    return scheduler


# -- command ----------------------------------------------------------------------------------------------------------

WAYS = (KUBE_SCHEDULER, BAYPLAN, PLAN)


_COLUMNS: Mapping[str, Callable[[Outcome], object]] = {
    "way": lambda each: each.way,
    "seed": lambda each: each.seed,
    "GPUs free in one piece": lambda each: f"{each.free_before:,} -> {each.free_after:,}",
    "recovered": lambda each: f"{each.free_after - each.free_before:,}",
    "evictions": lambda each: f"{each.evictions:,}",
    "GPUs per eviction": lambda each: f"{each.per_eviction:.2f}",
    "pending": lambda each: f"{each.pending:,}",
    "seconds": lambda each: f"{each.seconds:,.1f}",
    "load": lambda each: f"{each.load:g}",
}


def show(outcomes: Sequence[Outcome]) -> None:
    console = wide_console(140)
    console.print(table_of("", outcomes, _COLUMNS, 2, box=box.SIMPLE_HEAD))
    first = outcomes[0]
    console.print(
        f"{first.nodes:,} nodes with {first.capacity_gpus:,} GPUs; {first.pods:,} pods request "
        f"{first.requested_gpus:,.0f} of these."
    )


def arguments_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command_line(__doc__, seed=100, draws=1, rounds=5, threshold=50, ended=0.3)
    parser.add_argument("folder", type=Path, help="Folder with the CSV files of the trace.")
    parser.add_argument("--nodes", type=int, default=0, help="Number of nodes, drawn at random; 0 for all.")
    parser.add_argument("--ways", default=",".join(WAYS), help="What is measured, with commas: " + ", ".join(WAYS))
    add_output(parser, "")
    arguments = parser.parse_args(argv)
    arguments.ways = arguments.ways.split(",")
    unknown = [name for name in arguments.ways if name not in WAYS]
    if unknown:
        parser.error(f'--ways: unknown way "{unknown[0]}"; known ways: {", ".join(WAYS)}')
    if not 0 <= arguments.ended < 1:
        parser.error(f"--ended: {arguments.ended:g}: must be at least 0 and less than 1")
    return arguments


def part_of(trace: Trace, nodes: int, seed: int) -> Trace:
    """Return the trace with some of its nodes; with all if ``nodes`` is 0."""
    if not 0 < nodes < len(trace.nodes):
        return trace
    return Trace(tuple(random.Random(seed).sample(trace.nodes, nodes)), trace.pods)


def run(trace: Trace, arguments: argparse.Namespace) -> list[Outcome]:
    turns = []
    for seed in range(arguments.seed, arguments.seed + arguments.draws):
        part = part_of(trace, arguments.nodes, seed)
        cluster = asyncio.run(filled(part, seed, arguments.ended))
        turns += [((way, seed, len(part.nodes)), partial(_measured, way, cluster, arguments)) for way in arguments.ways]
    return ResultLines(arguments.results, Outcome).complete(
        turns,
        lambda each: (each.way, each.seed, each.nodes),
        lambda each: f"{each.way}: {each.free_after - each.free_before} GPUs by {each.evictions} evictions",
    )


def _measured(way: str, cluster: Cluster, arguments: argparse.Namespace) -> Outcome:
    if way == PLAN:
        return asyncio.run(planned(cluster))
    return descheduled(cluster, way, arguments.threshold, arguments.rounds)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    # Each infeasible pod would log a warning.
    logging.disable(logging.WARNING)
    try:
        outcomes = run(read_trace(arguments.folder, NODES_FILE, PODS_FILE), arguments)
    except (TraceError, UnreadableResultsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        logging.disable(logging.NOTSET)
    report(arguments.output, outcomes, lambda: show(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
