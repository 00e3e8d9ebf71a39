"""Tests of ``-o html`` of all commands in a real browser: requests, content security policy, and hostile names.

tests/page/test_report_files.py covers the panels of the reports.
"""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_rendering import PAGE_TITLE, sections
from bayplan.kube.readiness import Readiness
from bayplan.page.report_documents import operator_documents
from bayplan.page.report_file import read_status_report, status_html
from bayplan.texts.report_sections import page_of
from click.testing import CliRunner

from tests.support.builders import node as built_node
from tests.support.builders import pod as built_pod
from tests.support.chromium import open_file
from tests.support.gangs import settle
from tests.support.page_world import PageWorld
from tests.support.presence import present
from tests.support.scheduling import rig

HOSTILE = (
    "x<img src=http://127.0.0.1:9/i onerror=document.title=1><script>document.title=2</script>\"'&amp;\u202eevil\x1b[2J"
)
ESCAPED = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
PROFILE = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "p"}, "spec": {}}
Document = dict[str, Any]


class Elements(HTMLParser):
    """Element names, script attributes, and text outside scripts of an HTML page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.scripts: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.names.add(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        """Record text."""
        if self.cdata_elem != "script":
            self.text += data


def node(name: str, **spec: Any) -> Document:
    """Return a node for one pod with 1 CPU."""
    status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def pod(name: str) -> Document:
    """Return a pod that needs a whole node."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "p", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}


OBJECTS = [PROFILE, node(HOSTILE), node("cordoned", unschedulable=True), pod(HOSTILE), pod("other")]


def report(*args: str) -> str:
    """Return the HTML output of a command on files."""
    result = CliRunner().invoke(bayplan, [*args, "-o", "html"])
    assert result.exit_code in (0, 1), result.stderr
    return result.stdout


def simulation_report(path: Path) -> str:
    """Return the report of a simulation with an infeasible pod."""
    return report("simulate", str(path), "--allow-invalid")


def explanation_report(path: Path) -> str:
    """Return the report of an infeasible pod."""
    return report("explain", "-f", str(path), "--others-placed", "--pod", f"ns/{HOSTILE}", "--allow-invalid")


def comparison_report(path: Path) -> str:
    """Return the report of a comparison with a profile that also uses the cordoned node."""
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    other = path.with_name("other.yaml")
    other.write_text(yaml.safe_dump({**PROFILE, "spec": lenient}))
    return report("diff", "p", str(other), "--cluster", str(path), "--allow-invalid")


def operator_report(path: Path) -> str:
    """Return the status report of a scheduler with an infeasible pod."""
    return status_html(read_status_report(asyncio.run(status_response(path))))


async def status_response(path: Path) -> bytes:
    """Return the operator's response to the command."""
    del path
    world = PageWorld()
    world.rig.add(built_node(HOSTILE))
    world.add(built_pod(HOSTILE, requests={"cpu": "999"}))
    await settle(world.rig)
    documents = await operator_documents(world.sources, None)
    status = operator_status(StatusSources(world.rig.scheduler, Readiness(())), 0.0)
    return msgspec.json.encode({"status": status, "documents": documents})


REPORTS = {
    "simulate": simulation_report,
    "explain": explanation_report,
    "status": operator_report,
    "diff": comparison_report,
}
SCRIPTS = [{"type": "importmap"}, {"type": "application/json", "id": "documents"}, {"type": "module"}]


SCRIPTS_OF_OTHERS = (
    "<script>document.title='run'</script>"
    "<script src=\"data:text/javascript,document.title='run'\"></script>"
    "<img src=http://127.0.0.1:9/i onerror=\"document.title='run'\">"
)
in_every_report = pytest.mark.parametrize("name", REPORTS)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the report of each command on a file with the objects of the cluster."""
    path = tmp_path_factory.mktemp("reports") / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return {name: make(path) for name, make in REPORTS.items()}


@pytest.mark.parametrize(("name", "summary"), [("simulate", "pods"), ("explain", ""), ("diff", "pods")])
def test_a_report_begins_with_its_origin(pages: dict[str, str], name: str, summary: str) -> None:
    """Date, command and cluster, and a summary, are before the tables, also without scripts."""
    page = pages[name]
    facts = present(re.search(r'<p class="report-facts">(.*?)</p>', page))
    assert re.search(r"written: 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ; command: bayplan ", facts[1])
    assert "bayplan: " in facts[1]
    assert re.search(r"profiles?: \S+ revision \w{8}", facts[1])
    found = re.findall(r'<p class="report-summary">(.*?)</p>', page)
    assert bool(found) == bool(summary)
    assert all(summary in text for text in found)
    assert page.index('class="report-facts"') < page.index('class="tables"')


def test_the_report_of_a_status_begins_with_profiles_and_summary(pages: dict[str, str]) -> None:
    """The profiles have their revisions, and the summary counts the pods that wait."""
    page = pages["status"]
    assert re.search(r"profiles: default-scheduler revision \w+", page)
    assert '<p class="report-summary">Scheduling; pods that wait: 1 unschedulable</p>' in page


@in_every_report
def test_hostile_names_are_text(pages: dict[str, str], name: str) -> None:
    """A report has only elements of tables and text and its own scripts, and shows the name escaped."""
    page = Elements(pages[name])
    known = {"html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "h3", "p", "span"}
    assert page.names <= known | {"div", "table", "thead", "tbody", "tr", "th", "td", "script", "noscript", "header"}
    assert page.scripts == SCRIPTS
    assert ESCAPED in page.text


@in_every_report
def test_documents_cannot_end_their_element(pages: dict[str, str], name: str) -> None:
    """The embedded JSON is ASCII without "<", and its strings are escaped."""
    found = present(re.search(r'id="documents">(.*?)</script>', pages[name], re.DOTALL))
    assert found[1].isascii()
    assert "<" not in found[1]
    assert ESCAPED in str(json.loads(found[1])["work"][0]["name"])


@in_every_report
def test_a_browser_shows_a_report_without_requests(pages: dict[str, str], name: str, tmp_path: Path) -> None:
    """A report opened from a file causes no request and no violation of its policy."""
    file = tmp_path / "report.html"
    file.write_text(pages[name], encoding="utf-8")
    opened = open_file(file, tmp_path)
    assert (opened.console, opened.requests) == ([], [])
    assert ESCAPED in Elements(opened.dom).text


@in_every_report
def test_a_report_runs_only_its_own_scripts(pages: dict[str, str], name: str, tmp_path: Path) -> None:
    """The content security policy blocks each script of unescaped markup: inline, as data, and as a handler."""
    file = tmp_path / "report.html"
    file.write_text(pages[name].replace("</section>", f"{SCRIPTS_OF_OTHERS}</section>"), encoding="utf-8")
    opened = open_file(file, tmp_path)
    for blocked in ("Executing inline script ", "Loading the script 'data:", "Executing inline event handler "):
        assert any(each.startswith(blocked) for each in opened.console)
    assert all("Content Security Policy" in each for each in opened.console)
    assert opened.requests == []
    assert "<title>run" not in opened.dom


def test_requests_and_violations_are_detected(tmp_path: Path) -> None:
    """Unescaped markup is blocked by the policy and causes a request without the policy."""
    page = page_of(PAGE_TITLE, sections(operator_status(StatusSources(rig().scheduler, Readiness(())), 0.0)))
    injected = page.replace("</main>", f"{HOSTILE}</main>")
    file = tmp_path / "report.html"
    file.write_text(injected, encoding="utf-8")
    blocked = open_file(file, tmp_path)
    assert len(blocked.console) >= 3
    assert all("Content Security Policy" in each for each in blocked.console)
    assert blocked.requests == []
    file.write_text(injected.replace("Content-Security-Policy", "ignored"), encoding="utf-8")
    assert open_file(file, tmp_path).requests == ["http://127.0.0.1:9/i"]
