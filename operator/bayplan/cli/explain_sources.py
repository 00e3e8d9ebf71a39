"""Sources of the pod or PodGroup and the cluster for ``bayplan explain``: the operator, the API server, or files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import click
import msgspec

from bayplan.cli.cluster_connection import ClusterChoice
from bayplan.cli.operator_requests import OperatorRequest, send_to_operator
from bayplan.explanation.gang_building import explain_gang, named_gang
from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.gang_rendering import read_gang_explanation
from bayplan.explanation.pod_building import explain_pod
from bayplan.explanation.pod_model import Explanation
from bayplan.explanation.pod_rendering import read_explanation
from bayplan.kube.http.connection import ApiConnection
from bayplan.serving.endpoint_paths import EXPLAIN_PATH
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.cluster_snapshot import take_snapshot
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan.simulation.simulation import SimulationOptions, installed_plugins, populate, simulate
from scheduler_core.errors import ConfigError, NotFoundError, Problem
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource, group_key_of
from scheduler_core.scheduler import Scheduler, SchedulerPorts

_PODS = frozenset({"pod", "pods", "po"})
_GROUPS = frozenset({"podgroup", "podgroups", "bpg", "pg"})
_SHORT = "bpg"


@dataclass(frozen=True, slots=True)
class PodName:
    """Name of a pod."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupName:
    """Name of a PodGroup.

    Attributes:
        source: API of the PodGroup; None for the first API that has one with this name.
    """

    namespace: str
    name: str
    source: GroupSource | None = None

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def explained_name(namespace: str, text: str) -> PodName | GroupName:
    """Parse the argument of the command.

    Args:
        text: Argument, such as ``web-0`` or ``podgroup/train``.

    Raises:
        UsageError: The argument names neither a pod nor a PodGroup of a supported API.
    """
    resource, slash, name = text.rpartition("/")
    kind, dot, api = resource.partition(".")
    if (not slash or resource in _PODS) and name:
        return PodName(namespace, name)
    if kind not in _GROUPS or not name:
        raise click.UsageError(f'"{text}" does not name a pod or PodGroup; specify POD, pod/POD or podgroup/NAME')
    if not dot:
        return GroupName(namespace, name, GroupSource.BAYPLAN if kind == _SHORT else None)
    known = {source.value: source for source in POD_GROUP_SOURCES}
    if api not in known:
        raise click.UsageError(f'unsupported API of PodGroups "{api}": supported values: {", ".join(known)}')
    return GroupName(namespace, name, known[api])


AnyExplanation = Explanation | GangExplanation


# -- the running operator ---------------------------------------------------------------------------------------------


def from_operator(server: str, target: PodName | GroupName) -> AnyExplanation:
    """Request an explanation from the operator.

    Args:
        server: Scheme, host and port of the operator.

    Raises:
        NotFoundError: The pod or PodGroup does not exist.
        ServerUnavailableError: The operator cannot be reached or is not ready, or no leader can be reached.
        ClusterWriteError: The operator rejects the request.
    """
    offline = ", or use --offline"
    if isinstance(target, PodName):
        query = {"namespace": target.namespace, "pod": target.name}
        return read_explanation(send_to_operator(OperatorRequest(server, EXPLAIN_PATH, query, offline)))
    query = {"namespace": target.namespace, "podgroup": target.name}
    if target.source is not None:
        query["api"] = target.source.value
    return read_gang_explanation(send_to_operator(OperatorRequest(server, EXPLAIN_PATH, query, offline)))


# -- the API server ---------------------------------------------------------------------------------------------------


def from_api_server(choice: ClusterChoice, target: PodName | GroupName, options: SimulationOptions) -> AnyExplanation:
    """Read the cluster from its API server, and explain in memory.

    Raises:
        ConfigError: The kubeconfig cannot be used.
        NotFoundError: The pod or PodGroup does not exist.
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
    """
    return choice.run(lambda connection: _from_api_server(connection, target, options))


async def _from_api_server(
    connection: ApiConnection, target: PodName | GroupName, options: SimulationOptions
) -> AnyExplanation:
    snapshot = await take_snapshot(connection, options.of_scheduler())
    scheduler = snapshot.scheduler
    explanation: AnyExplanation | None
    if isinstance(target, PodName):
        pod = snapshot.pods.get(str(target))
        explanation = None if pod is None else explain_pod(scheduler, pod)
    else:
        gang = named_gang(scheduler.context, target.namespace, target.name, target.source)
        explanation = None if gang is None else explain_gang(scheduler, gang)
    if explanation is None:
        kind = "pod" if isinstance(target, PodName) else "PodGroup"
        raise NotFoundError(f"{kind} {target} not found; check the namespace and the name")
    return _with_notices(explanation, snapshot.notices)


def _with_notices(explanation: AnyExplanation, notices: Iterable[str]) -> AnyExplanation:
    return msgspec.structs.replace(explanation, notices=(*explanation.notices, *notices))


# -- files ------------------------------------------------------------------------------------------------------------


def read_files(files: Sequence[str], *, allow_invalid: bool) -> AdmittedCluster:
    """Read the cluster from files.

    Args:
        files: Paths; ``-`` is standard input.
        allow_invalid: Whether objects that the API server would reject are read with notices.

    Raises:
        ConfigError: The files are invalid.
        RegistryError: An installed plugin cannot be loaded.
    """
    return admit(
        read_cluster_files(files, installed_plugins().decoded_types(reads_marks=True), allow_invalid=allow_invalid)
    )


def from_files(
    cluster: AdmittedCluster, target: PodName | GroupName, options: SimulationOptions, *, others_placed: bool
) -> AnyExplanation:
    """Explain in memory.

    Args:
        others_placed: Whether all other pending pods are scheduled first, as in ``bayplan simulate``, except the
            members of the explained gang.

    Raises:
        ConfigError: A profile is invalid, or the files do not have the pod or PodGroup.
        RegistryError: An installed plugin cannot be loaded.
    """
    if others_placed:
        cluster = _with_others_placed(cluster, target, options)
    return asyncio.run(_from_cluster(cluster, target, options))


async def _from_cluster(
    cluster: AdmittedCluster, target: PodName | GroupName, options: SimulationOptions
) -> AnyExplanation:
    world = MemoryCluster()
    ports = SchedulerPorts(storage=world.storage, claims=world.claims)
    scheduler = Scheduler(
        SimulatedClock(datetime.now(UTC)), world, options.of_scheduler(), installed_plugins(), ports=ports
    )
    if isinstance(target, PodName):
        found = next((each for each in cluster.pods if each.key == str(target)), None)
        if found is None:
            waiting = ", ".join(each.key for each in cluster.pods if not each.spec.node_name) or "none"
            problem = f"pod {target} is not in the files; pending pods: {waiting}"
            raise ConfigError([Problem("--pod", problem)])
        populate(scheduler, world, cluster)
        return _with_notices(explain_pod(scheduler, found), cluster.notices)
    populate(scheduler, world, cluster)
    gang = named_gang(scheduler.context, target.namespace, target.name, target.source)
    if gang is None:
        known = ", ".join(sorted(str(each.key) for each in scheduler.context.queue.gangs)) or "none"
        raise ConfigError([Problem("podgroup", f"PodGroup {target} is not in the files; PodGroups: {known}")])
    return _with_notices(explain_gang(scheduler, gang), cluster.notices)


def _with_others_placed(
    cluster: AdmittedCluster, target: PodName | GroupName, options: SimulationOptions
) -> AdmittedCluster:
    result = simulate(cluster, options)
    nodes = {(each.namespace, each.name): each.node for each in result.pods}

    def placed(each: Pod) -> Pod:
        node = nodes.get((each.metadata.namespace, each.metadata.name))
        if not node or each.key in explained:
            return each
        return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, node_name=node))

    explained = _explained_pods(cluster, target)
    uids = {each.metadata.uid for each in cluster.pods if each.key in explained}
    others = tuple(each for each in cluster.devices if not isinstance(each, ResourceClaim))
    return replace(
        cluster,
        pods=tuple(placed(each) for each in cluster.pods),
        devices=(*others, *_claims_of_others(cluster, result.claims, uids)),
    )


def _claims_of_others(
    cluster: AdmittedCluster, allocated: Iterable[ResourceClaim], explained: set[str]
) -> Iterator[ResourceClaim]:
    """Yield the claims after a simulation, without what was allocated only for the explained pods."""
    given = {each.key: each for each in cluster.devices if isinstance(each, ResourceClaim)}
    for claim in allocated:
        consumers = claim.status.reserved_for
        others = tuple(each for each in consumers if each.uid not in explained)
        if others or not consumers:
            status = msgspec.structs.replace(claim.status, reserved_for=others)
            yield msgspec.structs.replace(claim, status=status)
        elif claim.key in given:
            yield given[claim.key]


def _explained_pods(cluster: AdmittedCluster, target: PodName | GroupName) -> set[str]:
    """Return the explained pods as ``namespace/name``: a pod with the members of its gang, or the members of a gang."""
    groups = {each.key: group_key_of(each) for each in cluster.pods}
    if isinstance(target, PodName):
        own = groups.get(str(target))
        return {str(target)} | {pod for pod, group in groups.items() if own is not None and group == own}
    return {
        pod
        for pod, group in groups.items()
        if group is not None and (group.namespace, group.name) == (target.namespace, target.name)
    }
