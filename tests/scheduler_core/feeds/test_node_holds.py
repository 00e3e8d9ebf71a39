"""Nodes that are held, whichever feed holds them: gangs with reservations are notified, as other waiting pods are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler_core.in_tree import default_plugins
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig
from tests.support.storage import csi_node

NODE = node("a")


def by_its_csi_node(made: Rig, reason: str) -> None:
    made.scheduler.storage_feed.unreadable(csi_node("a"), reason)


def by_itself(made: Rig, reason: str) -> None:
    made.scheduler.feed.node_unreadable(NODE, reason)


def by_a_pod(made: Rig, reason: str) -> None:
    made.scheduler.feed.pod_unreadable(pod("p", node_name="a"), reason)


@pytest.mark.parametrize("hold", [by_itself, by_a_pod, by_its_csi_node], ids=lambda each: each.__name__)
def test_reservations_are_notified(hold: Callable[[Rig, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The gang for which a node is reserved is notified when the node is held, and when it is released."""
    made = rig(defaults=default_plugins())
    made.add(NODE)
    notified: list[str] = []
    monkeypatch.setattr(made.scheduler.reservations, "node_changed", notified.append)
    hold(made, "a field has another type")
    assert notified == ["a"]
    assert made.context.cache.columns.held.reason("a")
    hold(made, "")
    assert notified == ["a", "a"]
    assert not made.context.cache.columns.held.reason("a")
