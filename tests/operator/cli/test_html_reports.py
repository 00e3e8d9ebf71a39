"""``-o html`` of all commands in a real browser: no request, no violation of the policy, and hostile names as text.

tests/page/test_report_files.py uses the panels of the reports that have some.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_rendering import RENDERERS
from bayplan.kube.readiness import Readiness
from bayplan.page.report_documents import operator_documents
from bayplan.page.status_report import read_status_report, status_html
from click.testing import CliRunner

from tests.support.builders import node as built_node
from tests.support.builders import pod as built_pod
from tests.support.chromium import open_file
from tests.support.gangs import settle
from tests.support.scheduling import rig
from tests.support.served_page import PageWorld

HOSTILE = (
    "x<img src=http://127.0.0.1:9/i onerror=document.title=1><script>document.title=2</script>\"'&amp;\u202eevil\x1b[2J"
)
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
PROFILE = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "p"}, "spec": {}}

Document = dict[str, Any]


class Tags(HTMLParser):
    """Names of all elements, all text except that of scripts, and the attributes of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.scripts: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element."""
        self.names.add(tag)
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        """Add text."""
        if self.cdata_elem != "script":
            self.text += data


def node(name: str, **spec: Any) -> Document:
    """Return a node for one pod with 1 CPU."""
    status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def pod(name: str) -> Document:
    """Return a pod that needs a whole node."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "p", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns"}, "spec": spec}


OBJECTS = [PROFILE, node(HOSTILE), node("cordoned", unschedulable=True), pod(HOSTILE), pod("other")]


def report(*args: str) -> str:
    """Return the page of a command on files."""
    result = CliRunner().invoke(bayplan, [*args, "-o", "html"])
    assert result.exit_code in (0, 1), result.stderr
    return result.stdout


def simulated(path: Path) -> str:
    """Return the page of a simulation with a pod that does not fit."""
    return report("simulate", str(path))


def explained(path: Path) -> str:
    """Return the page of a pod that has no node."""
    return report("explain", "-f", str(path), "--others-placed", "--pod", f"ns/{HOSTILE}")


def compared(path: Path) -> str:
    """Return the page of a profile that also uses the cordoned node."""
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    other = path.with_name("other.yaml")
    other.write_text(yaml.safe_dump({**PROFILE, "spec": lenient}))
    return report("diff", "p", str(other), "--cluster", str(path))


def status_of_an_operator(path: Path) -> str:
    """Return the page of a scheduler with a pod that fits no node, as the operator and the command make it."""
    return status_html(read_status_report(asyncio.run(status_answer(path))))


async def status_answer(path: Path) -> bytes:
    """Return the operator's answer to the command."""
    del path
    world = PageWorld()
    world.rig.add(built_node(HOSTILE))
    world.add(built_pod(HOSTILE, requests={"cpu": "999"}))
    await settle(world.rig)
    documents = await operator_documents(world.sources, None)
    status = operator_status(StatusSources(world.rig.scheduler, Readiness(())), 0.0)
    return msgspec.json.encode({"status": status, "documents": documents})


REPORTS = [
    pytest.param(simulated, id="simulate"),
    pytest.param(explained, id="explain"),
    pytest.param(status_of_an_operator, id="status"),
    pytest.param(compared, id="diff"),
]
SCRIPTS = [{"type": "importmap"}, {"type": "application/json", "id": "documents"}, {"type": "module"}]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A file with the cluster."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


@pytest.mark.parametrize("make", REPORTS)
def test_hostile_names_are_text(cluster: Path, make: Callable[[Path], str]) -> None:
    """The page has only the elements of tables and text, and shows the name with its control characters escaped.

    It has exactly its own three scripts.
    """
    page = Tags(make(cluster))
    known = {"html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "h3", "p", "span"}
    assert page.names <= known | {"div", "table", "thead", "tbody", "tr", "th", "td", "script", "noscript"}
    assert page.scripts == SCRIPTS
    assert SHOWN in page.text


@pytest.mark.parametrize("make", REPORTS)
def test_documents_cannot_end_their_element(cluster: Path, make: Callable[[Path], str]) -> None:
    """JSON in ASCII without the character that begins tags; its strings have control characters escaped as text."""
    found = re.search(r'id="documents">(.*?)</script>', make(cluster), re.DOTALL)
    assert found is not None
    assert found[1].isascii()
    assert "<" not in found[1]
    assert SHOWN in str(json.loads(found[1])["work"][0]["name"])


@pytest.mark.parametrize("make", REPORTS)
def test_a_browser_shows_a_report_without_a_request(cluster: Path, make: Callable[[Path], str], tmp_path: Path) -> None:
    """From file://, with its own style sheet and scripts only; nothing violates the policy."""
    file = tmp_path / "report.html"
    file.write_text(make(cluster), encoding="utf-8")
    opened = open_file(file, tmp_path)
    assert (opened.console, opened.requests) == ([], [])
    assert SHOWN in Tags(opened.dom).text


@pytest.mark.parametrize("make", REPORTS)
@pytest.mark.parametrize(
    "markup",
    [
        pytest.param("<script>document.title='run'</script>", id="inline"),
        pytest.param("<script src=\"data:text/javascript,document.title='run'\"></script>", id="data"),
        pytest.param("<img src=http://127.0.0.1:9/i onerror=\"document.title='run'\">", id="handler"),
    ],
)
def test_a_report_runs_only_its_own_scripts(
    cluster: Path, make: Callable[[Path], str], markup: str, tmp_path: Path
) -> None:
    """The policy blocks markup of a name even if it was not escaped."""
    file = tmp_path / "report.html"
    file.write_text(make(cluster).replace("</section>", f"{markup}</section>"), encoding="utf-8")
    opened = open_file(file, tmp_path)
    assert opened.console
    assert all("Content Security Policy" in each for each in opened.console)
    assert opened.requests == []
    assert "<title>run" not in opened.dom


def test_a_request_and_a_violation_would_be_noticed(tmp_path: Path) -> None:
    """The same page with markup of a name that was not escaped: blocked by its policy, requested without one."""
    page = RENDERERS["html"](operator_status(StatusSources(rig().scheduler, Readiness(())), 0.0))
    injected = page.replace("</main>", f"{HOSTILE}</main>")
    file = tmp_path / "report.html"
    file.write_text(injected, encoding="utf-8")
    blocked = open_file(file, tmp_path)
    assert len(blocked.console) >= 3
    assert all("Content Security Policy" in each for each in blocked.console)
    assert blocked.requests == []
    file.write_text(injected.replace("Content-Security-Policy", "ignored"), encoding="utf-8")
    assert open_file(file, tmp_path).requests == ["http://127.0.0.1:9/i"]
