"""Annotations that a plugin adds to the bind are written with it; otherwise the pod is not bound."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cycle_state import CycleState, annotate_bind
from scheduler_core.framework.extension_points import ReservePlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.ports import Binding
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig, schedule_and_bind


class Annotator(ReservePlugin):
    """Reserve plugin that adds an annotation with the chosen node to the bind."""

    name = "Annotator"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        annotate_bind(state, "example.com/chosen", node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Do nothing, because the annotation is dropped with the cycle state."""


async def test_default_binder_writes_annotations() -> None:
    """DefaultBinder writes the annotation of a Reserve plugin with the node."""
    made = rig([Annotator])
    made.add(node("a"), pod("web"))
    async with made.running():
        await made.until(lambda: bool(made.writer.bindings))
    assert [(each.node_name, each.annotations) for each in made.writer.bindings] == [
        ("a", (("example.com/chosen", "a"),))
    ]


@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_binds_does_not_drop_annotations(ignorable: bool) -> None:
    """A pod with bind annotations is not bound by an extender, and the event contains the remedy."""
    sent: list[Binding] = []
    client = ScriptedExtender(on_bind=sent.append)
    made = extender_rig((extender(client.url, bindVerb="bind", ignorable=ignorable), client), plugins=[Annotator])
    made.add(node("a"), pod("web"))
    await schedule_and_bind(made)
    assert sent == []
    assert made.writer.attempted == []
    assert made.scheduler.context.cache.get(pod("web").metadata.uid) is None
    assert any("remove the extender's bindVerb" in each.note for each in made.writer.events)
