"""Renders the answer to "would it fit?" as text, JSON and YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from bayplan.fit.documents import FitDocument
from bayplan.texts.document_formats import read_answer, renderers
from bayplan.texts.report_sections import plain_table, text_of
from scheduler_core.fit.answers import FitVerdict

_STYLES = {
    FitVerdict.FITS_NOW: "green",
    FitVerdict.FITS_AFTER_EVICTIONS: "yellow",
    FitVerdict.FITS_WITH_NEW_NODES: "yellow",
    FitVerdict.DOES_NOT_FIT: "yellow",
    FitVerdict.IMPOSSIBLE: "red",
    FitVerdict.GAVE_UP: "magenta",
}
_SHOWN = 50


def read_fit(answer: bytes) -> FitDocument:
    """Decode an answer of the operator.

    Raises:
        ServerUnavailableError: The response is not such an answer.
    """
    return read_answer(answer, FitDocument, "an answer to a fit request")


def _as_text(document: FitDocument) -> str:
    return text_of(_sections(document))


RENDERERS = renderers(_as_text)


def _sections(document: FitDocument) -> Iterator[RenderableType]:
    headline = document.headline[:1].upper() + document.headline[1:]
    yield Text(headline, style=f"bold {_STYLES[document.verdict]}")
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
        table = plain_table("POD", "NODE")
        for each in document.placed:
            table.add_row(Text(each.pod), Text(each.node))
        return table
    counts = sorted(Counter(each.node for each in document.placed).items(), key=lambda pair: (-pair[1], pair[0]))
    table = plain_table("NODE", "PODS")
    for node, count in counts[:_SHOWN]:
        table.add_row(Text(node), str(count))
    if len(counts) > _SHOWN:
        table.add_row(Text(f"{len(counts) - _SHOWN} more nodes"), str(sum(count for _, count in counts[_SHOWN:])))
    return table


def _unplaced(document: FitDocument) -> RenderableType:
    """Return what has no node now; items with the same reason are one row."""
    table = plain_table("KIND", "NAME", "WHY IT DOES NOT FIT NOW")
    names: dict[tuple[str, str], list[str]] = {}
    for item in document.unplaced:
        names.setdefault((item.kind, item.message), []).append(item.name)
    for (kind, message), items in list(names.items())[:_SHOWN]:
        more = f" and {len(items) - 1} more" if len(items) > 1 else ""
        table.add_row(kind, Text(f"{items[0]}{more}"), Text(message))
    return table


def _evictions(document: FitDocument) -> Iterator[RenderableType]:
    found = document.evictions
    assert found is not None
    text = "1 pod would be evicted" if found.pods == 1 else f"{found.pods} pods would be evicted"
    if found.awaited:
        text += f"; terminating pods that must end: {found.awaited}"
    if found.pdb_violations:
        text += f"; PodDisruptionBudget violations: {found.pdb_violations}"
    yield Text.assemble(("Evictions  ", "bold"), text)
    if found.victims:
        table = plain_table("VICTIM", "PRIORITY")
        for victim in found.victims[:_SHOWN]:
            table.add_row(Text(f"{victim.namespace}/{victim.name}"), str(victim.priority))
        yield table
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
