"""Reuse of plugin results between pods of one pod class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.equivalence import ReuseBounds
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, profile
from tests.support.tables import table


def _pre_filters(made: Rig) -> int:
    (instance,) = made.context.profiles
    return instance.evaluations.pre_filter["NodeAffinity"]


def _is_reused(made: Rig, new: Pod) -> bool:
    """Schedule a pod, and return whether results of its pod class were reused instead of a full scheduling cycle."""
    before = _pre_filters(made)
    made.add(new)
    assert made.decide() is not None
    return _pre_filters(made) == before


def _selecting(number: int, zone: str = "a", **fields: object) -> Pod:
    return pod(f"p{number}", node_selector={"zone": zone}, **{"requests": {"cpu": "1m"}, **fields})  # type: ignore[arg-type]


def _zoned() -> tuple[object, ...]:
    return tuple(node(f"{zone}{number}", labels={"zone": zone}) for zone in "abcdef" for number in range(3))


def _made(*plugins: type[Plugin], bounds: ReuseBounds | None = None, **points: object) -> Rig:
    options = SchedulerOptions() if bounds is None else SchedulerOptions(reuse_bounds=bounds)
    made = default_rig(plugins=plugins, options=options, serve=False)
    made.serve(profile(plugins=Plugins(**points)))  # type: ignore[arg-type] # points by name
    made.add(*_zoned())  # type: ignore[arg-type] # nodes
    return made


def test_results_are_reused_after_pods_are_bound() -> None:
    """Results of a pod class are reused after earlier pods of the class are bound and confirmed."""
    made = _made()
    for number in range(2):
        made.add(_selecting(number))
        attempt = present(made.decide())
        old = attempt.info.pod
        meta = replace(old.metadata, labels={"topology.kubernetes.io/zone": "z"}, resource_version="2")
        bound = replace(old, spec=replace(old.spec, node_name=attempt.node_name), metadata=meta)
        made.scheduler.feed.pod_updated(old, bound)
    assert _is_reused(made, _selecting(2))


_FIRST: dict[str, Any] = {"requests": {"cpu": "7m"}, "labels": {"index": "0"}}


@table(
    "third, expected",
    ("other requests and labels", {}, True),
    ("same requests and labels as the first pod", _FIRST, False),
    ("same labels as the first pod", {**_FIRST, "requests": {"cpu": "2m"}}, False),
    ("same requests as the first pod", {**_FIRST, "labels": {}}, False),
    ("other node selector", {"zone": "b"}, False),
    ("other namespace", {"namespace": "other"}, False),
    ("other priority", {"priority": 7}, False),
)
def test_fields_in_which_pods_of_a_class_may_differ(third: Mapping[str, object], expected: bool) -> None:
    """A pod class may ignore requests and labels; a second pod with the same ones starts a stricter class instead."""
    made = _made()
    made.add(_selecting(0, **_FIRST), _selecting(1, requests={"cpu": "3m"}, labels={"index": "1"}))
    assert made.decide() is not None
    assert made.decide() is not None
    assert _is_reused(made, _selecting(2, **third)) is expected  # type: ignore[arg-type] # fields of a pod


def test_at_most_three_classes_are_stored() -> None:
    """At a bound of three classes, at most three are stored, and each pod gets a node of its own zone."""
    made = _made(bounds=ReuseBounds(classes=3, seen_keys=3))
    (instance,) = made.context.profiles
    for number in range(60):
        zone = "abcdef"[number // 2 % 6]
        made.add(_selecting(number, zone))
        attempt = present(made.decide())
        assert attempt.node_name.startswith(zone)
    classes = present(instance.pod_classes)
    assert len(classes.stored()) <= 3


def test_keys_of_dropped_classes_are_not_reused() -> None:
    """An infeasible pod stays infeasible, because the key of a dropped class is never used for another class."""
    made = _made(bounds=ReuseBounds(classes=3, seen_keys=3))
    for number in range(40):
        made.add(_selecting(number, "abcdef"[number % 6], labels={"app": f"a{number % 4}"}))
        assert made.decide() is not None
        made.add(_selecting(1000 + number, f"none{number % 5}"))
        assert made.decide() is None


@table("rankings", ("none", 0.5), ("one", 1), ("five", 5))
def test_rankings_take_no_more_memory_than_bounded(rankings: float) -> None:
    """Rankings, which are built after their classes are stored, never take more than ``ranking_bytes`` together."""
    bound = int(rankings * len(_zoned()) * 24)
    made = _made(bounds=ReuseBounds(ranking_bytes=bound))
    (instance,) = made.context.profiles
    most = 0
    for number in range(120):
        made.add(_selecting(number, namespace=f"of-class-{number % 12 if number % 3 else number % 4}"))
        assert made.decide() is not None
        assert instance.pod_classes is not None
        built = [each.ranking.nbytes for each in instance.pod_classes.stored() if each.ranking is not None]
        assert sum(built) <= bound
        most = max(most, len(built))
    assert most == int(rankings)
