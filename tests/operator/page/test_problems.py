"""Tests of the problems that the page shows above its panels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from bayplan.introspection.status_model import ExtenderState, ProfileState
from bayplan.kube.watches.informer import Informer
from bayplan.page.overview import PageProblem, WatchesPanel, find_problems, watch_states
from bayplan.profiles.profile_status import ProfileReading
from msgspec.structs import replace

from scheduler_core.metrics.scheduler_metrics import LostBind, ProfileRecord
from tests.support.builders import node, pod
from tests.support.page_world import PageWorld
from tests.support.tables import table

PROFILE = ProfileState("pack", "r1", 0, 0, 0, 0, 0, 5, 0, 3)


def reading(**statuses: str) -> ProfileReading:
    """Return a live profile with conditions by type."""
    conditions = tuple(
        {"type": kind, "status": status, "reason": "Why", "message": f"message of {kind}"}
        for kind, status in statuses.items()
    )
    return ProfileReading("packing", "pack", "r1", "", conditions, ())


def found(world: PageWorld, **sources: Any) -> list[PageProblem]:
    """Return the problems with some sources replaced."""
    return list(find_problems(dataclasses.replace(world.sources, **sources)))


@table(
    "statuses, titles",
    ("good", {"Accepted": "True", "Ready": "True", "Contested": "False"}, []),
    ("rejected", {"Accepted": "False", "Ready": "True", "Stalled": "True"}, ["spec rejected"]),
    ("not ready", {"Accepted": "True", "Ready": "False"}, ["not Ready (Why)"]),
    ("degraded", {"Degraded": "True"}, ["Degraded (Why)"]),
    ("in progress", {"Reconciling": "True"}, []),
    ("shadow without a live profile", {"Comparing": "False"}, ["not Comparing (Why)"]),
)
def test_conditions_of_profiles(statuses: Mapping[str, str], titles: list[str]) -> None:
    """A condition that states a problem is shown once, with its message and a link to the profile."""
    world = PageWorld([reading(**statuses)])
    problems = found(world)
    assert [each.title for each in problems] == [f"profile packing: {title}" for title in titles]
    for each in problems:
        assert each.link == "#/profiles/packing"
        assert each.text.startswith("message of ")


def test_errors_and_extenders_of_profiles() -> None:
    """Recent errors and open circuits are shown; an old error is not."""
    world = PageWorld([reading()])
    extender = ExtenderState("http://a", "Open", "refused")
    recent = replace(PROFILE, last_error="boom", extenders=(extender,), last_error_seconds=5.0)
    problems = found(world, profile_states=lambda: (recent,))
    assert [(each.kind, each.title, each.text, each.link) for each in problems] == [
        ("plugin", "profile pack: 3 attempts ended in an error", "boom", "#/profiles/packing"),
        ("extender", "profile pack: extender http://a is Open", "refused", "#/profiles/packing"),
    ]
    old = replace(PROFILE, last_error="boom", last_error_seconds=3600.0)
    assert found(world, profile_states=lambda: (old,)) == []


def test_lost_binds() -> None:
    """A lost bind is shown for ten minutes."""
    world = PageWorld([reading()])
    lost = LostBind("shop/a", "n1", "n2", world.clock.wall())
    world.rig.context.metrics.records["pack"] = ProfileRecord(lost_binds=1, last_lost_bind=lost)
    [problem] = found(world, profile_states=lambda: (PROFILE,))
    assert problem.title == "profile pack: 1 bind lost to another client"
    assert "shop/a to node n2 while it was being bound to n1" in problem.text
    world.clock.advance(601)
    assert found(world, profile_states=lambda: (PROFILE,)) == []


def test_overcommitted_nodes() -> None:
    """A node with more requests than it can have is shown, with the amounts; a full node is not."""
    world = PageWorld()
    world.rig.add(*(node(name, allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}) for name in ("full", "over")))
    world.add(pod("a", requests={"cpu": "4"}, node_name="full"), pod("b", requests={"cpu": "3"}, node_name="over"))
    assert found(world) == []
    world.add(pod("c", requests={"cpu": "2"}, node_name="over"))
    [problem] = found(world)
    assert (problem.title, problem.link) == ("node over is overcommitted", "#/nodes?node=over")
    assert problem.text.startswith("cpu: 5 requested of 4; ")


def test_contested_nodes() -> None:
    """A node that another scheduler overcommits is shown once, with its rival, also when it has room again."""
    world = PageWorld()
    world.rig.context.contested.is_scheduling = True
    world.rig.add(node("n", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"}))
    theirs = pod("theirs", requests={"cpu": "2"}, node_name="n", scheduler_name="rival")
    world.add(pod("first", requests={"cpu": "3"}, node_name="n", scheduler_name="rival"), theirs)
    [problem] = found(world)
    assert (problem.title, problem.link) == ("node n is contested", "#/nodes?node=n")
    for words in ("1 pod that rival bound", "the last was default/theirs", "cpu: 5 requested of 4"):
        assert words in problem.text
    world.rig.scheduler.feed.pod_deleted(theirs)
    [problem] = found(world)
    assert "its pods fit" in problem.text


class ReadInformer(SimpleNamespace):
    """What is read of an informer, with the rule of the real one for stale objects."""

    staleness = Informer.staleness


def informer(**state: Any) -> Any:
    """Return what is read of an informer."""
    made = {
        "stale_seconds": 300.0,
        "known": {},
        "synced": True,
        "last_error": "",
        "last_event_time": 0.0,
        "unreadable": {},
        "undelivered": (),
    }
    fields: dict[str, Any] = {**made, **state}
    options = SimpleNamespace(stale_seconds=fields["stale_seconds"])
    return ReadInformer(_options=options, **fields)


@table(
    "state, seconds, title",
    ("current", {}, 60, ""),
    ("silent for less than the bound of readyz", {}, 299, ""),
    ("silent", {}, 301, "watch of pods is stale"),
    ("silent for less than a longer bound", {"stale_seconds": 600.0}, 301, ""),
    ("silent without a bound", {"stale_seconds": 0.0}, 9000, ""),
    ("opened again at once", {"last_error": "HTTP 401"}, 5, ""),
    ("failing", {"last_error": "HTTP 401"}, 11, "watch of pods is stale"),
    ("never listed", {"last_error": "HTTP 403", "synced": False}, 0, "watch of pods is stale"),
    ("unprocessed", {"undelivered": ("a/b",)}, 0, "1 change of pods failed to be processed"),
    ("undecodable", {"unreadable": {"a/b": SimpleNamespace(reason="odd")}}, 0, "1 object of pods cannot be decoded"),
)
async def test_watches(state: Mapping[str, Any], seconds: float, title: str) -> None:
    """A watch without events, or with an error, is stale; objects that cannot be decoded are named."""
    world = PageWorld()
    informers = {"pods": informer(_clock=world.clock, last_event_time=world.clock.now(), **state)}
    world.clock.advance(seconds)
    problems = found(world, informers=informers)
    assert [each.title for each in problems] == ([title] if title else [])
    assert [each.link for each in problems] == (["#/watches"] if title else [])
    sources = dataclasses.replace(world.sources, informers=cast("Any", informers))
    [shown] = (await WatchesPanel(sources).build(world.turns)).watches
    assert shown == watch_states(sources.informers, world.clock)[0]


def test_a_source_that_fails() -> None:
    """An error while problems are read is a problem itself, and the others are shown."""
    world = PageWorld([reading(Accepted="False")])

    def broken() -> Any:
        raise RuntimeError("broken")

    titles = [each.title for each in found(world, profile_states=broken)]
    assert titles == ["profile packing: spec rejected", "problems of plugins and binds cannot be shown"]
