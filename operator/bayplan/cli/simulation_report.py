"""Renders the result of a simulation as tables, JSON, YAML and HTML.

Tables start with the summary. A list of more than :data:`SHORT_LIST` rows is printed on request only, because a real
cluster has thousands of pods.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.explanation.device_rendering import device_sections
from bayplan.explanation.gang_rendering import nearest_place
from bayplan.explanation.unscheduled_pods import EqualPods, ExplainedPods
from bayplan.page.report_documents import ReportDocuments
from bayplan.page.report_file import report_of
from bayplan.simulation.gang_placements import GangPlacement
from bayplan.simulation.node_usage import (
    PODS,
    NodeUsage,
    ResourceUsage,
    amount,
    cores,
    devices_title,
    gibibytes,
    share,
)
from bayplan.simulation.packing import Packing
from bayplan.simulation.rejection_causes import RejectionCause, rejection_causes
from bayplan.simulation.simulation import PodPlacement, SimulationResult, Verdict
from bayplan.texts.document_formats import PIPED_WIDTH, printable_document
from bayplan.texts.printable import printable_json, printable_record, printable_yaml
from bayplan.texts.tables import text_of
from scheduler_core.model.pod_requests import CPU, MEMORY

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


def as_document(result: SimulationResult, claims: ExplainedPods | None = None) -> dict[str, Any]:
    """Return a result as plain JSON types; CPU in millicores, everything else in whole units.

    Args:
        claims: Explanations of pods whose claims cannot be allocated.
    """
    return {
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "schedulerName": pod.profile,
                "verdict": pod.verdict.value,
                "node": pod.node or None,
                "reason": pod.reason or None,
                "attempts": pod.attempts,
            }
            for pod in result.pods
        ],
        "nodes": [
            {
                "name": node.name,
                "pods": node.pods,
                "allowedPods": node.allowed_pods,
                "cpuMilli": node.cpu_milli,
                "allocatableCpuMilli": node.allocatable_cpu_milli,
                "memoryBytes": node.memory_bytes,
                "allocatableMemoryBytes": node.allocatable_memory_bytes,
                "otherResources": _amounts(node.others),
                "devices": _devices(node.devices),
            }
            for node in result.nodes
        ],
        "gangs": [
            {
                "namespace": gang.namespace,
                "name": gang.name,
                "api": gang.api,
                "minMember": gang.min_member,
                "members": gang.members,
                "placed": gang.placed,
                "domain": gang.domain or None,
                "phase": gang.phase,
                "reason": gang.reason or None,
            }
            for gang in result.gangs
        ],
        "summary": {
            "placed": result.count(Verdict.PLACED),
            "unschedulable": result.count(Verdict.UNSCHEDULABLE),
            "gated": result.count(Verdict.GATED),
            "noProfile": result.count(Verdict.NO_PROFILE),
            "errors": result.count(Verdict.ERROR),
            "running": result.running,
            "resources": _totals(result.packing),
            "devices": _devices(result.packing.devices),
            "causes": [
                {"verdict": cause.verdict.value, "cause": cause.text, "pods": cause.pods, "example": cause.example}
                for cause in rejection_causes(result.pods)
            ],
        },
        "claims": msgspec.to_builtins(claims or ExplainedPods()),
        "notices": list(result.notices),
    }


def _amounts(usages: Sequence[ResourceUsage]) -> dict[str, dict[str, int]]:
    return {usage.name: {"requested": usage.requested, "allocatable": usage.allocatable} for usage in usages}


def _totals(packing: Packing) -> dict[str, dict[str, int | float | None]]:
    return {
        name: {
            **amounts,
            "largestFreeOnOneNode": packing.largest_free.get(name, 0),
            "unusableShareOfFree": packing.unusable.get(name),
            "imbalance": packing.imbalance.get(name),
        }
        for name, amounts in _amounts(packing.usages).items()
    }


def _devices(usages: Sequence[ResourceUsage]) -> dict[str, dict[str, int]]:
    return {usage.name: {"inUse": usage.requested, "published": usage.allocatable} for usage in usages}


def as_json(result: SimulationResult, claims: ExplainedPods | None = None) -> str:
    """Return a result as indented JSON."""
    return printable_json(json.dumps(as_document(result, claims), indent=2))


def as_yaml(result: SimulationResult, claims: ExplainedPods | None = None) -> str:
    """Return a result as YAML."""
    return printable_yaml(as_document(result, claims), PIPED_WIDTH)


def as_table(result: SimulationResult, lists: Lists | None = None, claims: ExplainedPods | None = None) -> str:
    """Return a summary, and tables of pods, gangs and nodes if they are short or requested.

    Args:
        lists: Lists to print even if they are long; none by default.
        claims: Explanations of pods whose claims cannot be allocated.

    Returns:
        Text with the width and colours of the terminal; without a terminal plain text, each row on one line.
    """
    return text_of(_sections(result, lists, claims, _EXPLAINED_IN_TABLES))


def as_html(
    result: SimulationResult, lists: Lists | None, claims: ExplainedPods | None, documents: ReportDocuments
) -> str:
    """Return a report with panels of the page, and with what :func:`as_table` prints and the notices as tables."""
    sections = _sections(result, lists, claims, sys.maxsize)
    if result.notices:
        sections.append(Group(Text("Notes", style="bold"), *map(Text, result.notices)))
    return report_of("Simulation", documents, sections)


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
    table = _table()
    table.add_column("RESOURCE", overflow="fold")
    for heading in ("REQUESTED", "ALLOCATABLE", "", "LARGEST FREE", "UNUSABLE"):
        table.add_column(heading, justify="right", no_wrap=True)
    resources = [(usage.name, usage) for usage in packing.usages if usage.name in _BASIC or usage.is_notable]
    devices = [(devices_title(usage.name), usage) for usage in packing.devices]
    for title, usage in (*resources, *devices):
        unusable = packing.unusable.get(title)
        table.add_row(
            _cell(title),
            amount(title, usage.requested),
            amount(title, usage.allocatable),
            share(usage.requested, usage.allocatable),
            amount(title, packing.largest_free[title]) if title in packing.largest_free else "-",
            "-" if unusable is None else f"{100 * unusable:.0f}%",
        )
    return table


def _cause_table(causes: Sequence[RejectionCause]) -> Table:
    table = _table()
    table.add_column("UNSCHEDULED", justify="right", no_wrap=True)
    table.add_column("CAUSE", overflow="fold")
    table.add_column("EXAMPLE", overflow="fold")
    for cause in causes:
        table.add_row(Text(str(cause.pods), style=_STYLES[cause.verdict]), _cell(cause.text), _cell(cause.example))
    return table


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
    table = _table()
    table.add_column("POD", overflow="fold")
    table.add_column("PROFILE", overflow="fold")
    table.add_column("NODE", overflow="fold")
    table.add_column("REASON", overflow="fold", ratio=1)
    for pod in pods:
        node = _cell(pod.node or "-", _STYLES[pod.verdict])
        table.add_row(_cell(f"{pod.namespace}/{pod.name}"), _cell(pod.profile), node, _cell(pod.reason))
    return table


def _gang_table(gangs: Sequence[GangPlacement]) -> Table:
    table = _table()
    table.add_column("GANG", overflow="fold")
    for heading in ("NEEDED", "MEMBERS", "PLACED"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("DOMAIN", overflow="fold")
    table.add_column("REASON", overflow="fold", ratio=1)
    for gang in gangs:
        placed = Text(str(gang.placed), style="yellow" if gang.reason else "green")
        counts = (str(gang.min_member), str(gang.members))
        name, domain = _cell(f"{gang.namespace}/{gang.name}"), _cell(gang.domain or "-")
        table.add_row(name, *counts, placed, domain, _cell(gang.reason))
    return table


def _node_table(nodes: Sequence[NodeUsage]) -> Table:
    table = _table()
    table.add_column("NODE", overflow="fold")
    for heading in ("PODS", "CPU", "", "MEMORY", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    others = [
        ", ".join(
            _of_allocatable(title, usage)
            for title, usage in node.by_resource.items()
            if title not in _BASIC and (title != usage.name or usage.is_notable)
        )
        for node in nodes
    ]
    if any(others):
        table.add_column(
            "OTHER RESOURCES, DEVICES" if any(node.devices for node in nodes) else "OTHER RESOURCES", overflow="fold"
        )
    for node, other in zip(nodes, others, strict=True):
        cells: list[RenderableType] = [
            _cell(node.name),
            f"{node.pods}/{node.allowed_pods}",
            f"{cores(node.cpu_milli)}/{cores(node.allocatable_cpu_milli)}",
            share(node.cpu_milli, node.allocatable_cpu_milli),
            f"{gibibytes(node.memory_bytes)}/{gibibytes(node.allocatable_memory_bytes)}Gi",
            share(node.memory_bytes, node.allocatable_memory_bytes),
        ]
        if any(others):
            cells.append(_cell(other))
        table.add_row(*cells)
    return table


def _of_allocatable(title: str, usage: ResourceUsage) -> str:
    return f"{title} {amount(title, usage.requested)}/{amount(title, usage.allocatable)}"


def _cell(text: str, style: str = "") -> Text:
    """Return the text of a cell; a text with line breaks must not look like several rows."""
    return Text(printable_record(text), style=style)


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def summary(result: SimulationResult) -> str:
    """Return the summary of a result in one line."""
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
