"""Reuse of plugin results between pods of one class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.extension_points import (
    Plugin,
)
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.equivalence.reuse import ReuseBounds
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, profile, rig


def _pre_filters(made: Rig) -> int:
    (instance,) = made.context.profiles
    return instance.evaluations.pre_filter["NodeAffinity"]


def _is_reused(made: Rig, new: Pod) -> bool:
    """Decide a pod; return whether its class spared it the full scheduling cycle."""
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
    made = rig(plugins, defaults=default_plugins(), options=options, serve=False)
    made.serve(profile(plugins=Plugins(**points)))  # type: ignore[arg-type] # points by name
    made.add(*_zoned())  # type: ignore[arg-type] # nodes
    return made


def test_a_class_outlives_the_binding_of_its_pods() -> None:
    """Pods are bound and confirmed while others of their class, which have no node yet, still come."""
    made = _made()
    for number in range(2):
        made.add(_selecting(number))
        attempt = made.decide()
        assert attempt is not None
        old = attempt.info.pod
        meta = replace(old.metadata, labels={"topology.kubernetes.io/zone": "z"}, resource_version="2")
        bound = replace(old, spec=replace(old.spec, node_name=attempt.node_name), metadata=meta)
        made.scheduler.feed.pod_updated(old, bound)
    assert _is_reused(made, _selecting(2))


_SEEN: dict[str, Any] = {"requests": {"cpu": "7m"}, "labels": {"index": "0"}}


@pytest.mark.parametrize(
    ("third", "expected"),
    [
        pytest.param({}, True, id="other requests and labels"),
        pytest.param(_SEEN, False, id="second of a stricter class"),
        pytest.param({**_SEEN, "requests": {"cpu": "2m"}}, False, id="second with these labels"),
        pytest.param({**_SEEN, "labels": {}}, False, id="second with these requests"),
        pytest.param({"zone": "b"}, False, id="other node selector"),
        pytest.param({"namespace": "other"}, False, id="other namespace"),
        pytest.param({"priority": 7}, False, id="other priority"),
    ],
)
def test_what_pods_may_differ_in(third: Mapping[str, object], expected: bool) -> None:
    """A looser class leaves out requests and labels; the second pod of a stricter class is learned from instead."""
    made = _made()
    made.add(_selecting(0, **_SEEN), _selecting(1, requests={"cpu": "3m"}, labels={"index": "1"}))
    assert made.decide() is not None
    assert made.decide() is not None
    assert _is_reused(made, _selecting(2, **third)) is expected  # type: ignore[arg-type] # fields of a pod


def test_bounds_of_three() -> None:
    """However many classes come, at most three are stored, and each pod gets the node of its own class."""
    made = _made(bounds=ReuseBounds(classes=3, seen_keys=3))
    (instance,) = made.context.profiles
    for number in range(60):
        zone = "abcdef"[number // 2 % 6]
        made.add(_selecting(number, zone))
        attempt = made.decide()
        assert attempt is not None
        assert attempt.node_name.startswith(zone)
    classes = instance.pod_classes
    assert classes is not None
    assert len(classes.stored()) <= 3


def test_a_pod_whose_selector_matches_nothing_waits_among_a_thousand_classes() -> None:
    """A key is never given to two classes, however many were dropped in between."""
    made = _made(bounds=ReuseBounds(classes=3, seen_keys=3))
    for number in range(40):
        made.add(_selecting(number, "abcdef"[number % 6], labels={"app": f"a{number % 4}"}))
        assert made.decide() is not None
        made.add(_selecting(1000 + number, f"none{number % 5}"))
        assert made.decide() is None
