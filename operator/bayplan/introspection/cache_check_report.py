"""The result of a cache check as a document and as text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bayplan.texts.document_formats import read_answer, renderers
from scheduler_core.snapshot.cache_comparison import CacheDifference


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


def as_text(report: CacheReport) -> str:
    """Render a report as text."""
    if not report.differences:
        return "Cache and queue agree with the API server."
    count = len(report.differences)
    return "\n".join((f"{count} difference{'s' if count > 1 else ''}:", *report.differences))


RENDERERS = renderers(as_text)
