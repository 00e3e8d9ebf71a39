"""Tests of BayplanGroups: which version of an object is accepted, and its priority."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.resources.pod_group import PodGroup

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.pod_group import PodGroup as Group
from scheduler_core.model.workloads import PriorityClass
from tests.operator.gangs.group_recording import RecordingObserver, RecordingSink
from tests.support.presence import present
from tests.support.tables import table

Body = dict[str, Any]
KEY = GroupKey(GroupSource.BAYPLAN, "ml", "train")


class World:
    """Groups with a recording sink and observer."""

    def __init__(self) -> None:
        self.sink = RecordingSink()
        self.observer = RecordingObserver()
        self.groups = BayplanGroups(self.sink, self.observer)

    def seen(self, body: Body) -> None:
        self.groups.seen(PodGroup, body)

    def gone(self, body: Body) -> None:
        self.groups.gone(PodGroup, body)

    def listed(self, *bodies: Body, version: int) -> None:
        self.groups.listed(PodGroup, bodies, str(version))

    @property
    def minimum(self) -> int | None:
        """Field minMember of the accepted group, or None."""
        group = self.sink.groups.get(KEY)
        return None if group is None else group.min_member


@pytest.fixture
def world() -> World:
    return World()


def body(version: int = 1, min_member: object = 2, namespace: str = "ml", uid: str = "u", **spec: Any) -> Body:
    """Return the group ``train``; its generation is its version."""
    metadata = {"name": "train", "namespace": namespace, "uid": uid, "generation": version}
    return {"metadata": {**metadata, "resourceVersion": str(version)}, "spec": {"minMember": min_member, **spec}}


def priority_class(value: int, name: str = "high") -> PriorityClass:
    return PriorityClass(ObjectMeta(name), value)


def test_a_group_is_added_changed_and_deleted(world: World) -> None:
    """The sink and the observer are called for each change."""
    world.seen(body(1))
    world.seen(body(2, 3))
    world.gone(body(3, 3))
    assert [call.min_member if isinstance(call, Group) else call for call in world.sink.calls] == [2, 3, KEY]
    assert world.observer.calls == ["known ml/train u 1 {}", "known ml/train u 2 {}", "gone ml/train"]


def test_an_api_is_served_after_its_first_list(world: World) -> None:
    """Groups are served after their first list, and withheld after unlisted() until the next list."""
    world.seen(body(1))
    assert world.sink.served == []
    world.groups.listed(PodGroup, [body(1)], "1")
    assert world.sink.served == [GroupSource.BAYPLAN]
    world.groups.unlisted("it may be out of date")
    assert world.sink.withheld == {GroupSource.BAYPLAN: "it may be out of date"}
    world.groups.listed(PodGroup, [body(1)], "1")
    assert world.sink.withheld == {}


def test_a_status_update_is_stored_but_not_reported(world: World) -> None:
    """An update of the status alone is stored and not reported."""
    world.seen(body(1))
    written = body(1) | {"status": {"phase": "Pending"}}
    written["metadata"]["resourceVersion"] = "2"
    world.seen(written)
    assert len(world.sink.calls) == len(world.observer.calls) == 1
    latest = present(world.groups.body(KEY))
    assert latest["status"] == {"phase": "Pending"}


def test_an_invalid_edit_is_reported_without_effect(world: World) -> None:
    """After an invalid edit the last valid version stays in effect until the object is valid again."""
    world.seen(body(1))
    world.seen(body(2, 0, queueing="Fifo"))
    assert world.minimum == 2
    assert [problem.path for problem in world.groups.problems[KEY]] == ["spec.minMember", "spec.queueing"]
    assert world.observer.calls[-1] == "invalid ml/train u 2 spec.minMember spec.queueing"
    world.seen(body(3, 4))
    assert world.minimum == 4
    assert not world.groups.problems


def test_a_recreated_invalid_group_has_no_valid_version(world: World) -> None:
    """A group that is recreated with an invalid spec does not keep the spec of the deleted object."""
    world.seen(body(1))
    world.seen(body(2, 0, uid="v"))
    assert world.minimum is None
    world.groups.class_added(priority_class(1))
    assert world.minimum is None
    assert KEY in world.groups.problems


def test_a_deleted_invalid_group_is_removed(world: World) -> None:
    """The problems and the last valid version of a deleted group are removed."""
    world.seen(body(1))
    world.seen(body(2, 0))
    world.gone(body(3, 0))
    assert world.minimum is None
    assert not world.groups.problems


def test_a_list_replaces_the_stored_groups(world: World) -> None:
    """A list deletes missing groups, validates changed ones, and does not report unchanged ones."""
    world.listed(body(1), body(2, 3, namespace="other", uid="v"), version=5)
    assert len(world.sink.calls) == 2
    world.listed(body(1), version=6)
    assert [*world.sink.groups] == [KEY]
    assert world.sink.calls[2:] == [GroupKey(GroupSource.BAYPLAN, "other", "train")]
    world.listed(body(7, 4), version=8)
    assert world.minimum == 4


@table("class_first", ("class first", True), ("group first", False))
def test_priority_is_that_of_the_class(world: World, class_first: bool) -> None:
    """A group has the priority of its class, whichever is created first."""
    if class_first:
        world.groups.class_added(priority_class(7))
    world.seen(body(1, priorityClassName="high"))
    if not class_first:
        assert world.sink.groups[KEY].priority is None
        world.groups.class_added(priority_class(7))
    assert world.sink.groups[KEY].priority == 7


def test_a_changed_class_affects_only_its_groups(world: World) -> None:
    """A changed priority class applies to its groups at once, and without it they have no priority."""
    world.seen(body(1, priorityClassName="high"))
    world.seen(body(2, namespace="other", uid="v"))
    before = len(world.sink.calls)
    world.groups.class_added(priority_class(7))
    world.groups.class_updated(priority_class(7), priority_class(8))
    world.groups.class_updated(priority_class(8), priority_class(8))
    world.groups.class_deleted(priority_class(8))
    world.groups.class_added(priority_class(9, "low"))
    priorities = [group.priority for group in world.sink.calls[before:] if not isinstance(group, GroupKey)]
    assert priorities == [7, 8, None]


def test_a_priority_class_that_does_not_exist_is_a_warning(world: World) -> None:
    """A group of a missing priority class has a warning until the class is created; no classes mean they are unread."""
    world.seen(body(1, priorityClassName="high"))
    assert world.observer.warnings[KEY] == ()
    world.groups.class_added(priority_class(1, "hihg"))
    (warning,) = world.observer.warnings[KEY]
    assert warning.path == "spec.priorityClassName"
    assert warning.message.startswith('there is no PriorityClass "high" (did you mean "hihg"?); until it exists')
    world.groups.class_added(priority_class(7))
    assert world.observer.warnings[KEY] == ()
    world.groups.class_deleted(priority_class(7))
    assert len(world.observer.warnings[KEY]) == 1
    world.seen(body(2))
    assert world.observer.warnings[KEY] == ()


def test_a_label_that_no_node_has_is_a_warning() -> None:
    """A topology whose label no node has is a warning until a list of groups after a node got it."""
    labels: list[dict[str, str]] = []
    observer = RecordingObserver()
    groups = BayplanGroups(RecordingSink(), observer, lambda: labels)
    group = body(1, topology={"key": "zone"})
    groups.seen(PodGroup, group)
    assert observer.warnings[KEY] == (), "the nodes are not known yet"
    labels.append({"zones": "a"})
    groups.listed(PodGroup, [group], "1")
    assert [each.path for each in observer.warnings[KEY]] == ["spec.topology.key"]
    labels.append({"zone": "a"})
    groups.listed(PodGroup, [group], "1")
    assert observer.warnings[KEY] == ()


def test_a_global_default_is_not_applied(world: World) -> None:
    """A group without a priority class has no priority, because admission sets the default on its members."""
    world.groups.class_added(PriorityClass(ObjectMeta("usual"), 5, global_default=True))
    world.seen(body(1))
    assert world.sink.groups[KEY].priority is None


def test_problems_stay_when_a_class_changes(world: World) -> None:
    """When a class changes, the accepted version gets the new priority and the problems stay."""
    world.seen(body(1, priorityClassName="high"))
    world.seen(body(2, 0, priorityClassName="high"))
    world.groups.class_added(priority_class(7))
    assert world.sink.groups[KEY].priority == 7
    assert KEY in world.groups.problems


@pytest.mark.parametrize("method", ["group_changed", "group_deleted", "group_refused"])
def test_an_exception_loses_no_group(world: World, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """What the scheduler failed to handle is handled again with the next list; other groups are handled at once."""
    real = getattr(world.sink, method)
    faults, handled = [KEY], list[GroupKey]()

    def failing(group: Any, *more: Any) -> None:
        if faults and getattr(group, "key", group) == KEY:
            faults.pop()
            raise RuntimeError("the feed has a bug")
        handled.append(getattr(group, "key", group))
        real(group, *more)

    valid = method != "group_refused"
    if method == "group_deleted":
        world.seen(body(1))
    monkeypatch.setattr(world.sink, method, failing)
    other = body(2, namespace="other", uid="v")
    if method == "group_deleted":
        world.gone(body(1))
        world.listed(other, version=4)
    else:
        world.seen(body(3, 2 if valid else 0))
        world.seen(other)
        assert world.minimum is None
        world.listed(body(3, 2 if valid else 0), other, version=4)
    assert not faults
    assert GroupKey(GroupSource.BAYPLAN, "other", "train") in world.sink.groups
    assert world.minimum == (2 if method == "group_changed" else None)
    assert KEY in handled


def test_a_change_that_raised_is_reverted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler may have taken over a spec that it failed to handle, so the spec before it is reported again."""
    world.seen(body(1, 2))
    real, faults = world.sink.group_changed, [RuntimeError("the feed has a bug")]

    def failing(group: Any) -> None:
        real(group)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(world.sink, "group_changed", failing)
    world.seen(body(2, 3))
    assert world.minimum == 3
    world.seen(body(3, 2))
    assert world.minimum == 2
