"""A simulation's result as a table, as JSON and as YAML.

Owns the wording and the units that people see. It must not know how the result came about.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.document_output import PIPED_WIDTH
from bayplan.printable import printable_json, printable_record, printable_yaml
from bayplan.simulation.gang_placements import GangPlacement
from bayplan.simulation.simulation import NodeUsage, PodPlacement, SimulationResult, Verdict
from bayplan.text_output import text_of

_GIBIBYTE = 1 << 30
_STYLES = {
    Verdict.PLACED: "green",
    Verdict.UNSCHEDULABLE: "yellow",
    Verdict.GATED: "cyan",
    Verdict.NO_PROFILE: "magenta",
    Verdict.ERROR: "red",
}


def as_document(result: SimulationResult) -> dict[str, Any]:
    """Give a result as plain JSON types; CPU in milli, memory in bytes."""
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
        },
        "notices": list(result.notices),
    }


def as_json(result: SimulationResult) -> str:
    """Give a result as indented JSON."""
    return printable_json(json.dumps(as_document(result), indent=2))


def as_yaml(result: SimulationResult) -> str:
    """Give a result as YAML."""
    return printable_yaml(as_document(result), PIPED_WIDTH)


def as_table(result: SimulationResult) -> str:
    """Give a result as tables of pods, gangs and nodes and one line that sums it up.

    Returns:
        Text as wide as the terminal and coloured where it is one, else one line for each pod and plain.
    """
    sections: list[RenderableType] = []
    if result.pods:
        sections.append(_pod_table(result.pods))
    if result.gangs:
        sections.append(_gang_table(result.gangs))
    if result.nodes:
        sections.append(_node_table(result.nodes))
    return text_of([*sections, Text(summary(result))])


def _pod_table(pods: Sequence[PodPlacement]) -> Table:
    table = _table()
    table.add_column("POD", overflow="fold")
    table.add_column("PROFILE", overflow="fold")
    table.add_column("NODE", overflow="fold")
    table.add_column("WHY NOT", overflow="fold", ratio=1)
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
    table.add_column("WHY NOT", overflow="fold", ratio=1)
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
    for node in nodes:
        table.add_row(
            _cell(node.name),
            f"{node.pods}/{node.allowed_pods}",
            f"{_cores(node.cpu_milli)}/{_cores(node.allocatable_cpu_milli)}",
            _share(node.cpu_milli, node.allocatable_cpu_milli),
            f"{_gibibytes(node.memory_bytes)}/{_gibibytes(node.allocatable_memory_bytes)}Gi",
            _share(node.memory_bytes, node.allocatable_memory_bytes),
        )
    return table


def _cell(text: str, style: str = "") -> Text:
    """A text of others; one of several lines does not look like several rows."""
    return Text(printable_record(text), style=style)


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _cores(milli: int) -> str:
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


def _gibibytes(amount: int) -> str:
    return f"{amount / _GIBIBYTE:.1f}".removesuffix(".0")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def summary(result: SimulationResult) -> str:
    """Sum a result up in one line."""
    placed, used = result.count(Verdict.PLACED), len({pod.node for pod in result.pods if pod.node})
    text = f"{placed} of {len(result.pods)} pods placed on {used} of {len(result.nodes)} nodes"
    if not result.pods:
        text = "no pod waits for a node"
    whole = sum(not gang.reason for gang in result.gangs)
    if result.gangs:
        text += f"; {whole} of {len(result.gangs)} gangs whole"
    rest = [
        f"{count} {words}"
        for verdict, words in (
            (Verdict.UNSCHEDULABLE, "fit nowhere"),
            (Verdict.GATED, "gated"),
            (Verdict.NO_PROFILE, "without a profile"),
            (Verdict.ERROR, "undecided, see WHY NOT"),
        )
        if (count := result.count(verdict))
    ]
    if rest:
        text += f"; {', '.join(rest)}"
    if result.running:
        text += f"; {result.running} were running before"
    return text
