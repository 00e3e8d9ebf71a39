"""The result of a cache check as a document and as text.

Owns its fields and its words. It must not know how the check is made.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bayplan.text_output import indented_json, yaml_of
from scheduler_core.errors import ServerUnavailableError
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
    try:
        return msgspec.json.decode(answer, type=CacheReport)
    except msgspec.DecodeError as error:
        message = f"the answer is no cache report ({error}); is --server a Bayplan of this version?"
        raise ServerUnavailableError(message) from error


def cache_report_text(report: CacheReport, output: str) -> str:
    """Print it as ``table``, ``json`` or ``yaml``; YAML ends its last line by itself."""
    if output != "table":
        document = msgspec.json.encode(report)
        return indented_json(document) if output == "json" else yaml_of(document)
    if not report.differences:
        return "Cache and queue agree with the API server."
    count = len(report.differences)
    return "\n".join((f"{count} difference{'s' if count > 1 else ''}:", *report.differences))
