"""Writes a report: one HTML file with panels of the page, their documents, and tables for readers without scripts.

The panels are the page's own modules, as ``data:`` URLs of an import map. The content security policy names each of
them by its hash and permits nothing else, so text from a cluster cannot run or load anything even if not escaped.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.explanation.rendering import page_title
from bayplan.explanation.rendering import sections as explanation_sections
from bayplan.introspection.status_model import Status
from bayplan.introspection.status_rendering import PAGE_TITLE, sections, state_text
from bayplan.page.report_documents import ReportDocuments, Work, reported
from bayplan.texts.document_formats import printable_builtins, printable_document, read_answer
from bayplan.texts.report_sections import (
    ASSETS,
    NO_HEAD,
    ReportHead,
    hash_source,
    head_lines,
    html_document,
    html_lines,
    page_of,
    report_style,
)

_IMPORT = re.compile(r"""(?P<before>\bfrom\s+|\bimport\s+)(?P<quote>['"])(?P<path>\.{1,2}/[^'"]+)(?P=quote)""")
_PACKAGE = "bayplan"


@dataclass(frozen=True, slots=True)
class _Module:
    """A module with names of the import map instead of relative paths."""

    name: str
    source: str


def explanation_report(explanation: Explanation | GangExplanation, command: str, head: ReportHead = NO_HEAD) -> str:
    revision = f" revision {explanation.profile_revision}" if explanation.profile_revision else ""
    if explanation.scheduler_name:
        head = replace(head, facts=(*head.facts, ("profile", f"{explanation.scheduler_name}{revision}")))
    kind = "pod" if isinstance(explanation, Explanation) else "gang"
    documents = ReportDocuments(work=(reported(Work(kind, explanation, (), command)),))
    return report_of(page_title(explanation), documents, explanation_sections(printable_document(explanation)), head)


def report_of(
    title: str, documents: ReportDocuments, sections: Iterable[RenderableType], head: ReportHead = NO_HEAD
) -> str:
    """Return a report.

    Returns:
        HTML that ends with a line break. All text is escaped, control characters too.

    Raises:
        OSError: An asset cannot be read.
        TypeError: A section is neither a text, a table nor a group of them.
    """
    entry, *imported = _modules(_entry_of(documents))
    integrity = {_data_url(module): hash_source(module.source) for module in imported}
    names = {module.name: _data_url(module) for module in imported}
    import_map = json.dumps({"imports": names, "integrity": integrity})
    body = [
        # The script replaces the content of this element.
        '<div id="page">',
        *head_lines(title, head),
        "<main><noscript><p>The panels need JavaScript; the tables do not.</p></noscript></main></div>",
        '<section class="tables" aria-labelledby="tables"><h2 id="tables">Tables</h2>',
        *html_lines(sections, "h3"),
        "</section>",
        f'<script type="application/json" id="documents">{_embedded(title, documents, head)}</script>',
        f'<script type="module">{entry.source}</script>',
    ]
    return html_document(
        title,
        report_style(),
        body,
        scripts=(hash_source(import_map), hash_source(entry.source), *integrity.values()),
        head=[f'<script type="importmap">{import_map}</script>'],
    )


def _entry_of(documents: ReportDocuments) -> str:
    """Return the module that shows the documents."""
    if documents.sides:
        return "comparison_report.mjs"
    return "rates_report.mjs" if "rates" in documents.panels else "report.mjs"


def _embedded(title: str, documents: ReportDocuments, head: ReportHead) -> str:
    """Return the documents as JSON in ASCII; without the character that begins tags, no text can end the element."""
    content = {
        "title": title,
        "facts": head.facts,
        "summary": head.summary,
        "taken": documents.taken,
        "sides": documents.sides,
        "documents": dict(documents.panels),
        "work": documents.work,
    }
    return json.dumps(printable_builtins(content), separators=(",", ":")).replace("<", "\\u003c")


def _modules(entry: str) -> list[_Module]:
    """Return a module and all that it imports, directly or not, each once."""
    found: dict[str, _Module] = {}
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path not in found:
            source = (ASSETS / path).read_text(encoding="utf-8")
            found[path] = _Module(_name_of(path), _with_names(source, path))
            waiting.extend(_imports(source, path))
    return list(found.values())


def _imports(source: str, path: str) -> Iterator[str]:
    for found in _IMPORT.finditer(source):
        yield _resolved(found["path"], path)


def _with_names(source: str, path: str) -> str:
    """Replace relative paths: a module whose address is ``data:`` has none."""

    def named(found: re.Match[str]) -> str:
        return f"{found['before']}{found['quote']}{_name_of(_resolved(found['path'], path))}{found['quote']}"

    return _IMPORT.sub(named, source)


def _resolved(relative: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))


def _name_of(path: str) -> str:
    return f"{_PACKAGE}/{path}"


def _data_url(module: _Module) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.source.encode()).decode()}"


# -- bayplan status -o html -------------------------------------------------------------------------------------------


class StatusReport(Struct, frozen=True, rename="camel"):
    """The operator's status with documents of the page, of which a standby, or one that is not ready, has none."""

    status: Status
    documents: ReportDocuments


read_status_report = partial(read_answer, kind=StatusReport, what="a status with the documents of panels")
"""Decodes the response of the operator's endpoint."""


def status_html(report: StatusReport, head: ReportHead = NO_HEAD) -> str:
    """Return the report as one HTML file; without panels if it has no documents."""
    status = report.status
    profiles = ", ".join(f"{each.name} revision {each.revision}" for each in status.profiles)
    named = (("taken", report.documents.taken), ("Kubernetes", status.server.version), ("profiles", profiles))
    facts = tuple((name, value) for name, value in named if value)
    pending = ", ".join(f"{count} {place}" for place, count in sorted(status.places.items()) if count)
    summary = f"{state_text(status).plain}; {f'pods that wait: {pending}' if pending else 'no pod waits'}"
    head = ReportHead((*head.facts, *facts), (summary, *head.summary))
    if not report.documents.panels:
        return page_of(PAGE_TITLE, sections(printable_document(status)), head)
    taken = Text(f"Taken at {report.documents.taken}", style="dim")
    problems = [Text(each, style="red") for each in report.documents.problems]
    tables = [*sections(printable_document(report.status)), *problems, taken]
    return report_of(PAGE_TITLE, report.documents, tables, head)
