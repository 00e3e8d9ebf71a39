"""The result of a cache check as a document and as text.

Owns its fields and its words. It must not know how the check is made.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bayplan.document_output import read_answer, renderers
from scheduler_core.snapshot.cache_comparison import CacheDifference


class CacheReport(msgspec.Struct, frozen=True, rename="camel"):
    """How cache and API server differ, one sentence each."""

    differences: tuple[str, ...]


def cache_report(found: Iterable[CacheDifference]) -> CacheReport:
    """Make the document."""
    return CacheReport(tuple(str(difference) for difference in found))


def read_cache_report(answer: bytes) -> CacheReport:
    """Read what the operator answered.

    Raises:
        ServerUnavailableError: It is something else.
    """
    return read_answer(answer, CacheReport, "a cache report")


def as_text(report: CacheReport) -> str:
    """Print it for people."""
    if not report.differences:
        return "Cache and queue agree with the API server."
    count = len(report.differences)
    return "\n".join((f"{count} difference{'s' if count > 1 else ''}:", *report.differences))


RENDERERS = renderers(as_text)
