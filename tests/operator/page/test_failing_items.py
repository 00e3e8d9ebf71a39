"""One item that cannot be built shows its error, and every document still shows all others."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from bayplan.explanation import building
from bayplan.explanation.building import explain_unscheduled
from bayplan.explanation.documents import Verdict
from bayplan.introspection import status_building
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.kube.readiness import Readiness
from bayplan.page.node_map import NodesPanel
from bayplan.page.pending_work import GangsPanel, PendingPanel
from bayplan.page.report_documents import operator_documents

from tests.support.builders import node, pod
from tests.support.gangs import group, members, settle
from tests.support.page_world import PageWorld

_FAULT = "internal error: RuntimeError: planted; please report it"


@pytest.fixture
async def world() -> PageWorld:
    """Return a node, two pods with different causes and two gangs, all of which wait."""
    made = PageWorld()
    made.rig.add(node("a", allocatable={"cpu": "2", "pods": "9"}))
    made.add(pod("bad", requests={"cpu": "9"}), pod("good", node_selector={"disk": "ssd"}))
    for name in ("bad", "good"):
        made.rig.scheduler.group_feed.group_changed(group(f"{name}-gang", min_member=2))
        made.add(*members(2, f"{name}-gang", requests={"cpu": "7"}))
    await settle(made.rig)
    return made


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything fail that is built for the pod or the gang whose name begins with ``bad``."""

    def plant(module: Any, name: str, named: int) -> None:
        call = getattr(module, name)

        def raising(*args: Any, **kwargs: Any) -> Any:
            subject = args[named]
            key = subject.key.name if hasattr(subject.key, "name") else subject.metadata.name
            if key.startswith("bad"):
                raise RuntimeError("planted")
            return call(*args, **kwargs)

        monkeypatch.setattr(module, name, raising)

    plant(building, "_alone", 1)
    plant(building, "_explained_gang", 1)
    plant(status_building, "_gang_state", 0)
    logging.disable(logging.ERROR)


@pytest.fixture(autouse=True)
def _logging() -> Any:
    yield
    logging.disable(logging.NOTSET)


async def test_pending_work(world: PageWorld) -> None:
    """The group of the pod that cannot be explained has the error; the others have what is missing."""
    found = await PendingPanel(world.sources, dry_runs=9).build(world.turns)
    by_pod = {each.examples[0]: each for each in found.groups}
    assert _FAULT in by_pod["default/bad"].error
    assert by_pod["default/good"].error == ""
    assert by_pod["default/good"].nearest_miss


async def test_gangs_of_page_and_status(world: PageWorld) -> None:
    """The gang that cannot be shown has the error as its message; the other one is complete."""
    panel = await GangsPanel(world.sources).build(world.turns)
    status = operator_status(StatusSources(world.rig.scheduler, Readiness(())), 0.0)
    for gangs in (panel.gangs, status.gangs):
        messages = {each.gang: each.message for each in gangs}
        assert messages["default/bad-gang"] == _FAULT
        assert messages["default/good-gang"] not in ("", _FAULT)


async def test_report(world: PageWorld) -> None:
    """The report has all panels, and the explanations of the other gang and pod."""
    found = await operator_documents(world.sources, None)
    assert set(found.panels) == {"overview", "pending", "gangs", "nodes", "profiles", "watches"}
    headlines = {f"{each.namespace}/{each.name}": each.document.explanation.headline for each in found.work}
    assert _FAULT in headlines["default/bad"]
    assert _FAULT not in headlines["default/good"]
    assert _FAULT not in headlines["default/good-gang"]
    assert msgspec.json.encode(found)


async def test_report_without_a_panel(world: PageWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel that cannot be built is missing, and the report names it."""

    async def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(NodesPanel, "build", fail)
    found = await operator_documents(world.sources, None)
    assert set(found.panels) == {"overview", "pending", "gangs", "profiles", "watches"}
    assert found.problems == (f"the panel nodes cannot be shown: {_FAULT}",)


async def test_unscheduled_pods_of_a_simulation(world: PageWorld) -> None:
    """The pod that cannot be explained has a verdict of its own; the others are explained."""
    found = explain_unscheduled(world.rig.scheduler, world.pods.values(), 20)
    verdicts = {each.explanation.name: each.explanation.verdict for each in found.groups}
    assert verdicts["bad"] is Verdict.ERROR
    assert verdicts["good"] is Verdict.UNSCHEDULABLE
