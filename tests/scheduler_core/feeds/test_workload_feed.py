"""The feed of namespaces, workloads and disruption budgets, whose changes requeue no pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.workloads import (
    LabelPairsSpec,
    LabelSelectorSpec,
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.scheduling import rig
from tests.support.tables import table

WEB = {"app": "web"}


def meta(version: str = "1", labels: dict[str, str] | None = None) -> ObjectMeta:
    """Return the metadata of the object ``x``."""
    return ObjectMeta("x", "default", f"uid-{version}", version, labels=labels or {})


def budget(allowed: int = 1, version: str = "1") -> PodDisruptionBudget:
    """Return a disruption budget of the pods labelled ``app=web``."""
    spec = PodDisruptionBudgetSpec(LabelSelector(WEB))
    return PodDisruptionBudget(meta(version), spec, PodDisruptionBudgetStatus(allowed))


def namespaces(columns: NodeColumns) -> int:
    return columns.namespaces.version


def workloads(columns: NodeColumns) -> int:
    return columns.workloads.version


def budgets(columns: NodeColumns) -> int:
    return columns.disruption_budgets.version


PAIRS, OTHER_PAIRS = LabelPairsSpec(WEB), LabelPairsSpec({"app": "db"})
SELECTOR, OTHER_SELECTOR = LabelSelectorSpec(LabelSelector(WEB)), LabelSelectorSpec(LabelSelector({"app": "db"}))


def _row(name: str, kind: Callable[..., PodSurrounding], same: object, other: object) -> tuple[str, Any, Any, Any, Any]:
    return name, kind(meta(), same), kind(meta("2"), same), kind(meta("3"), other), workloads


of_each_kind = table(
    "first, same, other, version",
    ("Namespace", Namespace(meta("1", WEB)), Namespace(meta("2", WEB)), Namespace(meta("3")), namespaces),
    _row("Service", Service, PAIRS, OTHER_PAIRS),
    _row("ReplicationController", ReplicationController, PAIRS, OTHER_PAIRS),
    _row("ReplicaSet", ReplicaSet, SELECTOR, OTHER_SELECTOR),
    _row("StatefulSet", StatefulSet, SELECTOR, OTHER_SELECTOR),
    ("PodDisruptionBudget", budget(), budget(version="2"), budget(0, version="3"), budgets),
)


@of_each_kind
def test_each_change_reaches_its_index(
    first: PodSurrounding, same: PodSurrounding, other: PodSurrounding, version: Callable[[NodeColumns], int]
) -> None:
    """An index changes with additions, changes and deletions, but not with a new resourceVersion alone."""
    made = rig()
    columns, feed = made.columns, made.scheduler.workload_feed
    feed.added(first)
    assert version(columns) == 1
    feed.updated(first, same)
    assert version(columns) == 1
    feed.updated(same, other)
    assert version(columns) == 2
    feed.deleted(other)
    assert version(columns) == 3
    assert namespaces(columns) + workloads(columns) + budgets(columns) == 3


@of_each_kind
def test_a_deleted_object_is_removed(
    first: PodSurrounding, same: PodSurrounding, other: PodSurrounding, version: Callable[[NodeColumns], int]
) -> None:
    """A second deletion has no effect, and the object can be added again."""
    del same, other
    made = rig()
    columns, feed = made.columns, made.scheduler.workload_feed
    feed.added(first)
    feed.deleted(first)
    feed.deleted(first)
    assert version(columns) == 2
    feed.added(first)
    assert version(columns) == 3


@of_each_kind
def test_no_pod_is_requeued(
    first: PodSurrounding,
    same: PodSurrounding,
    other: PodSurrounding,
    version: Callable[[NodeColumns], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue gets no event for these kinds, because no plugin registers for them."""
    del same, version
    made = rig()
    events: list[object] = []

    def on_event(*arguments: object) -> None:
        events.append(arguments)

    monkeypatch.setattr(made.queue, "on_event", on_event)
    feed = made.scheduler.workload_feed
    feed.added(first)
    feed.updated(first, other)
    feed.deleted(other)
    assert events == []
