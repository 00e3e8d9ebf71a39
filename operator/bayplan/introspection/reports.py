"""The documents of ``bayplan status --shadow`` and ``--check-cache``, and their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from bayplan.profiles.profile_status import running_shadow, shadow_status
from bayplan.resources.scheduler_profile import PlacementFigures, ResourceFigures, ShadowStatus
from bayplan.texts.document_formats import counted, printable_document, read_answer
from bayplan.texts.report_sections import ReportHead, page_of, report_renderers, table_of
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cluster_cache import CacheDifference


class ShadowReport(Struct, frozen=True, rename="camel"):
    """A running shadow profile.

    Attributes:
        shadow_of: Scheduler name of its live profile.
        has_live_profile: Whether the live profile runs in this process.
        is_paused: Whether the shadow pauses after repeated errors.
        shadow: The results, as in ``status.shadow`` of the object.
    """

    name: str
    shadow_of: str
    revision: str
    has_live_profile: bool
    is_paused: bool
    shadow: dict[str, Any]


def shadow_report(scheduler: Scheduler, name: str) -> ShadowReport | None:
    """Return the report of a shadow; None if it does not run in this process."""
    if not scheduler.cycles.decided.profiles:
        return None
    running = running_shadow(scheduler, name)
    status = shadow_status(running)
    if running is None or status is None:
        return None
    shadow = running.shadow
    return ShadowReport(
        name=name,
        shadow_of=shadow.settings.shadow_of,
        revision=shadow.instance.revision,
        has_live_profile=running.has_live_profile,
        is_paused=running.is_paused,
        shadow=status.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


read_shadow_report = partial(read_answer, kind=ShadowReport, what="a report of a shadow profile")
"""Decodes the response of the operator's endpoint."""


def _sections(report: ShadowReport) -> Iterator[RenderableType]:
    found = ShadowStatus.model_validate(report.shadow)
    live = f"{report.shadow_of}{f' (revision {found.live_revision})' if found.live_revision else ''}"
    yield Text.assemble((report.name, "bold"), f" (revision {report.revision}), shadow of {live}")
    if not report.has_live_profile:
        yield Text(f"No live profile of this process has the scheduler name {report.shadow_of}", "red")
    if report.is_paused:
        yield Text("Paused after repeated errors", "red")
    yield _counts(found)
    if found.last_error:
        yield Text(f"Last error: {found.last_error}", "red")
    if found.not_compared:
        reasons = ", ".join(f"{each.reason} {each.count}" for each in found.not_compared)
        yield Text.assemble(("Not compared  ", "bold"), reasons)
    yield from _carried(found)
    if found.differences:
        title = f"Last differences ({len(found.differences)} of {found.differed}), newest first"
        rows = (
            (each.pod, each.kind, each.live_node or "-", each.shadow_node or "-", each.reason)
            for each in found.differences
        )
        yield Group(Text(title, style="bold"), table_of(("POD", "DIFFERENCE", "LIVE", "SHADOW", "REASON"), rows))


RENDERERS = report_renderers(_sections)


def as_html(report: ShadowReport, head: ReportHead) -> str:
    """Return the report as one HTML file."""
    return page_of(f"Shadow profile {report.name}", _sections(printable_document(report)), head)


def _counts(found: ShadowStatus) -> RenderableType:
    columns = {
        "DECIDED": found.decided,
        "COMPARED": found.compared,
        "AGREE": found.agreed,
        "DIFFER": found.differed,
        "OTHER NODE": found.other_node,
        "WOULD REJECT": found.would_reject,
        "WOULD PLACE": found.would_place,
        "SECONDS": found.seconds,
    }
    table = table_of(columns, [columns.values()])
    points = found.score_difference
    if points.live is None and points.shadow is None:
        return table
    text = f"by the live profile {points.live or '-'}, by the shadow {points.shadow or '-'}"
    return Group(table, Text(f"Average points by which each prefers its own node: {text}"))


def _carried(found: ShadowStatus) -> Iterator[RenderableType]:
    carried = found.carried_forward
    if carried is None:
        return
    title = f"If its choices had been taken ({carried.pods} pods carried forward, {carried.moved} on other nodes)"
    figures = _figures(carried.live, carried.shadow)
    yield Group(Text(title, style="bold"), table_of(("", "LIVE", "SHADOW"), figures))


def _figures(live: PlacementFigures, shadow: PlacementFigures) -> Iterator[tuple[str, str, str]]:
    yield "nodes without pods", str(live.empty_nodes), str(shadow.empty_nodes)
    yield "carried pods with a node", str(live.placed), str(shadow.placed)
    theirs = {each.name: each for each in shadow.resources}
    for ours in live.resources:
        other = theirs.get(ours.name, ResourceFigures(name=ours.name))
        if ours.imbalance or other.imbalance:
            yield f"imbalance of {ours.name}", _percent(ours.imbalance), _percent(other.imbalance)
        if ours.unusable or other.unusable:
            name = f"free {ours.name} that no carried pod can use"
            yield name, _percent(ours.unusable), _percent(other.unusable)
    if live.zone_skew is not None or shadow.zone_skew is not None:
        yield "zone skew (pods)", str(live.zone_skew), str(shadow.zone_skew)


def _percent(value: str | None) -> str:
    return "-" if value is None else f"{value}%"


class CacheReport(msgspec.Struct, frozen=True, rename="camel"):
    """Differences between the cache and the API server, one text each."""

    differences: tuple[str, ...]


def cache_report(found: Iterable[CacheDifference]) -> CacheReport:
    return CacheReport(tuple(str(difference) for difference in found))


read_cache_report = partial(read_answer, kind=CacheReport, what="a cache report")
"""Decodes the response of the operator's endpoint."""


def _cache_sections(report: CacheReport) -> Iterator[RenderableType]:
    if not report.differences:
        yield Text("Cache and queue agree with the API server.")
        return
    yield Group(Text(f"{counted(len(report.differences), 'difference')}:"), *map(Text, report.differences))


CACHE_RENDERERS = report_renderers(_cache_sections)


def cache_html(report: CacheReport, head: ReportHead) -> str:
    """Return the report as one HTML file."""
    return page_of("Check of the cache", _cache_sections(printable_document(report)), head)
