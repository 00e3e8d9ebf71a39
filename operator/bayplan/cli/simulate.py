"""``bayplan simulate``: options and exit codes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import click
import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command, report_head, tie_and_sampling_options
from bayplan.explanation.building import EqualPods, ExplainedPods, explain_unscheduled, is_rejected_for_devices
from bayplan.explanation.rendering import device_sections, nearest_place
from bayplan.page.page_sources import Commands
from bayplan.page.report_documents import ReportDocuments, profile_revisions, simulated_documents, with_packing
from bayplan.page.report_file import report_of
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.simulation.packing import (
    DeviceUsage,
    NodeUsage,
    Packing,
    ResourceTotal,
    ResourceUsage,
    devices_title,
    is_notable,
    share,
)
from bayplan.simulation.simulation import (
    GangPlacement,
    PodPlacement,
    RejectionCause,
    SimulationOptions,
    SimulationResult,
    Verdict,
    read_cluster,
    rejection_causes,
)
from bayplan.simulation.simulation import simulate as run_simulation
from bayplan.texts.document_formats import (
    PIPED_WIDTH,
    printable_document,
    printable_json,
    printable_record,
    printable_yaml,
)
from bayplan.texts.report_sections import NO_HEAD, ReportHead, table_of, text_of
from scheduler_core.model.pod_requests import CPU, MEMORY, PODS, amount_text
from scheduler_core.scheduler import Scheduler

SHORT_LIST = 50
"""Rows up to which a list is printed without being requested."""

_CAUSES = 20
_EXPLAINED_IN_TABLES = 5
_BASIC = (PODS, CPU, MEMORY)
_STYLES = {
    Verdict.PLACED: "green",
    Verdict.UNSCHEDULABLE: "yellow",
    Verdict.GATED: "cyan",
    Verdict.NO_PROFILE: "magenta",
    Verdict.ERROR: "red",
}


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists to print even if they are long."""

    pods: bool = False
    gangs: bool = False
    nodes: bool = False


class SimulationSummary(Struct, frozen=True, rename="camel"):
    """Numbers of pods by verdict, amounts of the cluster, and causes for which pods are not scheduled."""

    placed: int
    unschedulable: int
    gated: int
    no_profile: int
    errors: int
    running: int
    resources: dict[str, ResourceTotal]
    devices: dict[str, DeviceUsage]
    causes: tuple[RejectionCause, ...]


class SimulationDocument(Struct, frozen=True):
    """Result of a simulation, with claims that cannot be allocated; CPU in millicores, all else in whole units."""

    pods: tuple[PodPlacement, ...]
    nodes: tuple[NodeUsage, ...]
    gangs: tuple[GangPlacement, ...]
    summary: SimulationSummary
    claims: ExplainedPods
    notices: tuple[str, ...]


def as_document(result: SimulationResult, claims: ExplainedPods | None = None) -> SimulationDocument:
    summed = SimulationSummary(
        placed=result.count(Verdict.PLACED),
        unschedulable=result.count(Verdict.UNSCHEDULABLE),
        gated=result.count(Verdict.GATED),
        no_profile=result.count(Verdict.NO_PROFILE),
        errors=result.count(Verdict.ERROR),
        running=result.running,
        resources=result.packing.resources,
        devices=result.packing.devices,
        causes=rejection_causes(result.pods),
    )
    return SimulationDocument(
        result.pods, result.nodes, result.gangs, summed, claims or ExplainedPods(), result.notices
    )


def as_table(result: SimulationResult, lists: Lists | None = None, claims: ExplainedPods | None = None) -> str:
    """Return a summary, and tables of pods, gangs and nodes if they are short or requested.

    Returns:
        Text with the width and colours of the terminal; without a terminal plain text, each row on one line.
    """
    return text_of(_sections(result, lists, claims, _EXPLAINED_IN_TABLES))


def as_html(
    result: SimulationResult,
    lists: Lists | None,
    claims: ExplainedPods | None,
    documents: ReportDocuments,
    head: ReportHead = NO_HEAD,
) -> str:
    """Return a report with panels of the page, and with what :func:`as_table` prints and the notices as tables."""
    sections = _sections(result, lists, claims, sys.maxsize)
    if result.notices:
        sections.append(Group(Text("Notes", style="bold"), *map(Text, result.notices)))
    return report_of("Simulation", with_packing(documents, result.packing.resources), sections, head)


def _sections(
    result: SimulationResult, lists: Lists | None, claims: ExplainedPods | None, explained: int
) -> list[RenderableType]:
    requested = lists or Lists()
    causes = rejection_causes(result.pods)
    sections: list[RenderableType] = [Text(summary(result))]
    if result.nodes:
        sections.append(_resource_table(result.packing))
    if causes:
        sections.append(_cause_table(causes[:_CAUSES]))
    if len(causes) > _CAUSES:
        rest = sum(cause.pods for cause in causes[_CAUSES:])
        sections.append(Text(f"{len(causes) - _CAUSES} more causes, of {rest} pods, are in -o json"))
    if claims is not None:
        sections += _claim_sections(printable_document(claims), explained)
    hidden = []
    if result.pods and (requested.pods or len(result.pods) <= SHORT_LIST):
        sections.append(_pod_table(result.pods))
    elif result.pods:
        hidden.append(f"{len(result.pods)} pods (--pods)")
    if result.gangs and (requested.gangs or len(result.gangs) <= SHORT_LIST):
        sections.append(_gang_table(result.gangs))
    elif result.gangs:
        hidden.append(f"{len(result.gangs)} gangs (--gangs)")
    if result.nodes and (requested.nodes or len(result.nodes) <= SHORT_LIST):
        sections.append(_node_table(result.nodes))
    elif result.nodes:
        hidden.append(f"{len(result.nodes)} nodes (--nodes)")
    if hidden:
        sections.append(Text(f"not listed: {', '.join(hidden)}", style="dim"))
    return sections


def _resource_table(packing: Packing) -> Table:
    devices = {devices_title(driver): usage for driver, usage in packing.devices.items()}
    rows = []
    for title, usage in (packing.resources | devices).items():
        if title not in _BASIC and not is_notable(title, usage):
            continue
        unusable = usage.unusable_share_of_free if isinstance(usage, ResourceTotal) else None
        amounts = (amount_text(title, usage.requested), amount_text(title, usage.allocatable))
        largest = amount_text(title, packing.largest_free[title]) if title in packing.largest_free else "-"
        percent = "-" if unusable is None else f"{100 * unusable:.0f}%"
        rows.append((_cell(title), *amounts, share(usage.requested, usage.allocatable), largest, percent))
    headings = ("RESOURCE", "REQUESTED", "ALLOCATABLE", "", "LARGEST FREE", "UNUSABLE")
    return _table(headings, rows, right=range(1, 6))


def _cause_table(causes: Sequence[RejectionCause]) -> Table:
    rows = (
        (Text(str(cause.pods), style=_STYLES[cause.verdict]), _cell(cause.text), _cell(cause.example))
        for cause in causes
    )
    return _table(("UNSCHEDULED", "CAUSE", "EXAMPLE"), rows, right=range(1))


def _claim_sections(claims: ExplainedPods, limit: int) -> Iterator[RenderableType]:
    for each in claims.groups[:limit]:
        parts = _claim_parts(each)
        if parts:
            more = f" and {each.pods - 1} equal pods" if each.pods > 2 else " and 1 equal pod" if each.pods == 2 else ""
            name = f"{each.explanation.namespace}/{each.explanation.name}"
            yield Group(Text(f"Why the claims of {name}{more} cannot be allocated", style="bold underline"), *parts)
    in_documents = sum(each.pods for each in claims.groups[limit:])
    if in_documents:
        yield Text(f"the claims of {in_documents} more pods are explained in -o json and -o html", style="dim")
    if claims.omitted:
        yield Text(f"the claims of {claims.omitted} more pods are explained by: bayplan explain -f", style="dim")


def _claim_parts(each: EqualPods) -> list[RenderableType]:
    """Return what bayplan explain prints about devices: of the pod alone, or of the next member of its gang."""
    explanation = each.explanation
    if explanation.devices is not None:
        return list(device_sections(explanation.devices))
    if explanation.gang is None or not explanation.gang.places:
        return []
    return list(nearest_place(explanation.gang.places[0]))


def _pod_table(pods: Sequence[PodPlacement]) -> Table:
    rows = []
    for pod in pods:
        node = _cell(pod.node or "-", _STYLES[pod.verdict])
        rows.append((_cell(f"{pod.namespace}/{pod.name}"), _cell(pod.profile), node, _cell(pod.reason or "")))
    return _table(("POD", "PROFILE", "NODE", "REASON"), rows)


def _gang_table(gangs: Sequence[GangPlacement]) -> Table:
    rows = []
    for gang in gangs:
        placed = Text(str(gang.placed), style="yellow" if gang.reason else "green")
        name, domain = _cell(f"{gang.namespace}/{gang.name}"), _cell(gang.domain or "-")
        rows.append((name, gang.min_member, gang.members, placed, domain, _cell(gang.reason or "")))
    return _table(("GANG", "NEEDED", "MEMBERS", "PLACED", "DOMAIN", "REASON"), rows, right=range(1, 4))


def _node_table(nodes: Sequence[NodeUsage]) -> Table:
    others = [
        ", ".join(
            _of_allocatable(title, usage)
            for title, usage in node.by_title.items()
            if title not in _BASIC and is_notable(title, usage)
        )
        for node in nodes
    ]
    rows = [
        [
            _cell(node.name),
            f"{node.pods}/{node.allowed_pods}",
            f"{amount_text(CPU, node.cpu_milli)}/{amount_text(CPU, node.allocatable_cpu_milli)}",
            share(node.cpu_milli, node.allocatable_cpu_milli),
            f"{amount_text(MEMORY, node.memory_bytes)}/{amount_text(MEMORY, node.allocatable_memory_bytes)}",
            share(node.memory_bytes, node.allocatable_memory_bytes),
            *([_cell(other)] if any(others) else ()),
        ]
        for node, other in zip(nodes, others, strict=True)
    ]
    last = "OTHER RESOURCES, DEVICES" if any(node.devices for node in nodes) else "OTHER RESOURCES"
    headings = ("NODE", "PODS", "CPU", "", "MEMORY", "", *([last] if any(others) else ()))
    return _table(headings, rows, right=range(1, 6))


def _of_allocatable(title: str, usage: ResourceUsage) -> str:
    return f"{title} {amount_text(title, usage.requested)}/{amount_text(title, usage.allocatable)}"


def _cell(text: str, style: str = "") -> Text:
    """Return the text of a cell; a text with line breaks must not look like several rows."""
    return Text(printable_record(text), style=style)


_table = partial(table_of, header_style="bold")


def summary(result: SimulationResult) -> str:
    placed, used = result.count(Verdict.PLACED), len({pod.node for pod in result.pods if pod.node})
    text = f"{placed} of {len(result.pods)} pods scheduled to {used} of {len(result.nodes)} nodes"
    if not result.pods:
        text = "no pending pods"
    scheduled = sum(not gang.reason for gang in result.gangs)
    if result.gangs:
        text += f"; {scheduled} of {len(result.gangs)} gangs scheduled"
    rest = [
        f"{count} {words}"
        for verdict, words in (
            (Verdict.UNSCHEDULABLE, "unschedulable"),
            (Verdict.GATED, "gated"),
            (Verdict.NO_PROFILE, "without a profile"),
            (Verdict.ERROR, "with errors"),
        )
        if (count := result.count(verdict))
    ]
    if rest:
        text += f"; {', '.join(rest)}"
    if result.running:
        text += f"; {result.running} already running"
    return text


_EXPLAINED = 20
EXIT_UNDECIDED = 1
EXIT_UNSCHEDULABLE = 3


@click.command(short_help="Schedule the pods in files, without a cluster.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@tie_and_sampling_options
@click.option("--pods", is_flag=True, help=f"List all pods. Without it: only if there are at most {SHORT_LIST}.")
@click.option("--gangs", is_flag=True, help=f"List all gangs. Without it: only if there are at most {SHORT_LIST}.")
@click.option("--nodes", is_flag=True, help=f"List all nodes. Without it: only if there are at most {SHORT_LIST}.")
@feature_gates_option("Feature gates of the scheduler.")
@allow_invalid_option("")
@click.option("--fail-on-unschedulable", is_flag=True, help="Exit with code 3 if a pod is not scheduled; for CI.")
@click.pass_context
def simulate(
    context: click.Context,
    *,
    files: tuple[str, ...],
    output: str,
    seed: int,
    percentage: int | None,
    pods: bool,
    gangs: bool,
    nodes: bool,
    feature_gates: str,
    allow_invalid: bool,
    fail_on_unschedulable: bool,
) -> None:
    """Schedule the pods in FILEs to the nodes in FILEs, with the same scheduler as in a cluster.

    Files contain YAML or JSON: nodes, pods, volumes, claims and storage classes, services, owners of pods, namespaces,
    PodDisruptionBudgets, PriorityClasses, PodGroups of all three APIs, SchedulerProfiles, PluginConfigs, kube-scheduler
    configurations, and lists of them as "kubectl get -o yaml" prints them; - is standard input. Without any profile
    the default profile serves the pods of default-scheduler. Objects are validated as by an API server v1.37: unknown
    fields, wrong values and other versions of these kinds are errors.

    The output starts with a summary: scheduled pods; requested and allocatable amounts of all nodes by resource, and
    devices in use by driver; fragmentation; and the causes for which pods were not scheduled. LARGEST FREE is the
    largest free amount on one node. UNUSABLE is the share of the free amount on nodes where a pod does not fit,
    averaged over the decided pods that request the resource. For pods whose resource claims cannot be allocated it has
    what `bayplan explain` prints about devices, once for pods with equal specs. Lists of pods, gangs and nodes follow
    if they are short; --pods, --gangs and --nodes print long ones. With -o json and -o yaml everything is printed.
    With -o html it is one file to attach to a ticket, which needs no server: the page's panels of pending pods, gangs
    and nodes, explanations of the oldest attempted pod of each cause and of ten gangs, and below them the tables, which
    need no script.

    Claims are bound as a volume controller and provisioners would bind them, immediately and with unlimited capacity. A
    PodDisruptionBudget allows the disruptions in its status, none without a status.

    Exit codes: 0 success, 1 a plugin failed, 2 the files are invalid, 3 see --fail-on-unschedulable.
    """
    gates = FeatureGates(parse_feature_gates(feature_gates))
    options = [option for file in files for option in ("-f", file)]
    options += ["--others-placed", *(["--seed", str(seed)] if seed else [])]
    options += ["--feature-gates", feature_gates] if feature_gates else []
    options += ["--allow-invalid"] if allow_invalid else []
    cluster = read_cluster(files, allow_invalid=allow_invalid)
    given = {(pod.metadata.namespace, pod.metadata.name): pod for pod in cluster.pods}
    claims = ExplainedPods()

    documents, profiles = ReportDocuments(), list[str]()

    async def read_end(scheduler: Scheduler, placements: Sequence[PodPlacement]) -> None:
        nonlocal claims, documents, profiles
        waiting = (given[each.namespace, each.name] for each in placements if not each.node)
        rejected = [pod for pod in waiting if is_rejected_for_devices(scheduler, pod)]
        claims = explain_unscheduled(scheduler, rejected, _EXPLAINED)
        if output == "html":
            documents = await simulated_documents(scheduler, _commands(context, options))
            profiles = profile_revisions(scheduler)

    result = run_simulation(cluster, SimulationOptions(seed, percentage, gates=gates), inspect=read_end)
    if output == "json":
        click.echo(printable_json(json.dumps(msgspec.to_builtins(as_document(result, claims)), indent=2)))
    elif output == "yaml":
        click.echo(printable_yaml(msgspec.to_builtins(as_document(result, claims)), PIPED_WIDTH), nl=False)
    elif output == "html":
        head = report_head(context, summary(result), profiles=profiles)
        click.echo(as_html(result, Lists(pods, gangs, nodes), claims, documents, head), nl=False)
    else:
        for notice in result.notices:
            click.echo(printable_record(f"note: {notice}"), err=True)
        click.echo(as_table(result, Lists(pods, gangs, nodes), claims))
    if result.count(Verdict.ERROR):
        context.exit(EXIT_UNDECIDED)
    if fail_on_unschedulable and result.count(Verdict.PLACED) < len(result.pods):
        context.exit(EXIT_UNSCHEDULABLE)


def _commands(context: click.Context, options: Sequence[str]) -> Commands:
    """Return the commands that give the same as the panels of a report, from the options of ``bayplan explain``."""

    def explain(namespace: str, name: str) -> str:
        return shlex.join(["bayplan", "explain", *options, "-n", namespace, name])

    return Commands.of_simulation(given_command(context), explain)
