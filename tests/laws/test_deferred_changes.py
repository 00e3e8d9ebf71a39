"""Law: a change that arrives while a cycle is suspended and raises twice when it is applied is delivered again.

Each source of objects reports a change of each kind to a scheduler, while a cycle is suspended. At its end the change
raises twice, before or after a part of it is applied. The source delivers it again, so that the scheduler is in the
state of one in which nothing raised.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from bayplan.gangs.group_sources import GroupSources, UsedApis
from bayplan.kube.served_apis import OPTIONAL, REQUIRED
from bayplan.kube.watches.cluster_informers import ClusterInformers, DeviceInformers
from bayplan.kube.watches.informer import Informer
from bayplan.kube.watches.undelivered_changes import Unreadable
from bayplan.resources.pod_group import PodGroup

from scheduler_core.errors import ForbiddenError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.nullable_forms import readable_part
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.workloads import PriorityClass
from tests.support.builders import pod
from tests.support.gangs import member
from tests.support.owned_world import OwnedWorld, of_job
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

Report = Callable[["Reported"], None]
_KINDS = 20
_BROKEN = ("group_changed", "gang_changed", "on_event")
"""Methods of the queue that raise after a part of a change is applied."""


class Reported:
    """A scheduler with all sources of PodGroups and all informers, without a connection."""

    def __init__(self) -> None:
        self.made: Rig = default_rig()
        scheduler, clock, connection = self.made.scheduler, self.made.clock, None
        scheduler.context.queue.gangs.count_volcano()
        self.informers = ClusterInformers(connection, scheduler, clock)  # type: ignore[arg-type]
        apis = UsedApis(trees=True, claims=True, volcano=True)
        self.sources = GroupSources(scheduler, self.informers, connection, clock, apis=apis)  # type: ignore[arg-type]
        self.served: dict[GroupSource, Informer[Any]] = {}
        for each in self.sources.served:
            each.version = next(iter(each._api.translations))
            self.served[each.source] = each._informer()
        self.bodies: dict[str, dict[str, Any]] = {}
        self.version = 0
        for source in GroupSource:
            name = f"member-{source.name.lower()}"
            if source is GroupSource.BAYPLAN:
                self.made.add(member(name, "train"))
            elif source is GroupSource.NATIVE:
                self.made.add(pod(name, group="train"))

    def metadata(self, name: str, uid: str = "u") -> dict[str, Any]:
        """Return the metadata of the next version of an object."""
        self.version += 1
        meta = {"name": name, "namespace": "default", "uid": uid, "generation": self.version}
        return {**meta, "resourceVersion": str(self.version)}

    def list_groups(self) -> None:
        """Deliver the periodic list of Bayplan's PodGroups."""
        self.version += 1
        self.sources.bayplan.listed(PodGroup, list(self.bodies.values()), str(self.version))

    def settle(self) -> None:
        """Wait until sources have delivered again what failed; watches first, and then the periodic list."""
        self.made.clock.advance(10.0)
        self.list_groups()
        self.made.clock.advance(10.0)
        self.made.queue.flush()

    def state(self) -> dict[str, Any]:
        """Return what the scheduler has of groups and their members."""
        queue = self.made.queue
        gangs = queue.gangs
        return {
            "groups": {gang.key: (gang.group, gang.refusal) for gang in gangs},
            "refused": dict(gangs._refused),
            "composites": {str(key): gangs.forest.get(key) for key in _COMPOSITES},
            "unread": {source: gangs.unread(source) for source in GroupSource},
            "obstacles": {pod.uid: pod.group and gangs.obstacle(pod.group) for pod, _ in _places(queue)},
            "interrupted": set(gangs.interrupted),
            "places": sorted((pod.uid, place) for pod, place in _places(queue)),
            "devices": self.made.columns.devices.withheld,
        }


def _places(queue: Any) -> list[tuple[Any, str]]:
    return [(pod, place) for place, pod in queue.readings.places()]


_COMPOSITES = (GroupKey(GroupSource.COMPOSITE, "default", "root"),)


def _bayplan(minimum: int, uid: str = "u", **spec: Any) -> Report:
    def report(to: Reported) -> None:
        body = {"metadata": to.metadata("train", uid), "spec": {"minMember": minimum, **spec}}
        to.bodies["train"] = body
        to.sources.bayplan.seen(PodGroup, body)

    return report


def _bayplan_gone(to: Reported) -> None:
    to.sources.bayplan.gone(PodGroup, to.bodies.pop("train"))


def _class(value: int | None) -> Report:
    def report(to: Reported) -> None:
        informer = to.informers.by_resource["priorityclasses"]
        if value is None:
            informer._delete("/high")
        else:
            meta = ObjectMeta("high", uid="high", resource_version=str(to.metadata("high")["generation"]))
            informer._upsert("/high", PriorityClass(meta, value))

    return report


def _served(source: GroupSource, spec: dict[str, Any], name: str = "train", uid: str = "u") -> Report:
    def report(to: Reported) -> None:
        informer = to.served[source]
        made = msgspec.convert({"metadata": to.metadata(name, uid), "spec": spec}, informer._kind)
        informer._upsert(f"default/{name}", made)

    return report


def _served_gone(source: GroupSource, name: str = "train") -> Report:
    return lambda to: to.served[source]._delete(f"default/{name}")


def _unreadable(source: GroupSource, name: str = "train") -> Report:
    def report(to: Reported) -> None:
        informer, key = to.served[source], f"default/{name}"
        shown = informer.known[key]
        informer.unreadable[key] = Unreadable(shown, "spec: expected an object")
        informer.undelivered.deliver_unreadable(key, shown, "spec: expected an object")

    return report


def _served_listed(source: GroupSource) -> Report:
    def report(to: Reported) -> None:
        informer = to.served[source]
        informer._finish_list(set(informer.known), str(to.metadata("")["generation"]))

    return report


def _other_version(source: GroupSource) -> Report:
    """Let the groups of a source be read in another version, in which none exists."""

    def report(to: Reported) -> None:
        groups = next(each for each in to.sources.served if each.source is source)
        groups._unseen.update(groups._latest)
        to.served[source] = groups._informer()

    return report


_NATIVE, _COMPOSITE, _VOLCANO = GroupSource.NATIVE, GroupSource.COMPOSITE, GroupSource.VOLCANO
_PLUGINS = GroupSource.SCHEDULER_PLUGINS
_TWO, _THREE = ({"schedulingPolicy": {"gang": {"minCount": count}}} for count in (2, 3))
_ONE_GROUP, _TWO_GROUPS = ({"schedulingPolicy": {"gang": {"minGroupCount": count}}} for count in (1, 2))
_CASES: dict[str, tuple[list[Report], Report]] = {
    "bayplan: list": ([_bayplan(2)], Reported.list_groups),
    "bayplan: created": ([Reported.list_groups], _bayplan(1)),
    "bayplan: changed": ([Reported.list_groups, _bayplan(1)], _bayplan(2)),
    "bayplan: deleted": ([Reported.list_groups, _bayplan(1)], _bayplan_gone),
    "bayplan: created again": ([Reported.list_groups, _bayplan(1)], _bayplan(2, "other")),
    "bayplan: refused": ([Reported.list_groups], _bayplan(0)),
    "bayplan: refused and deleted": ([Reported.list_groups, _bayplan(0)], _bayplan_gone),
    "bayplan: refused, of another UID": ([Reported.list_groups, _bayplan(1)], _bayplan(0, "other")),
    "bayplan: class created": ([Reported.list_groups, _bayplan(1, priorityClassName="high")], _class(7)),
    "bayplan: class created again": (
        [Reported.list_groups, _bayplan(1, priorityClassName="high"), _class(7)],
        _class(8),
    ),
    "bayplan: class deleted": (
        [Reported.list_groups, _bayplan(1, priorityClassName="high"), _class(7)],
        _class(None),
    ),
    **{
        f"{name}: {what}": case
        for name, source, one, two, invalid in (
            ("scheduler-plugins", _PLUGINS, {"minMember": 1}, {"minMember": 2}, None),
            ("native", _NATIVE, _TWO, _THREE, {}),
            ("volcano", _VOLCANO, {"minMember": 1}, {"minMember": 2}, {"minMember": 1, "minTaskMember": {"a": 1}}),
        )
        for what, case in {
            "list": ([_served(source, one)], _served_listed(source)),
            "created": ([_served_listed(source)], _served(source, one)),
            "changed": ([_served_listed(source), _served(source, one)], _served(source, two)),
            "deleted": ([_served_listed(source), _served(source, one)], _served_gone(source)),
            "created again": ([_served_listed(source), _served(source, one)], _served(source, two, uid="other")),
            "unreadable": ([_served_listed(source), _served(source, one)], _unreadable(source)),
            "readable again": (
                [_served_listed(source), _served(source, one), _unreadable(source)],
                _served(source, two),
            ),
            "deleted while another version is read": (
                [_served_listed(source), _served(source, one), _other_version(source)],
                _served_listed(source),
            ),
            **(
                {}
                if invalid is None
                else {
                    "refused": ([_served_listed(source)], _served(source, invalid)),
                    "refused and deleted": (
                        [_served_listed(source), _served(source, invalid)],
                        _served_gone(source),
                    ),
                }
            ),
        }.items()
    },
    "volcano: class created": (
        [_served_listed(_VOLCANO), _served(_VOLCANO, {"minMember": 1, "priorityClassName": "high"})],
        _class(7),
    ),
    "composite: list": ([_served(_COMPOSITE, _ONE_GROUP, "root")], _served_listed(_COMPOSITE)),
    "composite: created": ([_served_listed(_COMPOSITE)], _served(_COMPOSITE, _ONE_GROUP, "root")),
    "composite: changed": (
        [_served_listed(_COMPOSITE), _served(_COMPOSITE, _ONE_GROUP, "root")],
        _served(_COMPOSITE, _TWO_GROUPS, "root"),
    ),
    "composite: deleted": (
        [_served_listed(_COMPOSITE), _served(_COMPOSITE, _ONE_GROUP, "root")],
        _served_gone(_COMPOSITE, "root"),
    ),
}
"""Changes before, and the one that raises."""


def _raise(*_: Any, **__: Any) -> None:
    raise RuntimeError("injected")


@contextmanager
def failing_changes(made: Rig, how: str) -> Iterator[list[Any]]:
    """Suspend a cycle within the block; what is reported there raises twice when it is applied at the end."""
    suspension, queue = made.context.suspension, made.queue
    suspension.begin()
    deferred = list[Any]()
    yield deferred
    deferred += suspension._deferred
    if how == "before":
        suspension._deferred = deque((_raise, on_error) for _, on_error in deferred)
    broken = {name: getattr(queue, name) for name in _BROKEN} if how == "midway" else {}
    for name in broken:
        setattr(queue, name, _raise)
    suspension.end()
    for name, method in broken.items():
        setattr(queue, name, method)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("how", ["before", "midway"])
@pytest.mark.parametrize(("earlier", "last"), _CASES.values(), ids=_CASES)
def test_a_change_of_a_group_is_delivered_again(earlier: list[Report], last: Report, how: str) -> None:
    """Groups, their refusals, gates and the places of members are as if nothing had raised."""
    found = []
    for mode in (how, "not at all"):
        to = Reported()
        for each in earlier:
            each(to)
        before = to.state()
        with failing_changes(to.made, mode) as deferred:
            last(to)
        assert deferred
        to.settle()
        found.append(to.state())
    assert found[0] == found[1]
    assert found[1] != before


def test_every_deferred_change_of_an_informer_has_a_receiver_of_its_error() -> None:
    """For each kind and each method of its sink, the informer is called if the change fails when it is applied."""
    to = Reported()
    scheduler, suspension = to.made.scheduler, to.made.context.suspension
    connection: Any = None
    devices = DeviceInformers(connection, to.informers, scheduler.device_feed, to.made.clock)
    tasks: Any = SimpleNamespace(create_task=lambda run: run.close())
    devices._begin({name: f"/apis/resource.k8s.io/v1/{name}" for name in (*REQUIRED, *OPTIONAL)}, tasks)
    assert len(to.informers.by_resource) > _KINDS
    found: dict[str, set[bool]] = {}
    suspension.begin()
    for name, informer in to.informers:
        undelivered, shown = informer.undelivered, readable_part({"metadata": to.metadata("train")}, informer._kind)
        calls: dict[str, Callable[[], None]] = {
            "add": partial(undelivered.deliver, "a", None, shown),
            "update": partial(undelivered.deliver, "a", shown, shown),
            "delete": partial(undelivered.deliver, "a", shown, None),
            "unreadable": partial(undelivered.deliver_unreadable, "a", shown, "why"),
            "synced": undelivered.deliver_synced,
        }
        for method, call in calls.items():
            count = len(suspension._deferred)
            call()
            assert suspension.on_error is None
            found.setdefault(method, set()).update(error is not None for _, error in [*suspension._deferred][count:])
            assert False not in found[method], name
    assert all(True in values for values in found.values())


@pytest.mark.parametrize("how", ["before", "not at all"])
def test_a_timer_of_the_scheduler_runs_again(how: str) -> None:
    """A timer that reports a change while a cycle is suspended runs again if the change fails, and else does not."""
    made, applied = default_rig(), list[int]()
    clock, suspension = made.context.clock, made.context.suspension
    clock.call_later(1.0, lambda: suspension.run_or_defer(applied.append, 1))
    with failing_changes(made, how):
        made.clock.advance(1.0)
    assert applied == ([] if how == "before" else [1])
    made.clock.advance(100.0)
    assert applied == [1]


async def _reported_alone(world: OwnedWorld, _: Pod, how: str) -> None:
    with failing_changes(world.rig, how):
        await world.own("jobs", {"parallelism": 1})


async def _refused(world: OwnedWorld, _: Pod, how: str) -> None:
    world.requests.error = ForbiddenError("podgroups is forbidden")
    with failing_changes(world.rig, how):
        await world.own("jobs", {"parallelism": 2})


async def _left(world: OwnedWorld, each: Pod, how: str) -> None:
    await world.own("jobs", {"parallelism": 1})
    world.rig.scheduler.feed.pod_deleted(each)
    with failing_changes(world.rig, how):
        await world.settle()


@pytest.mark.parametrize("how", ["before", "midway"])
@table(
    "change, obstacle",
    ("one member", _reported_alone, ""),
    ("no permission", _refused, "podgroups is forbidden"),
    ("no member is left", _left, "no valid PodGroup"),
)
async def test_a_group_of_an_owner_is_delivered_again(change: Any, obstacle: str, how: str) -> None:
    """The controller of owners delivers groups of one member again, and why others do not exist."""
    world, each = OwnedWorld({"kind": "Job"}), of_job("a")
    world.rig.add(each)
    async with world.running():
        await change(world, each, how)
        await world.settle(60.0)
    found = world.obstacle(each)
    assert obstacle in found
    assert bool(found) == bool(obstacle)
