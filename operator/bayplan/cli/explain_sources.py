"""Where ``bayplan explain`` finds the pod and its cluster: the running operator, the API server, or files.

Owns one function for each. It must not know options of the command or how an explanation is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bayplan.cli.operator_requests import ask_operator
from bayplan.cluster_snapshot import take_snapshot
from bayplan.explanation.building import explain_pod
from bayplan.explanation.model import Explanation
from bayplan.explanation.rendering import read_explanation
from bayplan.kube.cluster_access import open_connection
from bayplan.kube.connection import ConnectionOptions
from bayplan.kube.system_clock import SystemClock
from bayplan.serving.explain import PATH
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import MemoryCluster
from bayplan.simulation.simulated_clock import SimulatedClock
from bayplan.simulation.simulation import SimulationOptions, installed_plugins, populate, simulate
from scheduler_core.errors import ConfigError, NotFoundError, Problem
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerOptions


@dataclass(frozen=True, slots=True)
class PodName:
    """Which pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


# -- the running operator ---------------------------------------------------------------------------------------------


def from_operator(server: str, pod: PodName) -> Explanation:
    """Ask the operator.

    Args:
        server: Scheme, host and port of what it serves.
        pod: The pod.

    Raises:
        NotFoundError: It knows no such pod.
        ServerUnavailableError: It cannot be reached, or is not ready.
        ClusterWriteError: It refuses.
    """
    answer = ask_operator(server, PATH, {"namespace": pod.namespace, "pod": pod.name}, ", or use --offline")
    return read_explanation(answer)


# -- the API server ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which API server, by a kubeconfig and a context of it; None for what kubectl would take."""

    kubeconfig: Path | None = None
    context: str | None = None


def from_api_server(choice: ClusterChoice, pod: PodName, seed: int) -> Explanation:
    """Read the cluster through its API server, and decide in memory.

    Args:
        choice: Which cluster.
        pod: The pod.
        seed: Settles ties among equal nodes.

    Raises:
        ConfigError: The kubeconfig cannot be used.
        NotFoundError: There is no such pod.
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
    """
    return asyncio.run(_from_api_server(choice, pod, seed))


async def _from_api_server(choice: ClusterChoice, pod: PodName, seed: int) -> Explanation:
    connection = await open_connection(choice.kubeconfig, choice.context, ConnectionOptions(), SystemClock())
    async with connection:
        snapshot = await take_snapshot(connection, SchedulerOptions(seed=seed))
    found = snapshot.pods.get(str(pod))
    if found is None:
        raise NotFoundError(f"there is no pod {pod}; correct namespace or name")
    explanation = explain_pod(snapshot.scheduler.context, found)
    return msgspec.structs.replace(explanation, notices=(*explanation.notices, *snapshot.notices))


# -- files ------------------------------------------------------------------------------------------------------------


def from_files(files: Sequence[str], pod: PodName, seed: int, *, others_placed: bool) -> Explanation:
    """Read the cluster from files.

    Args:
        files: Paths; ``-`` is standard input.
        pod: The pod.
        seed: Settles ties among equal nodes.
        others_placed: Whether all other waiting pods are placed first, as ``bayplan simulate`` does.

    Raises:
        ConfigError: The files are not valid, or there is no such pod in them.
        RegistryError: An installed plugin cannot be used.
    """
    cluster = admit(read_cluster_files(files, installed_plugins().decoded_types()))
    if others_placed:
        cluster = _with_others_placed(cluster, pod, seed)
    return asyncio.run(_from_cluster(cluster, pod, seed))


async def _from_cluster(cluster: AdmittedCluster, pod: PodName, seed: int) -> Explanation:
    found = next((each for each in cluster.pods if each.key == str(pod)), None)
    if found is None:
        waiting = ", ".join(each.key for each in cluster.pods if not each.spec.node_name) or "none"
        raise ConfigError([Problem("--pod", f"there is no pod {pod} in the files; those that wait are: {waiting}")])
    world = MemoryCluster()
    scheduler = Scheduler(SimulatedClock(), world, SchedulerOptions(seed=seed), installed_plugins())
    populate(scheduler, world, cluster)
    explanation = explain_pod(scheduler.context, found)
    return msgspec.structs.replace(explanation, notices=(*explanation.notices, *cluster.notices))


def _with_others_placed(cluster: AdmittedCluster, pod: PodName, seed: int) -> AdmittedCluster:
    result = simulate(cluster, SimulationOptions(seed))
    nodes = {(each.namespace, each.name): each.node for each in result.pods}
    nodes.pop((pod.namespace, pod.name), None)

    def placed(each: Pod) -> Pod:
        node = nodes.get((each.metadata.namespace, each.metadata.name))
        if not node:
            return each
        return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, node_name=node))

    return replace(cluster, pods=tuple(placed(each) for each in cluster.pods))
