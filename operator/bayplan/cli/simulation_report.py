"""Renders the result of a simulation as tables, JSON and YAML.

Tables start with the summary. A list of more than :data:`SHORT_LIST` rows is printed on request only, because a real
cluster has thousands of pods.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.simulation.gang_placements import GangPlacement
from bayplan.simulation.node_usage import PODS, NodeUsage, ResourceUsage, amount, cores, gibibytes, share, total_usage
from bayplan.simulation.rejection_causes import RejectionCause, rejection_causes
from bayplan.simulation.simulation import PodPlacement, SimulationResult, Verdict
from bayplan.texts.document_formats import PIPED_WIDTH
from bayplan.texts.printable import printable_json, printable_record, printable_yaml
from bayplan.texts.tables import text_of
from scheduler_core.model.pod_requests import CPU, MEMORY

SHORT_LIST = 50
"""Rows up to which a list is printed without being requested."""

_CAUSES = 20
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


def as_document(result: SimulationResult) -> dict[str, Any]:
    """Return a result as plain JSON types; CPU in millicores, everything else in whole units."""
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
            "resources": _amounts(total_usage(result.nodes)),
            "causes": [
                {"verdict": cause.verdict.value, "cause": cause.text, "pods": cause.pods, "example": cause.example}
                for cause in rejection_causes(result.pods)
            ],
        },
        "notices": list(result.notices),
    }


def _amounts(usages: Sequence[ResourceUsage]) -> dict[str, dict[str, int]]:
    return {usage.name: {"requested": usage.requested, "allocatable": usage.allocatable} for usage in usages}


def as_json(result: SimulationResult) -> str:
    """Return a result as indented JSON."""
    return printable_json(json.dumps(as_document(result), indent=2))


def as_yaml(result: SimulationResult) -> str:
    """Return a result as YAML."""
    return printable_yaml(as_document(result), PIPED_WIDTH)


def as_table(result: SimulationResult, lists: Lists | None = None) -> str:
    """Return a summary, and tables of pods, gangs and nodes if they are short or requested.

    Args:
        result: The result.
        lists: Lists to print even if they are long; none by default.

    Returns:
        Text with the width and colours of the terminal; without a terminal plain text, each row on one line.
    """
    requested = lists or Lists()
    causes = rejection_causes(result.pods)
    usages = [usage for usage in total_usage(result.nodes) if usage.name in _BASIC or usage.is_notable]
    sections: list[RenderableType] = [Text(summary(result))]
    if usages:
        sections.append(_resource_table(usages))
    if causes:
        sections.append(_cause_table(causes[:_CAUSES]))
    if len(causes) > _CAUSES:
        rest = sum(cause.pods for cause in causes[_CAUSES:])
        sections.append(Text(f"{len(causes) - _CAUSES} more causes, of {rest} pods, are in -o json"))
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
    return text_of(sections)


def _resource_table(usages: Sequence[ResourceUsage]) -> Table:
    table = _table()
    table.add_column("RESOURCE", overflow="fold")
    for heading in ("REQUESTED", "ALLOCATABLE", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for usage in usages:
        amounts = (amount(usage.name, usage.requested), amount(usage.name, usage.allocatable))
        table.add_row(_cell(usage.name), *amounts, share(usage.requested, usage.allocatable))
    return table


def _cause_table(causes: Sequence[RejectionCause]) -> Table:
    table = _table()
    table.add_column("UNSCHEDULED", justify="right", no_wrap=True)
    table.add_column("CAUSE", overflow="fold")
    table.add_column("EXAMPLE", overflow="fold")
    for cause in causes:
        table.add_row(Text(str(cause.pods), style=_STYLES[cause.verdict]), _cell(cause.text), _cell(cause.example))
    return table


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
    others = [", ".join(_of_allocatable(usage) for usage in node.others if usage.is_notable) for node in nodes]
    if any(others):
        table.add_column("OTHER RESOURCES", overflow="fold")
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


def _of_allocatable(usage: ResourceUsage) -> str:
    return f"{usage.name} {amount(usage.name, usage.requested)}/{amount(usage.name, usage.allocatable)}"


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
