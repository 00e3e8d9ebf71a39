"""``bayplan explain``: explains why a pod or a gang is or is not scheduled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
import msgspec

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command, is_on_command_line, report_head
from bayplan.cli.object_names import (
    ALL_NAMESPACES,
    DEFAULT_NAMESPACE,
    GroupName,
    PodName,
    chosen_namespace,
    complete_explained,
    namespace_options,
    object_name,
)
from bayplan.cli.operator_location import ClusterChoice, OperatorChoice, kubeconfig_options
from bayplan.cli.operator_requests import OperatorRequest, operator_options, send_to_operator
from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import only_namespace
from bayplan.explanation.rendering import RENDERERS, AnyExplanation, read_explanation, read_gang_explanation
from bayplan.kube.http.connection import ApiConnection
from bayplan.page.report_file import explanation_report
from bayplan.serving import EXPLAIN_PATH
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_snapshot import take_snapshot
from bayplan.simulation.simulation import SimulationOptions, offline, read_cluster, simulate
from scheduler_core.errors import ConfigError, NotFoundError, Problem
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import group_key_of
from scheduler_core.scheduler import Scheduler

# -- the running operator ---------------------------------------------------------------------------------------------


def from_operator(operator: OperatorChoice, target: PodName | GroupName) -> AnyExplanation:
    """Request an explanation from the operator.

    Raises:
        NotFoundError: The pod or PodGroup does not exist.
        ServerUnavailableError: The operator cannot be reached or is not ready, or no leader can be reached.
        ClusterWriteError: The operator rejects the request.
    """
    offline = ", or use --offline"
    where = {"allNamespaces": "true"} if target.namespace == ALL_NAMESPACES else {"namespace": target.namespace}
    if isinstance(target, PodName):
        query = {**where, "pod": target.name}
        return read_explanation(send_to_operator(OperatorRequest(operator, EXPLAIN_PATH, query, offline)))
    query = {**where, "podgroup": target.name}
    if target.source is not None:
        query["api"] = target.source.value
    return read_gang_explanation(send_to_operator(OperatorRequest(operator, EXPLAIN_PATH, query, offline)))


# -- the API server ---------------------------------------------------------------------------------------------------


def from_api_server(choice: ClusterChoice, target: PodName | GroupName, options: SimulationOptions) -> AnyExplanation:
    """Explain in memory; raises ClusterWriteError if nodes, pods or profiles of the cluster cannot be listed."""
    return choice.run(lambda connection: _from_api_server(connection, target, options))


async def _from_api_server(
    connection: ApiConnection, target: PodName | GroupName, options: SimulationOptions
) -> AnyExplanation:
    snapshot = await take_snapshot(connection, options.of_scheduler())
    scheduler = snapshot.scheduler
    explanation: AnyExplanation | None
    if isinstance(target, PodName):
        target = _located_pod(target, snapshot.pods)
        pod = snapshot.pods.get(str(target))
        explanation = None if pod is None else explain_pod(scheduler, pod)
    else:
        target = _located_gang(target, scheduler)
        gang = named_gang(scheduler.context, target.namespace, target.name, target.source)
        explanation = None if gang is None else explain_gang(scheduler, gang)
    if explanation is None:
        kind = "pod" if isinstance(target, PodName) else "PodGroup"
        raise NotFoundError(f"{kind} {target} not found; check the namespace and the name")
    return _with_notices(explanation, snapshot.notices)


def _located_pod(target: PodName, pods: Iterable[str]) -> PodName:
    """Return a pod with the only namespace that has its name, if it is looked for in all."""
    if target.namespace != ALL_NAMESPACES:
        return target
    parts = (key.split("/", 1) for key in pods)
    return replace(
        target, namespace=only_namespace("pod", target.name, {at for at, name in parts if name == target.name})
    )


def _located_gang(target: GroupName, scheduler: Scheduler) -> GroupName:
    """Return a PodGroup with the only namespace that has its name, if it is looked for in all."""
    if target.namespace != ALL_NAMESPACES:
        return target
    keys = (each.key for each in scheduler.context.queue.gangs)
    found = {key.namespace for key in keys if key.name == target.name and target.source in (None, key.source)}
    return replace(target, namespace=only_namespace("PodGroup", target.name, found))


def _with_notices(explanation: AnyExplanation, notices: Iterable[str]) -> AnyExplanation:
    return msgspec.structs.replace(explanation, notices=(*explanation.notices, *notices))


# -- files ------------------------------------------------------------------------------------------------------------


def from_files(
    cluster: AdmittedCluster, target: PodName | GroupName, options: SimulationOptions, *, others_placed: bool
) -> AnyExplanation:
    """Explain in memory.

    Args:
        others_placed: Whether all other pending pods are scheduled first, as in ``bayplan simulate``, except the
            members of the explained gang.
    """
    if others_placed:
        if target.namespace == ALL_NAMESPACES:
            raise click.UsageError("--others-placed requires a namespace; name it with -n instead of -A")
        cluster = _with_others_placed(cluster, target, options)
    return asyncio.run(_from_cluster(cluster, target, options))


async def _from_cluster(
    cluster: AdmittedCluster, target: PodName | GroupName, options: SimulationOptions
) -> AnyExplanation:
    if isinstance(target, PodName):
        target = _located_pod(target, [each.key for each in cluster.pods])
        found = next((each for each in cluster.pods if each.key == str(target)), None)
        if found is None:
            waiting = ", ".join(each.key for each in cluster.pods if not each.spec.node_name) or "none"
            problem = f"pod {target} is not in the files; pending pods: {waiting}"
            raise ConfigError([Problem("--pod", problem)])
        return _with_notices(explain_pod(offline(cluster, options), found), cluster.notices)
    scheduler = offline(cluster, options)
    target = _located_gang(target, scheduler)
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


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command; None and empty if not given."""

    pod: str | None
    namespace: str | None
    is_all_namespaces: bool
    file_pod: str | None
    files: tuple[str, ...]
    offline: bool
    server: str | None
    operator: str
    cluster: ClusterChoice
    seed: int
    others_placed: bool
    feature_gates: str
    allow_invalid: bool


@click.command(short_help="Explain why a pod or a gang is or is not scheduled.")
@click.argument(
    "pod", required=False, metavar="[[NAMESPACE/]POD | podgroup/[NAMESPACE/]NAME]", shell_complete=complete_explained
)
@namespace_options(
    "Namespace of the pod or PodGroup.  [default: that of the context; with -f: default]",
    "Look for the name in all namespaces, of which only one may have it.",
)
@operator_options
@click.option("--offline", is_flag=True, help="Read the cluster from the API server, without an operator.")
@kubeconfig_options
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Read the cluster from files; - is standard input."
)
@click.option("--pod", "file_pod", metavar="NAMESPACE/NAME", help="Pod to explain, instead of POD.")
@click.option("--others-placed", is_flag=True, help="With -f: schedule all other pending pods first.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="With -f, --offline: seed to resolve ties."
)
@feature_gates_option("With -f, --offline: feature gates of the scheduler.")
@allow_invalid_option("With -f: ")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
def explain(output: str, **given: Any) -> None:
    """Explain why POD is or is not scheduled; with podgroup/NAME, explain a gang.

    The command queries the operator on this host, or the one in the cluster of the kubeconfig: it finds the pod of the
    leader and forwards a port through the API server, with your rights (list pods, create pods/portforward). In the
    operator's pod, a standby names the leader, and the command sends the request there. With --offline the cluster is
    read from the API server, with -f from files, and the pod is explained in memory. The command changes nothing in the
    cluster.

    The output lists the plugins that reject nodes and why, the nearest misses and what they lack, the scores of the
    best nodes, a dry run of preemption, and the events that would requeue the pod. For a gang it lists the members and
    a dry run of its group cycle by domain: how many members fit, what the next one lacks, and the preemption victims.

    With -o html it is one file to attach to a ticket, which needs no server: the page's panel of one pod or gang, and
    below it the tables, which need no script.
    """
    click.echo(_explained(_Options(**given), output), nl=output not in ("yaml", "html"))


def _explained(options: _Options, output: str) -> str:
    target = _target(options)
    # The address may come from the environment, where it is meant for commands that query the operator.
    is_server_given = options.server is not None and is_on_command_line("server")
    if sum((bool(options.files), options.offline, is_server_given or bool(options.operator))) > 1:
        raise click.UsageError("specify only one of -f, --offline, and --server or --operator")
    if options.others_placed and not options.files:
        raise click.UsageError("--others-placed requires -f")
    if options.allow_invalid and not options.files:
        raise click.UsageError("--allow-invalid requires -f")
    if options.files:
        options.cluster.reject_with("-f")
    if options.feature_gates and not (options.files or options.offline):
        raise click.UsageError("--feature-gates requires -f or --offline; a running operator uses its own")
    gates = FeatureGates(parse_feature_gates(options.feature_gates))
    if options.files:
        settings = SimulationOptions(options.seed, gates=gates)
        cluster = read_cluster(options.files, allow_invalid=options.allow_invalid)
        explanation = from_files(cluster, target, settings, others_placed=options.others_placed)
    elif options.offline:
        explanation = from_api_server(options.cluster, target, SimulationOptions(options.seed, gates=gates))
    else:
        explanation = from_operator(OperatorChoice(options.server, options.operator, options.cluster), target)
    if output == "html":
        context = click.get_current_context()
        return explanation_report(explanation, given_command(context), report_head(context))
    return RENDERERS[output](explanation)


def _target(options: _Options) -> PodName | GroupName:
    chosen_namespace(options.namespace, is_all_namespaces=options.is_all_namespaces)
    if bool(options.pod) == bool(options.file_pod):
        usage = "bayplan explain [-n NAMESPACE] POD, NAMESPACE/POD or podgroup/NAME, or --pod NAMESPACE/NAME"
        raise click.UsageError(f"specify one pod or PodGroup: {usage}")
    if options.pod:
        is_own = options.files or options.namespace or options.is_all_namespaces or "/" in options.pod
        default = DEFAULT_NAMESPACE if is_own else options.cluster.own_namespace
        namespace = ALL_NAMESPACES if options.is_all_namespaces else options.namespace
        return object_name(namespace, options.pod, default)
    if options.is_all_namespaces:
        raise click.UsageError("--pod NAMESPACE/NAME cannot be combined with -A")
    namespace, slash, name = (options.file_pod or "").rpartition("/")
    if options.namespace and slash:
        raise click.UsageError("--pod NAMESPACE/NAME cannot be combined with -n")
    return object_name(namespace or options.namespace, name)
