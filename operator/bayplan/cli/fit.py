"""``bayplan fit``: whether pods that do not exist would be scheduled, and if not, what would help."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import astuple
from rich.console import Group, RenderableType
from rich.text import Text

from bayplan.cli import is_on_command_line
from bayplan.cli.operator_location import ClusterChoice, OperatorChoice, kubeconfig_options
from bayplan.cli.operator_requests import OperatorRequest, operator_options, send_to_operator
from bayplan.fit import FitBody
from bayplan.fit.building import EXIT_CODES, FitDocument, fit_document, read_fit
from bayplan.fit.claim_templates import missing_templates, read_templates
from bayplan.fit.request_reading import FitQuestion, read_question, read_template
from bayplan.gangs.group_sources import priority_class_manifest, priority_class_manifests
from bayplan.kube.http.connection import ApiConnection
from bayplan.serving import FIT_PATH
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import DEFAULT_NAMESPACE, Placed, objects_in, read_cluster_files
from bayplan.simulation.cluster_snapshot import LIVE, take_snapshot
from bayplan.simulation.memory_cluster import installed_plugins
from bayplan.simulation.simulation import SimulationOptions, offline
from bayplan.texts.document_formats import capitalized, counted, listed
from bayplan.texts.report_sections import report_renderers, table_of
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.fit.fit_search import FitVerdict
from scheduler_core.fit.requests import NodeTemplate
from scheduler_core.scheduler import Scheduler

_STEPS = 10_000_000
"""Maximum number of steps in memory: about 100 s."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command; None and empty if not given."""

    files: tuple[str, ...]
    nodes_from: tuple[str, ...]
    offline: bool
    namespace: str | None
    count: int | None
    profile: str
    node_template: str
    max_new: int
    evictions: bool
    seed: int
    server: str | None
    operator: str
    cluster: ClusterChoice

    def objects(self) -> list[Placed[Any]]:
        """Return the manifests; raises ConfigError if a file cannot be read."""
        return [placed for source in self.files for placed in objects_in(source)]

    def question(self, objects: list[Placed[Any]], classes: list[dict[str, Any]]) -> FitQuestion:
        """Return the question without the template of new nodes."""
        return FitQuestion(
            objects=objects,
            namespace=self.namespace or "",
            profile=self.profile,
            count=self.count,
            priority_classes=classes,
            may_evict=self.evictions,
        )


@click.command(short_help="Report whether pods would be scheduled.")
@click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE",
    help="Manifests of pods, workloads and PodGroups; - is standard input.",
)  # fmt: skip
@click.option("-n", "--namespace", help="Namespace of objects without one.  [default: default]")
@click.option("--count", type=click.IntRange(1), help="Number of copies of the pod, or of replicas of the workload.")
@click.option("--profile", default="", metavar="NAME", help="schedulerName of all pods.  [default: their own]")
@click.option(
    "--node-template",
    default="",
    metavar="FILE|NODE",
    help="Node that could be added: a manifest (with its ResourceSlices), or a node to copy.",
)
@click.option(
    "--max-new", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of new nodes."
)
@click.option("--evictions/--no-evictions", default=True, show_default=True, help="Consider preemption.")
@click.option("--nodes-from", multiple=True, metavar="FILE", help="Read the cluster from files.")
@click.option("--offline", is_flag=True, help="Read the cluster from the API server, without an operator.")
@operator_options
@kubeconfig_options
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --nodes-from, --offline: seed to resolve ties.",
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format.")
def fit(output: str, **given: Any) -> None:
    """Report whether the pods of manifests would be scheduled, without creating them.

    Workloads (Job, CronJob, Deployment, ReplicaSet, StatefulSet, JobSet, LeaderWorkerSet) count with the pods that
    their controllers would create. PodGroups of all APIs and CompositePodGroups in the files count with their topology;
    a pod may also name a group of the cluster. The pods are placed as the scheduler would place them, one after
    another, and everything is undone.

    The command queries the operator on this host, or the one in the cluster of the kubeconfig, as explain does.
    With --offline the cluster is read from the API server, with --nodes-from from files. With --node-template the
    answer has the least number of new nodes with which all pods fit without evictions.

    Exit codes: 0 fits now, 10 fits after evictions, 11 fits with new nodes, 12 does not fit now, 13 impossible, 14
    given up; 1 and 2 for errors.
    """
    options = _Options(**given)
    is_server_given = bool(options.operator) or (options.server is not None and is_on_command_line("server"))
    if sum((bool(options.nodes_from), options.offline, is_server_given)) > 1:
        raise click.UsageError("specify only one of --nodes-from, --offline, and --server or --operator")
    if options.nodes_from:
        options.cluster.reject_with("--nodes-from")
        document = _from_files(options)
    elif options.offline:
        document = options.cluster.run(lambda connection: _from_api_server(connection, options))
    else:
        document = _from_operator(options)
    click.echo(RENDERERS[output](document), nl=output != "yaml")
    click.get_current_context().exit(EXIT_CODES[document.verdict])


def _from_operator(options: _Options) -> FitDocument:
    """Request the answer from the operator.

    Raises:
        ConfigError: A file cannot be read.
        ClusterWriteError: The operator cannot be reached, or rejects the request.
    """
    is_file = Path(options.node_template).is_file()
    node, *slices = _template_objects(options.node_template) if is_file else (None,)
    body = FitBody(
        objects=[placed.object for placed in options.objects()],
        namespace=options.namespace or "",
        profile=options.profile,
        count=options.count,
        node_template=node.object if node is not None else None,
        node_template_slices=[each.object for each in slices],
        node="" if is_file else options.node_template,
        max_new=options.max_new,
        evictions=options.evictions,
    )
    operator = OperatorChoice(options.server, options.operator, options.cluster)
    request = OperatorRequest(operator, FIT_PATH, {}, ", or use --offline", body=msgspec.json.encode(body))
    return read_fit(send_to_operator(request))


def _template_objects(file: str) -> list[Placed[Any]]:
    """Return the Node of a file, and the other objects."""
    placed = objects_in(file)
    nodes = [each for each in placed if isinstance(each.object, dict) and each.object.get("kind") == "Node"]
    if len(nodes) != 1:
        raise ConfigError([Problem(file, f"has {len(nodes)} Nodes; write one, with its ResourceSlices if it has any")])
    return [*nodes, *(each for each in placed if each is not nodes[0])]


def _from_files(options: _Options) -> FitDocument:
    files = read_cluster_files(options.nodes_from, installed_plugins().decoded_types(reads_marks=True))
    classes, cluster = [priority_class_manifest(each.object) for each in files.priority_classes], admit(files)
    question = replace(options.question(options.objects(), classes), claim_templates=cluster.claim_templates)

    async def in_memory() -> FitDocument:
        return _answered(options, offline(cluster, SimulationOptions(options.seed)), question, cluster.notices)

    return asyncio.run(in_memory())


async def _from_api_server(connection: ApiConnection, options: _Options) -> FitDocument:
    snapshot = await take_snapshot(connection, SimulationOptions(options.seed).of_scheduler())
    classes = await priority_class_manifests(connection)
    objects = options.objects()
    missing = missing_templates((each.object for each in objects), options.namespace or DEFAULT_NAMESPACE)
    templates, not_read = await read_templates(connection, missing)
    question = options.question([*objects, *(Placed(each, LIVE) for each in templates)], classes)
    if not not_read:
        question = replace(question, known_from="the manifests or the cluster")
    return _answered(options, snapshot.scheduler, question, (*snapshot.notices, *not_read))


def _answered(options: _Options, scheduler: Scheduler, question: FitQuestion, notices: tuple[str, ...]) -> FitDocument:
    template = _template(options, scheduler)
    question = replace(question, template=template, max_new=options.max_new if template is not None else 0)
    request, own = read_question(question, scheduler.decoded)
    return fit_document(scheduler, request, _STEPS, (*notices, *own))


def _template(options: _Options, scheduler: Scheduler) -> NodeTemplate | None:
    name = options.node_template
    if not name:
        return None
    if Path(name).is_file():
        return read_template(_template_objects(name), scheduler.decoded)
    found = NodeTemplate.of_node(scheduler.context.cache.columns, name)
    if found is None:
        raise ConfigError([Problem("--node-template", f'"{name}" is neither a file nor a node of the cluster')])
    return found


_STYLES = {
    FitVerdict.FITS_NOW: "green",
    FitVerdict.FITS_AFTER_EVICTIONS: "yellow",
    FitVerdict.FITS_WITH_NEW_NODES: "yellow",
    FitVerdict.DOES_NOT_FIT: "yellow",
    FitVerdict.IMPOSSIBLE: "red",
    FitVerdict.GAVE_UP: "magenta",
}
_SHOWN = 50


def _sections(document: FitDocument) -> Iterator[RenderableType]:
    yield Text(capitalized(document.headline), style=f"bold {_STYLES[document.verdict]}")
    if document.placed:
        yield Group(Text("Nodes", style="bold"), _nodes(document))
    for group in document.groups:
        yield Text(f"Group {group.name} is in {group.domain}")
    if document.evictions is not None:
        yield from _evictions(document)
    if document.new_nodes is not None:
        yield Text.assemble(("New nodes  ", "bold"), _new_nodes(document))
    if document.unplaced:
        yield _unplaced(document)
    for notice in document.notices:
        yield Text(f"Note: {notice}", style="dim")


def _nodes(document: FitDocument) -> RenderableType:
    if len(document.placed) <= _SHOWN:
        return table_of(("POD", "NODE"), map(astuple, document.placed))
    counts = sorted(Counter(each.node for each in document.placed).items(), key=lambda pair: (-pair[1], pair[0]))
    others = counts[_SHOWN:]
    more = [(f"{len(others)} more nodes", sum(count for _, count in others))] if others else []
    return table_of(("NODE", "PODS"), [*counts[:_SHOWN], *more])


def _unplaced(document: FitDocument) -> RenderableType:
    """Return what has no node now; items with the same reason are one row."""
    names: dict[tuple[str, str], list[str]] = {}
    for item in document.unplaced:
        names.setdefault((item.kind, item.message), []).append(item.name)
    rows = ((kind, listed(items, 1), message) for (kind, message), items in islice(names.items(), _SHOWN))
    return table_of(("KIND", "NAME", "WHY IT DOES NOT FIT NOW"), rows)


def _evictions(document: FitDocument) -> Iterator[RenderableType]:
    found = document.evictions
    assert found is not None
    text = f"{counted(found.pods, 'pod')} would be evicted"
    if found.awaited:
        text += f"; terminating pods that must end: {found.awaited}"
    if found.pdb_violations:
        text += f"; PodDisruptionBudget violations: {found.pdb_violations}"
    yield Text.assemble(("Evictions  ", "bold"), text)
    if found.victims:
        rows = ((f"{each.namespace}/{each.name}", each.priority) for each in found.victims[:_SHOWN])
        yield table_of(("VICTIM", "PRIORITY"), rows)
    hidden = found.pods - len(found.victims)
    if hidden:
        yield Text(f"Victims in namespaces in which you may not list pods: {hidden}", style="dim")


def _new_nodes(document: FitDocument) -> str:
    found = document.new_nodes
    assert found is not None
    if found.count is not None:
        return f"the least number with which all pods fit is {found.count}"
    if found.at_least is None:
        return "no number of them helps"
    if found.at_least > found.tried:
        return f"at least {found.at_least} are needed, and at most {found.tried} are allowed; raise --max-new"
    return f"up to {found.tried} do not help, or were not tried"


RENDERERS = report_renderers(_sections)
