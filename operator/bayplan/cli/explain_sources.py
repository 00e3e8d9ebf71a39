"""Where ``bayplan explain`` finds a pod or PodGroup and its cluster: the running operator, the API server, or files.

Owns one function for each. It must not know options of the command or how an explanation is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bayplan.cli.explained_names import GroupName, PodName
from bayplan.cli.operator_requests import OperatorRequest, ask_operator
from bayplan.cluster_snapshot import take_snapshot
from bayplan.explanation.building import explain_pod
from bayplan.explanation.gang_building import explain_gang, named_gang
from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.gang_rendering import read_gang_explanation
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
from scheduler_core.model.pod_group import group_key_of
from scheduler_core.scheduler import Scheduler, SchedulerOptions

Told = Explanation | GangExplanation


# -- the running operator ---------------------------------------------------------------------------------------------


def from_operator(server: str, asked: PodName | GroupName) -> Told:
    """Ask the operator.

    Args:
        server: Scheme, host and port of what it serves.
        asked: The pod or PodGroup.

    Raises:
        NotFoundError: It knows none such.
        ServerUnavailableError: It cannot be reached, is not ready, or no leader can be reached.
        ClusterWriteError: It refuses.
    """
    offline = ", or use --offline"
    if isinstance(asked, PodName):
        query = {"namespace": asked.namespace, "pod": asked.name}
        return read_explanation(ask_operator(OperatorRequest(server, PATH, query, offline)))
    query = {"namespace": asked.namespace, "podgroup": asked.name}
    if asked.source is not None:
        query["api"] = asked.source.value
    return read_gang_explanation(ask_operator(OperatorRequest(server, PATH, query, offline)))


# -- the API server ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which API server, by a kubeconfig and a context of it; None for what kubectl would take."""

    kubeconfig: Path | None = None
    context: str | None = None


def from_api_server(choice: ClusterChoice, asked: PodName | GroupName, seed: int) -> Told:
    """Read the cluster through its API server, and decide in memory.

    Args:
        choice: Which cluster.
        asked: The pod or PodGroup.
        seed: Settles ties among equal nodes.

    Raises:
        ConfigError: The kubeconfig cannot be used.
        NotFoundError: There is none such.
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
    """
    return asyncio.run(_from_api_server(choice, asked, seed))


async def _from_api_server(choice: ClusterChoice, asked: PodName | GroupName, seed: int) -> Told:
    connection = await open_connection(choice.kubeconfig, choice.context, ConnectionOptions(), SystemClock())
    async with connection:
        snapshot = await take_snapshot(connection, SchedulerOptions(seed=seed))
    context = snapshot.scheduler.context
    told: Told | None
    if isinstance(asked, PodName):
        pod = snapshot.pods.get(str(asked))
        told = None if pod is None else explain_pod(context, pod)
    else:
        gang = named_gang(context, asked.namespace, asked.name, asked.source)
        told = None if gang is None else explain_gang(context, gang)
    if told is None:
        kind = "pod" if isinstance(asked, PodName) else "PodGroup"
        raise NotFoundError(f"{kind} {asked} not found; check the namespace and the name")
    return _with_notices(told, snapshot.notices)


def _with_notices(told: Told, notices: Iterable[str]) -> Told:
    return msgspec.structs.replace(told, notices=(*told.notices, *notices))


# -- files ------------------------------------------------------------------------------------------------------------


def from_files(files: Sequence[str], asked: PodName | GroupName, seed: int, *, others_placed: bool) -> Told:
    """Read the cluster from files.

    Args:
        files: Paths; ``-`` is standard input.
        asked: The pod or PodGroup.
        seed: Settles ties among equal nodes.
        others_placed: Whether all other waiting pods are placed first, as ``bayplan simulate`` does; those of the gang
            that is asked about are not.

    Raises:
        ConfigError: The files are not valid, or there is none such in them.
        RegistryError: An installed plugin cannot be used.
    """
    cluster = admit(read_cluster_files(files, installed_plugins().decoded_types()))
    if others_placed:
        cluster = _with_others_placed(cluster, asked, seed)
    return asyncio.run(_from_cluster(cluster, asked, seed))


async def _from_cluster(cluster: AdmittedCluster, asked: PodName | GroupName, seed: int) -> Told:
    world = MemoryCluster()
    scheduler = Scheduler(SimulatedClock(), world, SchedulerOptions(seed=seed), installed_plugins())
    if isinstance(asked, PodName):
        found = next((each for each in cluster.pods if each.key == str(asked)), None)
        if found is None:
            waiting = ", ".join(each.key for each in cluster.pods if not each.spec.node_name) or "none"
            problem = f"there is no pod {asked} in the files; those that wait are: {waiting}"
            raise ConfigError([Problem("--pod", problem)])
        populate(scheduler, world, cluster)
        return _with_notices(explain_pod(scheduler.context, found), cluster.notices)
    populate(scheduler, world, cluster)
    gang = named_gang(scheduler.context, asked.namespace, asked.name, asked.source)
    if gang is None:
        known = ", ".join(sorted(str(each.key) for each in scheduler.context.queue.gangs)) or "none"
        raise ConfigError([Problem("podgroup", f"there is no PodGroup {asked} in the files; there are: {known}")])
    return _with_notices(explain_gang(scheduler.context, gang), cluster.notices)


def _with_others_placed(cluster: AdmittedCluster, asked: PodName | GroupName, seed: int) -> AdmittedCluster:
    result = simulate(cluster, SimulationOptions(seed))
    nodes = {(each.namespace, each.name): each.node for each in result.pods}

    def placed(each: Pod) -> Pod:
        node = nodes.get((each.metadata.namespace, each.metadata.name))
        if not node or each.key in spared:
            return each
        return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, node_name=node))

    spared = _spared(cluster, asked)
    return replace(cluster, pods=tuple(placed(each) for each in cluster.pods))


def _spared(cluster: AdmittedCluster, asked: PodName | GroupName) -> set[str]:
    """The pods that are asked about, by ``namespace/name``: a pod with its gang, or a gang."""
    groups = {each.key: group_key_of(each) for each in cluster.pods}
    if isinstance(asked, PodName):
        own = groups.get(str(asked))
        return {str(asked)} | {pod for pod, group in groups.items() if own is not None and group == own}
    return {
        pod
        for pod, group in groups.items()
        if group is not None and (group.namespace, group.name) == (asked.namespace, asked.name)
    }
