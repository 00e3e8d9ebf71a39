"""Renders the explanation of a gang as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.explanation.gang_model import (
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    MemberCounts,
    MemberNode,
    PlaceFit,
)
from bayplan.explanation.shared_model import Victim
from bayplan.explanation.shared_rendering import events_table, nearest_table
from bayplan.texts.document_formats import read_answer, renderers
from bayplan.texts.tables import plain_table, text_of
from scheduler_core.model.pod_group import GroupSource

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
    """Decode the response of the operator's endpoint.

    Raises:
        ServerUnavailableError: The response is not an explanation of a gang.
    """
    return read_answer(answer, GangExplanation, "an explanation of a gang")


def page_title(explanation: GangExplanation) -> str:
    """Return the title of a page."""
    return f"Gang {explanation.namespace}/{explanation.name}"


def sections(explanation: GangExplanation) -> Iterator[RenderableType]:
    """Yield what people read, the headline first."""
    headline = explanation.headline[:1].upper() + explanation.headline[1:]
    yield Text(headline, style=f"bold {_STYLES[explanation.verdict]}")
    yield from gang_sections(explanation)


def _as_text(explanation: GangExplanation) -> str:
    return text_of(sections(explanation))


RENDERERS = renderers(_as_text)


def gang_sections(explanation: GangExplanation) -> Iterator[RenderableType]:
    """Yield all sections except the headline."""
    title = f"Members of gang {explanation.namespace}/{explanation.name}"
    if explanation.api != GroupSource.BAYPLAN:
        title += f" of {explanation.api_version or explanation.api}"
    yield Group(Text(title, style="bold"), _members(explanation.members))
    if explanation.placement:
        yield Group(Text("Placement", style="bold"), _placement(explanation.placement))
    if explanation.places:
        yield Group(Text("Domains where it does not fit, nearest first", style="bold"), _places(explanation.places))
        yield from nearest_place(explanation.places[0])
    if explanation.preemption is not None:
        yield Text.assemble(("Preemption  ", "bold"), _preemption(explanation.preemption))
    if explanation.reservation is not None:
        yield Text.assemble(("Reservation  ", "bold"), _reservation(explanation.reservation))
    for other in explanation.kept_off:
        yield Text.assemble(("Excluded nodes  ", "bold"), f"{_listed(other.nodes)} (reserved for gang {other.gang})")
    if explanation.last_attempt is not None:
        last = explanation.last_attempt
        when = f" at {last.time}" if last.time else ""
        yield Text.assemble(("Last attempt  ", "bold"), f"{last.reason}{when}: {last.message}")
    for notice in explanation.notices:
        yield Text(f"Note: {notice}", style="dim")


def _members(counts: MemberCounts) -> Table:
    table = plain_table("EXIST", "GATED", "WAITING", "PLACED", "SUCCEEDED", "FAILED", "MINIMUM", "NEEDED")
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
    table = plain_table("DOMAIN", "FIT", "NEXT MEMBER", "REASON")
    for place in places:
        following = place.next_member
        why = "" if following is None else following.message
        name = "" if following is None else following.name
        table.add_row(Text(place.domain or "any"), f"{place.fitting} of {place.needed}", Text(name), Text(why))
    return table


def nearest_place(place: PlaceFit) -> Iterator[RenderableType]:
    """Yield what nodes lack for the first member without one, and the events that would help."""
    following = place.next_member
    if following is None:
        return
    where = f" in {place.domain}" if place.domain else ""
    if following.nearest:
        words = f"Nearest misses of {following.name}{where}, with the members before it placed"
        yield Group(Text(words, style="bold"), nearest_table(following.nearest))
    if following.unblocking:
        words = f"Events that would make room for {following.name}{where}"
        yield Group(Text(words, style="bold"), events_table(following.unblocking))


def _preemption(plan: GangPreemption) -> str:
    if plan.message is not None:
        return plan.message
    where = f" in {plan.domain}" if plan.domain else ""
    awaited = f"wait for terminating pods {_pods(plan.awaited)}" if plan.awaited else ""
    if not plan.victims:
        return f"would evict no pods but {awaited}"
    text = f"would evict {_pods(plan.victims)} from {_listed(plan.nodes)}; all members then fit{where}"
    if plan.pdb_violations:
        text += f"; PodDisruptionBudget violations: {plan.pdb_violations}"
    return f"{text}; would also {awaited}" if awaited else text


def _reservation(held: GangReservation) -> str:
    text = held.where if held.where == ", ".join(held.nodes) else f"{held.where} ({_listed(held.nodes)})"
    return text + (f", waiting for these pods to terminate: {_listed(held.waits_for)}" if held.waits_for else "")


def _pods(pods: Sequence[Victim]) -> str:
    return _listed([f"{pod.namespace}/{pod.name} (priority {pod.priority})" for pod in pods])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
