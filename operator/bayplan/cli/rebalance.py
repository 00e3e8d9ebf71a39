"""``bayplan rebalance``: which running pods to move so that nodes are empty, or a gang has room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from msgspec.structs import astuple
from rich.console import Group, RenderableType
from rich.text import Text

from bayplan.cli import report_head
from bayplan.cli.operator_location import ClusterChoice, kubeconfig_options
from bayplan.comparison import parse_label_query
from bayplan.explanation.building import named_gang
from bayplan.kube.http.connection import ApiConnection
from bayplan.rebalancing.plan_documents import PlanDocument, piece_of, plan_document
from bayplan.simulation.cluster_snapshot import take_snapshot
from bayplan.simulation.simulation import SimulationOptions, offline, read_cluster
from bayplan.texts.document_formats import capitalized, listed
from bayplan.texts.report_sections import page_of, report_renderers, table_of
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.selectors import LabelMatcher
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    Limits,
    MakeRoom,
    Objective,
    PlanState,
    RebalanceRequest,
    Scope,
    Spread,
)
from scheduler_core.scheduler import Scheduler

_STEPS = 10_000_000
"""Maximum number of steps in memory: about 100 s."""
EXIT_NO_MOVES = 10
EXIT_GAVE_UP = 14


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command; None and empty if not given."""

    files: tuple[str, ...]
    consolidate: bool
    drain: tuple[str, ...]
    drain_selector: str
    make_room: str
    defragment: str
    spread: bool
    namespaces: tuple[str, ...]
    profiles: tuple[str, ...]
    selector: str
    node_selector: str
    max_moves: int | None
    max_cost: int | None
    seed: int
    cluster: ClusterChoice

    def check(self) -> None:
        """Raise UsageError unless one objective is given, and one cluster."""
        objectives = (self.consolidate, self.drain or self.drain_selector, self.make_room, self.defragment, self.spread)
        if sum(map(bool, objectives)) != 1:
            raise click.UsageError(
                "specify one of --consolidate, --drain or --drain-selector, --make-room, --defragment and --spread"
            )
        if self.files:
            self.cluster.reject_with("-f")

    def request(self, scheduler: Scheduler) -> RebalanceRequest:
        """Return the request; raises ConfigError if a selector cannot be read, or a node or group does not exist."""
        scope = Scope(
            frozenset(self.profiles), frozenset(self.namespaces), _matcher(self.selector), _matcher(self.node_selector)
        )
        return RebalanceRequest(self._objective(scheduler), scope, Limits(self.max_moves, self.max_cost))

    def _objective(self, scheduler: Scheduler) -> Objective:
        if self.consolidate:
            return Consolidate()
        if self.spread:
            return Spread()
        if self.defragment:
            return _pieces(self.defragment)
        if self.make_room:
            return MakeRoom(_group(scheduler, self.make_room))
        nodes = scheduler.context.cache.columns
        missing = [name for name in self.drain if nodes.row_of(name) < 0]
        if missing:
            raise ConfigError([Problem("--drain", f"there is no node {listed(missing)}; correct the name")])
        return Drain(frozenset(self.drain), _matcher(self.drain_selector))


def _matcher(text: str) -> LabelMatcher | None:
    return parse_label_query(text) if text.strip() else None


def _pieces(text: str) -> Defragment:
    resource, _, amount = text.partition("=")
    found = piece_of(resource, amount)
    if found is None:
        raise ConfigError([Problem("--defragment", f'"{text}" must have the form nvidia.com/gpu=8')])
    return found


def _group(scheduler: Scheduler, name: str) -> GroupKey:
    namespace, slash, own = name.rpartition("/")
    gang = named_gang(scheduler.context, namespace if slash else "default", own)
    if gang is None or gang.group is None:
        raise ConfigError([Problem("--make-room", f'there is no PodGroup "{name}"; write NAMESPACE/NAME')])
    return gang.key


@click.command(short_help="Plan moves of running pods.")
@click.option("--dry-run", is_flag=True, help="Required: the command makes no moves.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Read the cluster from files.")
@click.option("--consolidate", is_flag=True, help="Empty as many nodes as possible.")
@click.option("--drain", multiple=True, metavar="NODE", help="Move the pods off this node; may be repeated.")
@click.option("--drain-selector", default="", metavar="LABELS", help="Move the pods off nodes with these labels.")
@click.option("--defragment", default="", metavar="RESOURCE=AMOUNT", help="Free pieces of this amount on single nodes.")
@click.option("--spread", is_flag=True, help="Repair topology spread constraints.")
@click.option("--make-room", default="", metavar="NAMESPACE/GANG", help="Make room for a gang that waits.")
@click.option(
    "-n", "--namespace", "namespaces", multiple=True,
    help="Namespace of the pods that may be moved; may be repeated.  [default: all]",
)  # fmt: skip
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME",
    help="Profile of the pods that may be moved; may be repeated.  [default: all]",
)  # fmt: skip
@click.option("-l", "--selector", default="", metavar="LABELS", help="Labels of the pods that may be moved.")
@click.option("--node-selector", default="", metavar="LABELS", help="Labels of the nodes that --consolidate may empty.")
@click.option("--max-moves", type=click.IntRange(1), help="Maximum number of moves.")
@click.option(
    "--max-cost", type=click.IntRange(1),
    help="Maximum sum of costs: 1 for each move, and the deletion cost of the pod.",
)  # fmt: skip
@kubeconfig_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed to resolve ties.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
def rebalance(*, dry_run: bool, output: str, **given: Any) -> None:
    """Plan which running pods to evict, and which node each replacement gets.

    Each destination is a node that all filters of the profile of the pod accept when all earlier moves are made. A move
    that gains nothing is left out. Left alone are pods without a controller, static pods and those of DaemonSets, pods
    with local volumes or with the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false", pods with
    resource claims that do not end with them, members of gangs, pods that are critical for the system, and pods whose
    PodDisruptionBudgets allow no disruption.

    The cluster is that of the kubeconfig, or the one in the files (-f), as for `bayplan simulate`. With -o html the
    plan is one file that needs no server.

    Exit codes: 0 there are moves, 10 no moves gain anything, 14 the search was given up; 1 and 2 for errors.
    """
    context, options = click.get_current_context(), _Options(**given)
    options.check()
    if not dry_run:
        raise click.UsageError("this command makes no moves; add --dry-run")
    document = _document(options)
    if output == "html":
        click.echo(page_of("Plan of moves", _sections(document), report_head(context, document.headline)), nl=False)
    else:
        click.echo(RENDERERS[output](document), nl=output != "yaml")
    if document.state is PlanState.GAVE_UP:
        context.exit(EXIT_GAVE_UP)
    context.exit(0 if document.moves else EXIT_NO_MOVES)


def _document(options: _Options) -> PlanDocument:
    settings = SimulationOptions(options.seed, plans_moves=True)

    async def from_files() -> PlanDocument:
        cluster = read_cluster(options.files, plans_moves=True)
        scheduler = offline(cluster, settings)
        return plan_document(scheduler, options.request(scheduler), _STEPS, cluster.notices)

    async def from_api_server(connection: ApiConnection) -> PlanDocument:
        snapshot = await take_snapshot(connection, settings.of_scheduler())
        return plan_document(snapshot.scheduler, options.request(snapshot.scheduler), _STEPS, tuple(snapshot.notices))

    if options.files:
        return asyncio.run(from_files())
    return options.cluster.run(from_api_server)


_SHOWN = 50


def _sections(document: PlanDocument) -> Iterator[RenderableType]:
    yield Text(capitalized(document.headline), style="bold green" if document.moves else "bold yellow")
    yield Text.assemble(("Objective  ", "bold"), document.objective)
    if document.moves:
        yield Group(Text(f"Moves (cost {document.cost})", style="bold"), _moves(document))
        yield Group(Text("Pods on nodes, before and after", style="bold"), _nodes(document))
    if document.room:
        yield Group(Text("Room for the gang after the moves", style="bold"), _room(document))
    if document.gain.nodes_emptied:
        yield Text.assemble(("Empty nodes  ", "bold"), listed(document.gain.nodes_emptied))
    if document.left_alone:
        yield Group(Text("Left alone", style="bold"), _left_alone(document))
    if document.moves and document.reason:
        yield Text(f"More moves may exist: {document.reason}", style="yellow")
    for notice in document.notices:
        yield Text(f"Note: {notice}", style="dim")


def _moves(document: PlanDocument) -> RenderableType:
    rows: list[tuple[object, ...]] = [
        (number, move.pod, move.source, move.target, move.cost)
        for number, move in enumerate(document.moves[:_SHOWN], 1)
    ]
    others = document.moves[_SHOWN:]
    if others:
        rows.append(("", f"{len(others)} more moves", "", "", sum(each.cost for each in others)))
    return table_of(("#", "POD", "FROM", "TO", "COST"), rows)


def _room(document: PlanDocument) -> RenderableType:
    return table_of(("POD", "NODE"), _shown([(each.pod, each.node) for each in document.room], "pods"))


def _nodes(document: PlanDocument) -> RenderableType:
    return table_of(("NODE", "BEFORE", "AFTER"), _shown(list(map(astuple, document.nodes)), "nodes"))


def _shown(rows: list[tuple[object, ...]], noun: str) -> list[tuple[object, ...]]:
    """Return the first rows, and the number of the others."""
    more = len(rows) - _SHOWN
    return [*rows[:_SHOWN], *([(f"{more} more {noun}",)] if more > 0 else ())]


def _left_alone(document: PlanDocument) -> RenderableType:
    rows = ((left.count, left.reason, ", ".join(left.pods)) for left in document.left_alone[:_SHOWN])
    return table_of(("PODS", "REASON", "SUCH AS"), rows)


RENDERERS = report_renderers(_sections)
