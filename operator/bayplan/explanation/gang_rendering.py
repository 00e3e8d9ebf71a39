"""An explanation of a gang as text for people.

Owns the layout. It must not know where the explanation came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.document_output import read_answer, renderers
from bayplan.explanation.gang_model import (
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    MemberCounts,
    MemberNode,
    PlaceFit,
)
from bayplan.explanation.parts import Victim
from bayplan.explanation.tables import events_table, nearest_table
from bayplan.text_output import plain_table, text_of

_STYLES = {
    GangVerdict.FITS: "green",
    GangVerdict.PLACED: "green",
    GangVerdict.FINISHED: "dim",
    GangVerdict.UNSCHEDULABLE: "yellow",
    GangVerdict.INCOMPLETE: "cyan",
    GangVerdict.NO_GROUP: "magenta",
    GangVerdict.NO_PROFILE: "magenta",
    GangVerdict.ONE_BY_ONE: "cyan",
    GangVerdict.ERROR: "red",
}
_NAMED = 8


def read_gang_explanation(answer: bytes) -> GangExplanation:
    """Read what the operator's endpoint answered.

    Raises:
        ServerUnavailableError: It is something else.
    """
    return read_answer(answer, GangExplanation, "an explanation of a gang")


def as_text(explanation: GangExplanation) -> str:
    """Give an explanation as a headline and tables.

    Returns:
        Text as wide as the terminal and coloured where it is one, else plain and one row a line.
    """
    return text_of(_sections(explanation))


RENDERERS = renderers(as_text)


def _sections(told: GangExplanation) -> Iterator[RenderableType]:
    headline = told.headline[:1].upper() + told.headline[1:]
    yield Text(headline, style=f"bold {_STYLES[told.verdict]}")
    yield from gang_sections(told)


def gang_sections(told: GangExplanation) -> Iterator[RenderableType]:
    """Everything but the headline."""
    yield Group(Text(f"Members of gang {told.namespace}/{told.name}", style="bold"), _members(told.members))
    if told.placement:
        yield Group(Text("Where they would go", style="bold"), _placement(told.placement))
    if told.places:
        yield Group(Text("Where it does not fit, nearest first", style="bold"), _places(told.places))
        yield from _nearest_place(told.places[0])
    if told.preemption is not None:
        yield Text.assemble(("Preemption  ", "bold"), _preemption(told.preemption))
    if told.reservation is not None:
        yield Text.assemble(("Reservation  ", "bold"), _reservation(told.reservation))
    for kept in told.kept_off:
        yield Text.assemble(("Kept off  ", "bold"), f"{_listed(kept.nodes)}, reserved for gang {kept.gang}")
    if told.last_attempt is not None:
        last = told.last_attempt
        when = f" at {last.time}" if last.time else ""
        yield Text.assemble(("Last attempt  ", "bold"), f"{last.reason}{when}: {last.message}")
    for notice in told.notices:
        yield Text(f"Note: {notice}", style="dim")


def _members(counts: MemberCounts) -> Table:
    table = plain_table("EXIST", "GATED", "WAITING", "PLACED", "SUCCEEDED", "FAILED", "MINIMUM", "NEEDED NOW")
    numbers = (counts.existing, counts.gated, counts.waiting, counts.placed, counts.succeeded, counts.failed)
    table.add_row(*map(str, (*numbers, counts.min_member, counts.needed)))
    return table


def _placement(placement: Sequence[MemberNode]) -> Table:
    by_node: dict[str, list[str]] = {}
    for each in placement:
        by_node.setdefault(each.node, []).append(each.member)
    table = plain_table("NODE", "MEMBERS", "")
    for node, names in sorted(by_node.items()):
        table.add_row(Text(node), str(len(names)), Text(_listed(names)))
    return table


def _places(places: Sequence[PlaceFit]) -> Table:
    table = plain_table("DOMAIN", "FIT", "NEXT MEMBER", "WHY NOT")
    for place in places:
        following = place.next_member
        why = "" if following is None else following.message
        name = "" if following is None else following.name
        table.add_row(Text(place.domain or "any"), f"{place.fitting} of {place.needed}", Text(name), Text(why))
    return table


def _nearest_place(place: PlaceFit) -> Iterator[RenderableType]:
    following = place.next_member
    if following is None:
        return
    where = f" in {place.domain}" if place.domain else ""
    if following.nearest:
        words = f"Nearest misses of {following.name}{where}, the others in place"
        yield Group(Text(words, style="bold"), nearest_table(following.nearest))
    if following.unblocking:
        words = f"What would make room for {following.name}{where}"
        yield Group(Text(words, style="bold"), events_table(following.unblocking))


def _preemption(plan: GangPreemption) -> str:
    if plan.message is not None:
        return plan.message
    where = f" in {plan.domain}" if plan.domain else ""
    awaited = f"for {_pods(plan.awaited)}, which end already" if plan.awaited else ""
    if not plan.victims:
        return f"would evict nobody, but wait {awaited}"
    text = f"would evict {_pods(plan.victims)} from {_listed(plan.nodes)}, after which all fit{where}"
    if plan.pdb_violations:
        text += f", against {plan.pdb_violations} PodDisruptionBudget protection{'s' * (plan.pdb_violations > 1)}"
    return f"{text}; it would also wait {awaited}" if awaited else text


def _reservation(kept: GangReservation) -> str:
    text = kept.where if kept.where == ", ".join(kept.nodes) else f"{kept.where} ({_listed(kept.nodes)})"
    return f"{text} is kept for it" + (f" until these end: {_listed(kept.waits_for)}" if kept.waits_for else "")


def _pods(pods: Sequence[Victim]) -> str:
    return _listed([f"{pod.namespace}/{pod.name} (priority {pod.priority})" for pod in pods])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
