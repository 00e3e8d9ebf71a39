"""Findings of a validation, and their output."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

from bayplan.texts.printable import printable_record


class Severity(Enum):
    """Severity of a finding."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(Struct, frozen=True, rename="camel"):
    """A finding.

    Attributes:
        severity: An error makes the files invalid.
        line: Line from 1; 0 for the whole file.
        document: Number of the document in the file, from 1; 0 for the whole file.
        object: Kind and name; "" for none.
    """

    severity: Severity
    file: str
    message: str
    line: int = 0
    document: int = 0
    object: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Format like ``a.yaml:7: error: SchedulerProfile batch: spec.pluginss: unknown field; ...``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.severity.value, self.object, self.path, self.message) if part)


class Report(Struct, frozen=True, rename="camel"):
    """All findings.

    Attributes:
        valid: Whether there is no error.
        findings: Sorted by file, line and severity.
        unreadable: Files that could not be read, in sentences.
    """

    valid: bool
    objects: int
    findings: tuple[Finding, ...] = ()
    unreadable: tuple[str, ...] = ()


def report_of(findings: Sequence[Finding], objects: int, unreadable: Sequence[str]) -> Report:
    """Sort findings and remove duplicates."""
    order = {severity: number for number, severity in enumerate(Severity)}
    ordered = sorted(dict.fromkeys(findings), key=lambda each: (each.file, each.line, order[each.severity], each.path))
    is_valid = not unreadable and not any(each.severity is Severity.ERROR for each in ordered)
    return Report(is_valid, objects, tuple(ordered), tuple(unreadable))


def as_text(report: Report) -> str:
    """Format one line for each finding, and a summary."""
    lines = [printable_record(str(each)) for each in (*report.findings, *report.unreadable)]
    counts = {severity: sum(each.severity is severity for each in report.findings) for severity in Severity}
    summary = [_counted(counts[Severity.ERROR], "problem")]
    if counts[Severity.WARNING]:
        summary.append(_counted(counts[Severity.WARNING], "warning"))
    if report.unreadable:
        summary.append(f"{_counted(len(report.unreadable), 'file')} could not be read")
    lines.append(f"{_counted(report.objects, 'object')} validated: {', '.join(summary)}")
    return "\n".join(lines)


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
