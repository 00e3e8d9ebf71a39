"""PodGroups of bayplan.dev: which form is in force, and by which priority."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.resources.pod_group import PodGroup

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.priority_class import PriorityClass
from tests.operator.gangs.group_recording import RecordingObserver, RecordingTaker

Body = dict[str, Any]
KEY = GroupKey(GroupSource.BAYPLAN, "ml", "train")


class World:
    """Groups between who watches and who schedules."""

    def __init__(self) -> None:
        self.taker = RecordingTaker()
        self.observer = RecordingObserver()
        self.groups = BayplanGroups(self.taker)
        self.groups.observers.append(self.observer)

    def seen(self, body: Body) -> None:
        self.groups.seen(PodGroup, body)

    def gone(self, body: Body) -> None:
        self.groups.gone(PodGroup, body)

    def listed(self, *bodies: Body, version: int) -> None:
        self.groups.listed(PodGroup, bodies, str(version))

    @property
    def minimum(self) -> int | None:
        """What the core goes by."""
        group = self.taker.groups.get(KEY)
        return None if group is None else group.min_member


@pytest.fixture
def world() -> World:
    return World()


def body(version: int = 1, min_member: object = 2, namespace: str = "ml", uid: str = "u", **spec: Any) -> Body:
    """The group ``train``; its generation is its version."""
    metadata = {"name": "train", "namespace": namespace, "uid": uid, "generation": version}
    return {
        "metadata": {**metadata, "resourceVersion": str(version)},
        "spec": {"minMember": min_member, **spec},
    }


def priority_class(value: int, name: str = "high") -> PriorityClass:
    return PriorityClass(ObjectMeta(name), value)


def test_a_group_comes_changes_and_goes(world: World) -> None:
    """The core is told of each, and whoever writes statuses as well."""
    world.seen(body(1))
    world.seen(body(2, 3))
    world.gone(body(3, 3))
    assert [told if isinstance(told, GroupKey) else told.min_member for told in world.taker.told] == [2, 3, KEY]
    assert world.observer.told == ["known ml/train u 1 {}", "known ml/train u 2 {}", "gone ml/train"]


def test_groups_are_known_by_a_list(world: World) -> None:
    """What a watch shows before it does not make them known, and a new leader's doubt lasts until the next list."""
    world.seen(body(1))
    assert world.taker.served == []
    world.groups.listed(PodGroup, [body(1)], "1")
    assert world.taker.served == [GroupSource.BAYPLAN]
    world.groups.unlisted("it may be out of date")
    assert world.taker.withheld == {GroupSource.BAYPLAN: "it may be out of date"}
    world.groups.listed(PodGroup, [body(1)], "1")
    assert world.taker.withheld == {}


def test_groups_of_two_namespaces_are_two(world: World) -> None:
    """A name belongs to its namespace."""
    world.seen(body(1, 2))
    world.seen(body(2, 5, namespace="other", uid="v"))
    world.gone(body(3, 5, namespace="other", uid="v"))
    assert [group.min_member for group in world.taker.groups.values()] == [2]


def test_the_echo_of_a_status_is_no_news(world: World) -> None:
    """What changes no field of the spec reaches nobody, but is what is read when the status is asked for."""
    world.seen(body(1))
    written = body(1) | {"status": {"phase": "Pending"}}
    written["metadata"]["resourceVersion"] = "2"
    world.seen(written)
    assert len(world.taker.told) == len(world.observer.told) == 1
    shown = world.groups.body(KEY)
    assert shown is not None
    assert shown["status"] == {"phase": "Pending"}


def test_a_bad_edit_changes_nothing_and_is_told(world: World) -> None:
    """The last good form stays in force until the object is good again."""
    world.seen(body(1))
    world.seen(body(2, 0, queueing="Fifo"))
    assert world.minimum == 2
    assert [problem.path for problem in world.groups.problems[KEY]] == ["spec.minMember", "spec.queueing"]
    assert world.observer.told[-1] == "invalid ml/train u 2 spec.minMember spec.queueing"
    world.seen(body(3, 4))
    assert world.minimum == 4
    assert not world.groups.problems


def test_a_good_form_of_another_object_does_not_stay(world: World) -> None:
    """A group that was made anew, and badly, has nothing in common with the earlier one of its name."""
    world.seen(body(1))
    world.seen(body(2, 0, uid="v"))
    assert world.minimum is None
    world.groups.class_added(priority_class(1))
    assert world.minimum is None
    assert KEY in world.groups.problems


def test_a_bad_group_that_goes_leaves_nothing(world: World) -> None:
    """Neither its problems nor its last good form."""
    world.seen(body(1))
    world.seen(body(2, 0))
    world.gone(body(3, 0))
    assert world.minimum is None
    assert not world.groups.problems


def test_a_list_is_the_whole_truth_of_its_time(world: World) -> None:
    """What it lacks is gone, what it shows anew is judged, and what it shows again is not told again."""
    world.listed(body(1), body(2, 3, namespace="other", uid="v"), version=5)
    assert len(world.taker.told) == 2
    world.listed(body(1), version=6)
    assert [*world.taker.groups] == [KEY]
    assert world.taker.told[2:] == [GroupKey(GroupSource.BAYPLAN, "other", "train")]
    world.listed(body(7, 4), version=8)
    assert world.minimum == 4


@pytest.mark.parametrize("class_first", [pytest.param(True, id="class first"), pytest.param(False, id="group first")])
def test_priority_is_that_of_the_class(world: World, class_first: bool) -> None:
    """Whichever comes first, the group stands by its class in the end."""
    if class_first:
        world.groups.class_added(priority_class(7))
    world.seen(body(1, priorityClassName="high"))
    if not class_first:
        assert world.taker.groups[KEY].priority is None
        world.groups.class_added(priority_class(7))
    assert world.taker.groups[KEY].priority == 7


def test_a_class_that_changes_counts_for_its_groups_only(world: World) -> None:
    """A new value is handed on at once; without the class the members decide again."""
    world.seen(body(1, priorityClassName="high"))
    world.seen(body(2, namespace="other", uid="v"))
    told = len(world.taker.told)
    world.groups.class_added(priority_class(7))
    world.groups.class_updated(priority_class(7), priority_class(8))
    world.groups.class_updated(priority_class(8), priority_class(8))
    world.groups.class_deleted(priority_class(8))
    world.groups.class_added(priority_class(9, "low"))
    priorities = [group.priority for group in world.taker.told[told:] if not isinstance(group, GroupKey)]
    assert priorities == [7, 8, None]


def test_a_global_default_is_not_applied(world: World) -> None:
    """A group that names no class stands by its members, which got the default themselves."""
    world.groups.class_added(PriorityClass(ObjectMeta("usual"), 5, global_default=True))
    world.seen(body(1))
    assert world.taker.groups[KEY].priority is None


def test_a_class_does_not_make_a_bad_edit_forgotten(world: World) -> None:
    """The form in force is handed on with the new priority, and the problems of the present one stay."""
    world.seen(body(1, priorityClassName="high"))
    world.seen(body(2, 0, priorityClassName="high"))
    world.groups.class_added(priority_class(7))
    assert world.taker.groups[KEY].priority == 7
    assert KEY in world.groups.problems
