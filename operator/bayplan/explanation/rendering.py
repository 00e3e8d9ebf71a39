"""Renders the explanations of pods and gangs as text.

Separate from the documents, which the operator builds too without importing ``rich``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from msgspec.structs import astuple
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.explanation.documents import (
    Explanation,
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    MemberCounts,
    MemberNode,
    Preemption,
    Verdict,
)
from bayplan.texts.document_formats import capitalized, listed, read_answer
from bayplan.texts.report_sections import report_renderers, table_of
from scheduler_core.explain.findings import (
    ClaimRejection,
    DeviceExplanation,
    DeviceGroup,
    Lack,
    NewNodes,
    NodeLacks,
    PlaceFit,
    Unblocking,
    Victim,
    request_key,
)
from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.model.pod_requests import amount_text

_STYLES = {
    Verdict.FITS: "green",
    Verdict.PLACED: "green",
    Verdict.UNSCHEDULABLE: "yellow",
    Verdict.GATED: "cyan",
    Verdict.NO_PROFILE: "magenta",
    Verdict.ENDED: "dim",
    Verdict.ERROR: "red",
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

AnyExplanation = Explanation | GangExplanation


read_explanation = partial(read_answer, kind=Explanation, what="an explanation")
read_gang_explanation = partial(read_answer, kind=GangExplanation, what="an explanation of a gang")


def page_title(explanation: AnyExplanation) -> str:
    kind = "Pod" if isinstance(explanation, Explanation) else "Gang"
    return f"{kind} {explanation.namespace}/{explanation.name}"


def sections(explanation: AnyExplanation) -> Iterator[RenderableType]:
    """Yield what people read, the headline first."""
    yield Text(capitalized(explanation.headline), style=f"bold {_STYLES[explanation.verdict]}")
    if isinstance(explanation, Explanation):
        yield from _pod_sections(explanation)
    else:
        yield from _gang_sections(explanation)


RENDERERS = report_renderers(sections)


# -- pods -----------------------------------------------------------------------------------------------------------


def _pod_sections(explanation: Explanation) -> Iterator[RenderableType]:
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
    if explanation.new_nodes is not None:
        yield Text.assemble(("New nodes  ", "bold"), _new_nodes(explanation.new_nodes))
    if explanation.unblocking:
        yield Group(Text("Events that would requeue it", style="bold"), events_table(explanation.unblocking))
    if explanation.gang is not None:
        yield from _gang_sections(explanation.gang)
    for notice in explanation.notices:
        yield Text(f"Note: {notice}", style="dim")


def _rejections(explanation: Explanation) -> Table:
    rows = []
    for entry in explanation.rejections:
        words = "; ".join(
            f"{reason.nodes} {reason.reason}" if len(entry.reasons) > 1 and reason.nodes else reason.reason
            for reason in entry.reasons
        )
        rows.append((entry.plugin, entry.nodes or "all", words))
    return table_of(("PLUGIN", "NODES", "REASONS"), rows)


def _scores(explanation: Explanation) -> Iterator[RenderableType]:
    rows: list[list[str | Text]] = []
    for plugin in explanation.scores[0].plugins:
        parts = (score.plugins[plugin] for score in explanation.scores)
        rows.append([plugin, *(f"{part.raw} → {part.normalized} → {part.weighted}" for part in parts)])
    totals = ("total", *(str(score.total) for score in explanation.scores))
    rows.append([Text(cell, style="bold") for cell in totals])
    table = table_of(("PLUGIN", *(score.node for score in explanation.scores)), rows)
    count = len(explanation.scores)
    shown = f"best {count} of {explanation.nodes.feasible}" if explanation.nodes.feasible > count else "all"
    yield Group(Text(f"Scores of feasible nodes ({shown}): raw → normalized → weighted", style="bold"), table)


def _preemption(plan: Preemption) -> str:
    if plan.node is None:
        return plan.message or "would not help"
    victims = ", ".join(f"{victim.namespace}/{victim.name} (priority {victim.priority})" for victim in plan.victims)
    text = f"{_delay(plan.waits_until)}would evict {victims or 'no pods'} from node {plan.node}"
    if plan.pdb_violations:
        text += f"; PodDisruptionBudget violations: {plan.pdb_violations}"
    others = plan.candidates - 1
    return text + (f"; other candidate nodes: {others}" if others > 0 else "")


def _delay(until: str | None) -> str:
    return "" if until is None else f"waits until {until} for a new node, then "


def _new_nodes(found: NewNodes) -> str:
    """Return which new nodes help, or why none is known."""
    if found.helpful:
        return found.text
    if not found.is_complete:
        return "not known: the dry run took more steps than it may"
    if not found.tried:
        return "no present node is large enough to be copied"
    return "none of the few numbers of copies of present nodes that were tried would help; bayplan fit tries more"


# -- resource claims and devices --------------------------------------------------------------------------------------


def device_sections(devices: DeviceExplanation) -> Iterator[RenderableType]:
    """Yield the obstacles of claims, and for each request the devices that do not serve it."""
    if devices.claims:
        yield Group(Text("Resource claims", style="bold"), _claims(devices.claims))
    for (claim, request), groups in groupby(devices.rejected, key=lambda each: (each.claim, each.request)):
        parts: list[RenderableType] = [
            Text(f"Devices that do not serve request {request} of claim {claim}, nearest first", style="bold"),
            _groups(list(groups)),
        ]
        omitted = devices.omitted.get(request_key(claim, request))
        if omitted:
            parts.append(Text(f"and {omitted} more", style="dim"))
        yield Group(*parts)


def _claims(claims: tuple[ClaimRejection, ...]) -> Table:
    rows = (
        (each.claim, each.request or "-", each.nodes if each.nodes > 1 else f"1 ({each.example})", each.reason)
        for each in claims
    )
    return table_of(("CLAIM", "REQUEST", "NODES", "REASON"), rows)


def _groups(groups: list[DeviceGroup]) -> Table:
    rows = []
    for group in groups:
        cells: tuple[object, ...] = (group.devices, group.nodes, group.example)
        for each in group.unmet:
            words = each.what + (f" by {_holders(group)}" if each.by_holders and group.held_by else "")
            rows.append((*cells, words, each.required_by or "-"))
            cells = ("", "", "")
    return table_of(("DEVICES", "NODES", "EXAMPLE", "UNMET CONDITION", "REQUIRED BY"), rows)


def _holders(group: DeviceGroup) -> str:
    more = f" and {group.more_holders} more" if group.more_holders else ""
    return f"claim{'s' if len(group.held_by) > 1 else ''} {', '.join(group.held_by)}{more}"


# -- gangs -------------------------------------------------------------------------------------------------------------


def _gang_sections(explanation: GangExplanation) -> Iterator[RenderableType]:
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
        yield Text.assemble(("Preemption  ", "bold"), _gang_preemption(explanation.preemption))
    if explanation.new_nodes is not None:
        yield Text.assemble(("New nodes  ", "bold"), _new_nodes(explanation.new_nodes))
    if explanation.reservation is not None:
        yield Text.assemble(("Reservation  ", "bold"), _reservation(explanation.reservation))
    for other in explanation.kept_off:
        yield Text.assemble(("Excluded nodes  ", "bold"), f"{listed(other.nodes)} (reserved for gang {other.gang})")
    if explanation.last_attempt is not None:
        last = explanation.last_attempt
        when = f" at {last.time}" if last.time else ""
        yield Text.assemble(("Last attempt  ", "bold"), f"{last.reason}{when}: {last.message}")
    for notice in explanation.notices:
        yield Text(f"Note: {notice}", style="dim")


def _members(counts: MemberCounts) -> Table:
    headings = ("EXIST", "GATED", "WAITING", "PLACED", "SUCCEEDED", "FAILED", "MINIMUM", "NEEDED")
    return table_of(headings, [astuple(counts)])


def _placement(placement: Sequence[MemberNode]) -> Table:
    by_node: dict[str, list[str]] = {}
    for each in placement:
        by_node.setdefault(each.node, []).append(each.member)
    rows = ((node, len(names), listed(names)) for node, names in sorted(by_node.items()))
    return table_of(("NODE", "MEMBERS", ""), rows)


def _places(places: Sequence[PlaceFit]) -> Table:
    rows = []
    for place in places:
        following = place.next_member
        member = ("", "") if following is None else (following.name, following.message)
        rows.append((place.domain or "any", f"{place.fitting} of {place.needed}", *member))
    return table_of(("DOMAIN", "FIT", "NEXT MEMBER", "REASON"), rows)


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


def _gang_preemption(plan: GangPreemption) -> str:
    if plan.message is not None:
        return plan.message
    where = f" in {plan.domain}" if plan.domain else ""
    awaited = f"wait for terminating pods {_pods(plan.awaited)}" if plan.awaited else ""
    if not plan.victims:
        return f"would evict no pods but {awaited}"
    victims = f"would evict {_pods(plan.victims)} from {listed(plan.nodes)}"
    text = f"{_delay(plan.waits_until)}{victims}; all members then fit{where}"
    if plan.pdb_violations:
        text += f"; PodDisruptionBudget violations: {plan.pdb_violations}"
    return f"{text}; would also {awaited}" if awaited else text


def _reservation(held: GangReservation) -> str:
    text = held.where if held.where == ", ".join(held.nodes) else f"{held.where} ({listed(held.nodes)})"
    return text + (f", waiting for these pods to terminate: {listed(held.waits_for)}" if held.waits_for else "")


def _pods(pods: Sequence[Victim]) -> str:
    return listed([f"{pod.namespace}/{pod.name} (priority {pod.priority})" for pod in pods])


# -- nodes and events --------------------------------------------------------------------------------------------------


def nearest_table(nearest: tuple[NodeLacks, ...]) -> Table:
    """Return a table of what nodes lack, one row for each plugin."""
    rows = (
        ("" if number else miss.node, lack.plugin, lack_text(lack))
        for miss in nearest
        for number, lack in enumerate(miss.lacks)
    )
    return table_of(("NODE", "PLUGIN", "LACKS"), rows)


def lack_text(lack: Lack) -> str:
    """Return what a node lacks as text, with amounts if there are any: ``needs 500m cpu, 320m free``."""
    if lack.details:
        return "; ".join(lack.details)
    if not lack.amounts:
        return "; ".join(lack.reasons)
    return "; ".join(
        f"needs {amount_text(amount.resource, amount.needed)} {amount.resource}, "
        f"{amount_text(amount.resource, max(0, amount.free))} free"
        for amount in lack.amounts
    )


def events_table(events: tuple[Unblocking, ...]) -> Table:
    """Return a table of events that would requeue the pod, with the result of each."""
    rows = []
    for entry in events:
        place = "it" if entry.event == NODE_ADD.name else entry.fits_on
        result = f"fits on {place}" if entry.fits_on else "requeued"
        rows.append((entry.what, result, ", ".join(entry.plugins) or "any"))
    return table_of(("EVENT", "RESULT", "QUEUEING HINT OF"), rows)
