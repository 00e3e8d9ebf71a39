"""Panels of the reports of ``bayplan explain``, ``simulate`` and ``diff``, opened from file:// without a server."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner
from selenium.webdriver.common.keys import Keys

from hack.browser import DESKTOP, PHONE, Browser
from tests.page.test_accessibility import violations
from tests.support.tables import table

HOSTILE = "x<img src=q onerror=document.title=1></script><!--\u202evil"
SHOWN = HOSTILE.replace("\u202e", "\\u202e")
ZONE = "topology.kubernetes.io/zone"
Document = dict[str, Any]
Written = Callable[..., str]


def node(name: str, zone: str) -> Document:
    """Return a node with 2 CPUs."""
    status = {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "9"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone}}, "status": status}


def pod(name: str, cpu: str, group: str = "", profile: str = "default-scheduler") -> Document:
    labels = {"bayplan.dev/pod-group": group} if group else {}
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "ns", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"schedulerName": profile, "containers": [container]},
    }


GROUP = {
    "apiVersion": "bayplan.dev/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "ns"},
    "spec": {"minMember": 3},
}
PROFILE = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "live"}}
DEFAULT = {"schedulerName": "default-scheduler"}
OBJECTS = [
    {**PROFILE, "spec": DEFAULT},
    node("a", "east"),
    node("b", "east"),
    pod("small", "1"),
    pod("large", "8"),
    pod("nightly", "1", profile="nightly"),
    GROUP,
    *(pod(f"member-{number}", "2", "train") for number in range(3)),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file with two nodes, a feasible pod, two pods that are not scheduled, and an infeasible gang."""
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file with a profile that ignores requested resources."""
    path = tmp_path_factory.mktemp("other") / "other.yaml"
    spec = {**DEFAULT, "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    path.write_text(yaml.safe_dump({**PROFILE, "spec": spec}))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a function that writes the report of a command, once per arguments, and returns its file:// URL."""

    @cache
    def address(*args: str) -> str:
        result = CliRunner().invoke(bayplan, [*args, "-o", "html"])
        assert result.exit_code in (0, 1), result.output
        file = tmp_path_factory.mktemp("written") / "report.html"
        file.write_text(result.stdout, encoding="utf-8")
        return file.as_uri()

    return address


def test_a_simulation_has_panels(browser: Browser, cluster: Path, written: Written) -> None:
    """A report of simulate has overview, pending pods, gangs and the map of nodes, but no ages: its time is virtual."""
    browser.open(written("simulate", str(cluster)))
    browser.shows("h1", "Simulation")
    browser.shows(".overview", "gangs that wait")
    pending = browser.text("#pending")
    assert "Insufficient cpu" in pending
    assert "needs 8 cpu, 2 free" in pending
    assert 'no profile serves schedulerName "nightly"' in pending
    assert f"bayplan explain -f {cluster} --others-placed -n ns large" in pending
    assert "ns/train" in browser.text("#gangs")
    assert "oldest" not in pending
    assert "waits" not in browser.text("#gangs .measure")
    assert " up " not in browser.text(".overview")
    browser.find("#nodes canvas")
    assert "Fragmentation" in browser.text("#nodes")
    assert "Room for a shape" not in browser.text("#nodes")
    assert browser.all("#profiles, #rates") == []
    assert "2 nodes" in browser.text("#nodes")


def test_a_comparison_has_panels_of_both_sides(browser: Browser, cluster: Path, other: Path, written: Written) -> None:
    """A report of diff has pending pods and a map for each profile; a node is selected on both maps."""
    browser.open(written("diff", "live", str(other), "--cluster", str(cluster), "--seed", "2"))
    browser.shows("h1", f"live and {other}")
    browser.shows("#pending-before", "Pending work, before: live")
    before, after = browser.text("#pending-before"), browser.text("#pending-after")
    assert "5 pods in 3 groups" in before
    assert "Insufficient cpu" in before
    assert "1 pod in 1 group" in after
    assert "Insufficient cpu" not in after
    assert 'no profile serves schedulerName "nightly"' in after
    assert f"bayplan diff live {other} --cluster {cluster} --seed 2" in before
    assert "ns/train" in browser.text("#gangs-before")
    assert "No gang waits." in browser.text("#gangs-after")
    assert len(browser.all("#nodes canvas")) == 2
    assert re.search("2 nodes, [12] differ in cpu", browser.text("#nodes"))
    browser.find("#nodes .map").send_keys(Keys.HOME)
    browser.shows("#nodes .box[role=status]", "Node a")
    browser.shows("#nodes [aria-label='Use of the selected node']", "before: live after")
    browser.run("location.hash = '#/nodes?resource=pods'; location.reload()")
    browser.shows("#nodes", "differ in pods")
    # The test scrolls, so that the panel of the permalink no longer stays in view.
    browser.run("dispatchEvent(new Event('wheel')); scrollTo(0, 0)")
    browser.find('#pending-before a[href="#/work/pod/ns/large?side=before"]').click()
    browser.shows("#work", "pod ns/large, before: live")
    browser.shows("#work", "Insufficient cpu")
    browser.run("location.hash = '#/work/pod/ns/large?side=after'")
    browser.shows("#work", "this report does not contain its explanation")


def test_a_node_with_a_hostile_name_is_text_on_the_map(browser: Browser, tmp_path: Path, written: Written) -> None:
    """The hostile name of a node that is selected by keyboard is shown as text."""
    path = tmp_path / "hostile.yaml"
    path.write_text(yaml.safe_dump_all([node(HOSTILE, "east"), pod("large", "8")]))
    browser.open(written("simulate", str(path), "--allow-invalid"))
    assert f"node {SHOWN}: needs 8 cpu, 2 free" in browser.text("#pending")
    browser.find("#nodes .map").send_keys(Keys.HOME, Keys.END)
    browser.shows("#nodes .aside", SHOWN)
    assert browser.all("img") == []


def test_an_example_of_a_simulation_is_explained(browser: Browser, cluster: Path, written: Written) -> None:
    """The report explains the oldest pod of each cause and the first gangs; for others it names the command."""
    address = written("simulate", str(cluster))
    browser.open(address)
    browser.find('#pending a[href="#/work/pod/ns/large"]').click()
    browser.shows("#work", "NodeResourcesFit")
    assert "Attempts" not in browser.text("#work")
    browser.find('#gangs a[href^="#/work/gang/ns/train"]').click()
    browser.shows("#work", "gang ns/train")
    assert "Not explained" not in browser.text("#work")
    browser.run("location.hash = '#/work/pod/ns/small'")
    browser.shows("#work", "this report does not contain its explanation; use bayplan explain")


@table("name, shown", ("pod", "large", "Pod ns/large"), ("gang", "podgroup/train", "Gang ns/train"))
def test_an_explanation_has_its_panel(browser: Browser, cluster: Path, written: Written, name: str, shown: str) -> None:
    """The panel of the pod or gang is shown at once, also after a reload, with the command that prints the same."""
    browser.open(written("explain", "-f", str(cluster), "--seed", "3", "-n", "ns", name))
    for _ in range(2):
        browser.shows("h1", shown)
        browser.shows("#work", f"{shown[:1].lower()}{shown[1:]}")
        browser.shows("#work", f"bayplan explain {name} -n ns -f {cluster} --seed 3")
        browser.shows("#work", "Insufficient cpu")
        assert browser.all("#work form, #pending, #nodes, .banner") == []
        browser.run("location.reload()")


@table(
    "args",
    ("simulate", ["simulate"]),
    ("explain", ["explain", "-n", "ns", "large", "-f"]),
    ("diff", ["diff", "live", "live", "--cluster"]),
)
def test_tables_need_no_script(browser: Browser, cluster: Path, written: Written, args: list[str]) -> None:
    """Without scripts the title, a note and the tables are shown."""
    address = written(*args, str(cluster))
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.driver.get(address)
        shown = browser.command("DOM.getDocument", depth=-1)
        text = str(shown)
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert "The panels need JavaScript; the tables do not." in text
    assert "Insufficient cpu" in text or args[0] == "diff"
    assert "'nodeName': 'CANVAS'" not in text
    assert "'id', 'pending'" not in text


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@table(
    "args",
    ("simulate", ["simulate"]),
    ("explain", ["explain", "-n", "ns", "large", "-f"]),
    ("diff", ["diff", "live", "live", "--cluster"]),
)
def test_axe_finds_nothing(
    browser: Browser, cluster: Path, written: Written, *, args: list[str], size: tuple[int, int], dark: bool
) -> None:
    """Panels and tables of a report have no axe-core violations."""
    browser.open(written(*args, str(cluster)), size, dark=dark)
    browser.shows("main", "Insufficient cpu")
    assert violations(browser) == []


def test_dark_and_narrow(browser: Browser, cluster: Path, written: Written) -> None:
    """The report follows the system's theme and is no wider than a phone."""
    browser.open(written("simulate", str(cluster)), (360, 740), dark=True)
    browser.find("#nodes canvas")
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"
    assert browser.run("return document.documentElement.scrollWidth") <= 360
