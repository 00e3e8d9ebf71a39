"""Annotations that a plugin adds to the bind: written with it, or not bound at all."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cycle_state import CycleState, annotate_bind
from scheduler_core.framework.extension_points import ReservePlugin
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.ports import Binding
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import rig
from tests.support.scripted_extender import ScriptedExtender, extended_rig, extender, place


class Annotator(ReservePlugin):
    """Chooses something that the pod must know."""

    name = "Annotator"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        annotate_bind(state, "example.com/chosen", node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Nothing to undo: the state ends with the attempt."""


async def test_the_bind_carries_what_reserve_chose() -> None:
    """DefaultBinder writes the annotation with the node."""
    made = rig([Annotator])
    made.add(node("a"), pod("web"))
    async with made.running():
        await made.until(lambda: bool(made.writer.bindings))
    assert [(each.node_name, each.annotations) for each in made.writer.bindings] == [
        ("a", (("example.com/chosen", "a"),))
    ]


@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_binds_does_not_drop_annotations(ignorable: bool) -> None:
    """The pod is not bound rather than bound without them, and the message names the remedy."""
    sent: list[Binding] = []
    client = ScriptedExtender(on_bind=sent.append)
    made = extended_rig((extender(client.url, bindVerb="bind", ignorable=ignorable), client), plugins=[Annotator])
    made.add(node("a"), pod("web"))
    await place(made)
    assert sent == []
    assert made.writer.attempted == []
    assert made.scheduler.context.cache.get(pod("web").metadata.uid) is None
    assert any("remove the extender's bindVerb" in each.note for each in made.writer.events)
