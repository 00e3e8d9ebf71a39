"""Renders the explanation of a pod as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.explanation.device_rendering import device_sections
from bayplan.explanation.gang_rendering import gang_sections
from bayplan.explanation.pod_model import Explanation, Preemption, Verdict
from bayplan.explanation.shared_rendering import events_table, nearest_table
from bayplan.texts.document_formats import read_answer, renderers
from bayplan.texts.tables import plain_table, text_of

_STYLES = {
    Verdict.FITS: "green",
    Verdict.PLACED: "green",
    Verdict.UNSCHEDULABLE: "yellow",
    Verdict.GATED: "cyan",
    Verdict.NO_PROFILE: "magenta",
    Verdict.ENDED: "dim",
    Verdict.ERROR: "red",
}


def read_explanation(answer: bytes) -> Explanation:
    """Decode the response of the operator's endpoint.

    Raises:
        ServerUnavailableError: The response is not an explanation.
    """
    return read_answer(answer, Explanation, "an explanation")


def page_title(explanation: Explanation) -> str:
    """Return the title of a page."""
    return f"Pod {explanation.namespace}/{explanation.name}"


def sections(explanation: Explanation) -> Iterator[RenderableType]:
    """Yield what people read, the headline first."""
    headline = explanation.headline[:1].upper() + explanation.headline[1:]
    yield Text(headline, style=f"bold {_STYLES[explanation.verdict]}")
    if explanation.rejections:
        yield Group(Text("Rejected by", style="bold"), _rejections(explanation))
    if explanation.devices is not None:
        yield from device_sections(explanation.devices)
    if explanation.nearest:
        yield Group(Text("Nearest misses", style="bold"), nearest_table(explanation.nearest))
    if explanation.scores:
        yield from _scores(explanation)
    if explanation.preemption is not None:
        yield Text.assemble(("Preemption  ", "bold"), _preemption(explanation.preemption))
    if explanation.unblocking:
        yield Group(Text("Events that would requeue it", style="bold"), events_table(explanation.unblocking))
    if explanation.gang is not None:
        yield from gang_sections(explanation.gang)
    for notice in explanation.notices:
        yield Text(f"Note: {notice}", style="dim")


def _as_text(explanation: Explanation) -> str:
    return text_of(sections(explanation))


RENDERERS = renderers(_as_text)


def _rejections(explanation: Explanation) -> Table:
    table = plain_table("PLUGIN", "NODES", "REASONS")
    for entry in explanation.rejections:
        words = "; ".join(
            f"{reason.nodes} {reason.reason}" if len(entry.reasons) > 1 and reason.nodes else reason.reason
            for reason in entry.reasons
        )
        table.add_row(Text(entry.plugin), str(entry.nodes) if entry.nodes else "all", Text(words))
    return table


def _scores(explanation: Explanation) -> Iterator[RenderableType]:
    plugins = list(explanation.scores[0].plugins)
    table = plain_table("PLUGIN", *(score.node for score in explanation.scores))
    for plugin in plugins:
        cells = []
        for score in explanation.scores:
            part = score.plugins[plugin]
            cells.append(f"{part.raw} → {part.normalized} → {part.weighted}")
        table.add_row(Text(plugin), *cells)
    table.add_row(Text("total", style="bold"), *(Text(str(score.total), style="bold") for score in explanation.scores))
    count = len(explanation.scores)
    shown = f"best {count} of {explanation.nodes.feasible}" if explanation.nodes.feasible > count else "all"
    yield Group(Text(f"Scores of feasible nodes ({shown}): raw → normalized → weighted", style="bold"), table)


def _preemption(plan: Preemption) -> str:
    if plan.node is None:
        return plan.message or "would not help"
    victims = ", ".join(f"{victim.namespace}/{victim.name} (priority {victim.priority})" for victim in plan.victims)
    text = f"would evict {victims or 'no pods'} from node {plan.node}"
    if plan.pdb_violations:
        text += f"; PodDisruptionBudget violations: {plan.pdb_violations}"
    others = plan.candidates - 1
    return text + (f"; other candidate nodes: {others}" if others > 0 else "")
