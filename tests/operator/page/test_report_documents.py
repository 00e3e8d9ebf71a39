"""Tests of the documents of a report: each is built once, with explanations, within limits."""

from __future__ import annotations

import dataclasses

import pytest
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.kube.readiness import Readiness
from bayplan.page.page_documents import PageDocuments
from bayplan.page.report_documents import DocumentReader, ExplanationLimits, ReportDocuments, operator_documents
from bayplan.page.report_file import StatusReport, status_html

from scheduler_core.model.pod import PodCondition
from tests.support.builders import node, pod
from tests.support.gangs import group, members, settle
from tests.support.page_world import PageWorld


@pytest.fixture
async def world() -> PageWorld:
    """Return a cluster with twelve pods that wait for different causes, two waiting gangs, and a bound pod."""
    made = PageWorld()
    made.rig.add(node("a", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    for number in range(12):
        condition = PodCondition("PodScheduled", "False", "Unschedulable", f"cause {chr(97 + number)}")
        made.add(pod(f"large-{number}", requests={"cpu": "9"}, conditions=(condition,)))
    for name in ("one", "two"):
        made.rig.scheduler.group_feed.group_changed(group(name, 2))
        made.add(*members(2, name, requests={"cpu": "9"}))
    made.add(pod("small", requests={"cpu": "1"}))
    await settle(made.rig)
    return made


async def test_all_documents_of_an_operator(world: PageWorld) -> None:
    """A report has the documents of the page, the time, and explanations of pods and gangs."""
    found = await operator_documents(world.sources, None)
    assert set(found.panels) == {"overview", "pending", "gangs", "nodes", "profiles", "watches"}
    assert found.panels["overview"].objectives == ()
    assert found.taken == found.panels["overview"].time
    assert found.panels["nodes"].names == ("a",)
    assert found.panels["gangs"].total == 2
    kinds = [each.document.kind for each in found.work]
    assert (kinds.count("pod"), kinds.count("gang")) == (10, 2)
    assert all(each.document.attempts for each in found.work)
    page = PageDocuments(world.sources, 1)
    served = await page.read_report()
    assert set(served.panels) == {*found.panels, "rates"}
    assert len(served.panels["overview"].objectives) == 2


async def test_explanations_are_limited(world: PageWorld) -> None:
    """The number of explained pods and gangs and the time are limited."""
    found = await DocumentReader(world.sources, world.turns, ExplanationLimits(pods=3, gangs=1)).cluster()
    assert [each.document.kind for each in found.work] == ["pod"] * 3 + ["gang"]
    helped = [group for group in found.panels["pending"].groups if group.nearest_miss]
    assert len(helped) == 3
    late = await DocumentReader(world.sources, world.turns, ExplanationLimits(seconds=-1.0)).cluster()
    assert "gang" not in [each.document.kind for each in late.work]


async def test_nothing_is_explained_during_a_call_to_an_extender(world: PageWorld) -> None:
    """During a call to an extender nothing is explained, because a dry run would disturb the cycle."""
    world.rig.context.suspension.is_on = True
    found = await operator_documents(world.sources, None)
    assert found.work == ()
    assert found.panels["pending"].total > 0


async def test_a_standby_has_no_documents(world: PageWorld) -> None:
    """The report of a standby has only tables and no script."""
    readiness = Readiness(())
    readiness.stand_by(lambda: "standby, other_1 leads")
    documents = await operator_documents(dataclasses.replace(world.sources, readiness=readiness), None)
    assert documents == ReportDocuments()
    status = operator_status(StatusSources(world.rig.scheduler, readiness), 0.0)
    html = status_html(StatusReport(status, documents))
    assert "Standby, other_1 leads" in html
    assert "<script" not in html
