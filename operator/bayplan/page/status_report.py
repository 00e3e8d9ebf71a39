"""``bayplan status -o html``: the status as tables, and the panels of the page."""

from __future__ import annotations

from msgspec import Struct
from rich.text import Text

from bayplan.introspection.status_model import Status
from bayplan.introspection.status_rendering import PAGE_TITLE, RENDERERS, sections
from bayplan.page.report_documents import ReportDocuments
from bayplan.page.report_file import report_of
from bayplan.texts.document_formats import printable_document, read_answer


class StatusReport(Struct, frozen=True, rename="camel"):
    """The operator's status with documents of the page.

    Attributes:
        documents: Empty for a standby and for an operator that is not ready.
    """

    status: Status
    documents: ReportDocuments


def read_status_report(answer: bytes) -> StatusReport:
    """Decode the response of the operator's endpoint.

    Raises:
        ServerUnavailableError: The response is not a report.
    """
    return read_answer(answer, StatusReport, "a status with the documents of panels")


def status_html(report: StatusReport) -> str:
    """Return the report as one HTML file; without panels if it has no documents."""
    if not report.documents.panels:
        return RENDERERS["html"](report.status)
    taken = Text(f"Taken at {report.documents.taken}", style="dim")
    problems = [Text(each, style="red") for each in report.documents.problems]
    tables = [*sections(printable_document(report.status)), *problems, taken]
    return report_of(PAGE_TITLE, report.documents, tables)
