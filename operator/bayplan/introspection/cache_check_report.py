"""The result of a cache check as a document and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from bayplan.texts.document_formats import printable_document, read_answer
from bayplan.texts.html_pages import ReportHead, page_of, report_renderers
from scheduler_core.snapshot.cluster_cache import CacheDifference


class CacheReport(msgspec.Struct, frozen=True, rename="camel"):
    """Differences between the cache and the API server, one text each."""

    differences: tuple[str, ...]


def cache_report(found: Iterable[CacheDifference]) -> CacheReport:
    """Return the document."""
    return CacheReport(tuple(str(difference) for difference in found))


def read_cache_report(answer: bytes) -> CacheReport:
    """Decode the response of the operator's endpoint.

    Raises:
        ServerUnavailableError: The response is not a cache report.
    """
    return read_answer(answer, CacheReport, "a cache report")


def _sections(report: CacheReport) -> Iterator[RenderableType]:
    if not report.differences:
        yield Text("Cache and queue agree with the API server.")
        return
    count = len(report.differences)
    yield Group(Text(f"{count} difference{'s' if count > 1 else ''}:"), *map(Text, report.differences))


RENDERERS = report_renderers(lambda _: "Check of the cache", _sections)


def as_html(report: CacheReport, head: ReportHead) -> str:
    """Return the report as one HTML file."""
    return page_of("Check of the cache", _sections(printable_document(report)), head)
