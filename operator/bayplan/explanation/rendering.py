"""An explanation as text for people.

Owns the layout, and units as people write them. It must not know where the explanation came from.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.document_output import read_answer, renderers
from bayplan.explanation.gang_rendering import gang_sections
from bayplan.explanation.model import Explanation, Preemption, Verdict
from bayplan.explanation.tables import events_table, nearest_table
from bayplan.text_output import plain_table, text_of

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
    """Read what the operator's endpoint answered.

    Raises:
        ServerUnavailableError: It is something else.
    """
    return read_answer(answer, Explanation, "an explanation")


def as_text(explanation: Explanation) -> str:
    """Give an explanation as a headline and tables.

    Returns:
        Text as wide as the terminal and coloured where it is one, else plain and one row a line.
    """
    return text_of(_sections(explanation))


RENDERERS = renderers(as_text)


def _sections(told: Explanation) -> Iterator[RenderableType]:
    headline = told.headline[:1].upper() + told.headline[1:]
    yield Text(headline, style=f"bold {_STYLES[told.verdict]}")
    if told.rejections:
        yield Group(Text("Rejected by", style="bold"), _rejections(told))
    if told.nearest:
        yield Group(Text("Nearest misses", style="bold"), nearest_table(told.nearest))
    if told.scores:
        yield from _scores(told)
    if told.preemption is not None:
        yield Text.assemble(("Preemption  ", "bold"), _preemption(told.preemption))
    if told.unblocking:
        yield Group(Text("What would bring it back", style="bold"), events_table(told.unblocking))
    if told.gang is not None:
        yield from gang_sections(told.gang)
    for notice in told.notices:
        yield Text(f"Note: {notice}", style="dim")


def _rejections(told: Explanation) -> Table:
    table = plain_table("PLUGIN", "NODES", "WHY")
    for entry in told.rejections:
        words = "; ".join(
            f"{reason.nodes} {reason.reason}" if len(entry.reasons) > 1 and reason.nodes else reason.reason
            for reason in entry.reasons
        )
        table.add_row(Text(entry.plugin), str(entry.nodes) if entry.nodes else "all", Text(words))
    return table


def _scores(told: Explanation) -> Iterator[RenderableType]:
    plugins = list(told.scores[0].plugins)
    table = plain_table("PLUGIN", *(score.node for score in told.scores))
    for plugin in plugins:
        cells = []
        for score in told.scores:
            part = score.plugins[plugin]
            cells.append(f"{part.raw} → {part.normalized} → {part.weighted}")
        table.add_row(Text(plugin), *cells)
    table.add_row(Text("total", style="bold"), *(Text(str(score.total), style="bold") for score in told.scores))
    shown = f"{len(told.scores)} best of {told.nodes.feasible}" if told.nodes.feasible > len(told.scores) else "all"
    yield Group(Text(f"Scores of nodes that fit ({shown}): raw → normalised → weighted", style="bold"), table)


def _preemption(plan: Preemption) -> str:
    if plan.node is None:
        return (plan.message or "would not help").rpartition("preemption: ")[2]
    victims = ", ".join(f"{victim.namespace}/{victim.name} (priority {victim.priority})" for victim in plan.victims)
    text = f"would evict {victims or 'nobody'} from node {plan.node}"
    if plan.pdb_violations:
        text += f", against {plan.pdb_violations} PodDisruptionBudget protection{'s' * (plan.pdb_violations > 1)}"
    others = plan.candidates - 1
    return text + (f"; {others} other node{'s' * (others > 1)} would do, too" if others > 0 else "")
