"""Preemption in a profile with extenders, which are called after the dry run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PostFilterPlugin, PostFilterResult, PreemptionExtenders
from scheduler_core.framework.status import unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.ports import NodeVictims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig
from tests.support.scripted_extender import ScriptedExtender, decide, extender, extender_rig, passes_only
from tests.support.tables import table

HIGH = pod("high", requests={"cpu": "4"}, priority=10)
VICTIMS = {
    "cheap": pod("v-cheap", node_name="cheap", requests={"cpu": "4"}, priority=1),
    "dear": pod("v-dear", node_name="dear", requests={"cpu": "4"}, priority=5),
}


def full_cluster(client: ScriptedExtender, **fields: object) -> Rig:
    """Return a scheduler with two full nodes, of which preemption prefers ``cheap``, and a pod that needs one node."""
    made = extender_rig((extender("http://extender", **fields), client), defaults=default_plugins())
    made.add(*(node(name) for name in VICTIMS), *VICTIMS.values(), HIGH)
    return made


def deleted(made: Rig) -> list[str]:
    return [deletion.name for deletion in made.writer.deletions]


async def test_an_extender_narrows_the_choice() -> None:
    """The node with the less important victim is chosen, unless the extender accepts only the other node."""
    made = full_cluster(ScriptedExtender())
    assert await decide(made) is None
    assert (deleted(made), made.queue.nominator.node_of(HIGH.metadata.uid)) == (["v-cheap"], "cheap")

    client = ScriptedExtender(on_preempt=lambda candidates: {"dear": candidates["dear"]})
    made = full_cluster(client)
    assert await decide(made) is None
    assert (deleted(made), made.queue.nominator.node_of(HIGH.metadata.uid)) == (["v-dear"], "dear")
    assert client.called_verbs() == ["preempt"]


def remove_victims(candidates: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
    return dict.fromkeys(candidates, NodeVictims(()))


@table(
    "fields, client, message",
    ("no candidates", {}, ScriptedExtender(on_preempt=lambda _: {}), "preemption: no candidate node for preemption"),
    (
        "no victims",
        {},
        ScriptedExtender(on_preempt=remove_victims),
        'preemption: extender http://extender: expected at least one victim pod on node "',
    ),
    (
        "no victims, ignorable",
        {"ignorable": True},
        ScriptedExtender(on_preempt=remove_victims),
        "preemption: no candidate node for preemption",
    ),
)
async def test_extenders_that_reject_all_candidates(
    fields: dict[str, object], client: ScriptedExtender, message: str
) -> None:
    """If extenders reject all candidates, no pod is evicted, and the condition has the reason."""
    made = full_cluster(client, **fields)
    assert await decide(made) is None
    assert deleted(made) == []
    assert made.condition.message.startswith("0/2 nodes are available: 2 Insufficient cpu. ")
    assert message in made.condition.message


@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_fails_at_preemption(ignorable: bool) -> None:
    """Preemption continues without a failed ignorable extender; otherwise no pod is evicted."""
    client = ScriptedExtender()
    client.fail("preempt")
    made = full_cluster(client, ignorable=ignorable)
    assert await decide(made) is None
    assert deleted(made) == (["v-cheap"] if ignorable else [])
    assert made.condition.reason == "Unschedulable"
    assert ("preemption: extender http://extender: away" in made.condition.message) is not ignorable


async def test_extenders_are_not_called_without_candidates() -> None:
    """Extenders are not called if preemption helps on no node."""
    client = ScriptedExtender()
    made = extender_rig((extender(), client), defaults=default_plugins())
    made.add(node("a"), pod("big", requests={"cpu": "99"}))
    assert await decide(made) is None
    assert client.calls == []


@table(
    "failed, hopeless, evicted",
    ("failed node", {"cheap": "x"}, {}, []),
    ("failed and unresolvable node", {}, {"cheap": "x"}, []),
)
async def test_a_node_that_only_an_extender_rejected_is_no_candidate(
    failed: dict[str, str], hopeless: dict[str, str], evicted: list[str]
) -> None:
    """No pod is evicted from a node that only an extender rejected, because the pod fits there without victims."""
    client = ScriptedExtender(on_filter=passes_only(failed=failed, unresolvable=hopeless))
    made = extender_rig((extender(), client), defaults=default_plugins())
    made.add(node("cheap"), pod("low", node_name="cheap", requests={"cpu": "1"}), pod("web", priority=5))
    assert await decide(made) is None
    assert deleted(made) == evicted
    message = "Preemption is not helpful" if hopeless else 'expected at least one victim pod on node "cheap"'
    assert message in made.condition.message


class Plain(PostFilterPlugin):
    """PostFilter plugin that does not use extenders."""

    name = "Plain"

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        assert nodes is self.handle.nodes
        return PostFilterResult(unschedulable("rejected by Plain"))


class CallsExtenders(Plain):
    """PostFilter plugin that raises after it calls extenders."""

    name = "CallsExtenders"

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        await extenders.process_preemption(pod, ())
        raise ValueError("boom")


@table(
    "plugins, message",
    ("plugin without extender support", [Plain], "rejected by Plain"),
    (
        "plugin that raises",
        [Plain, CallsExtenders],
        'plugin "CallsExtenders" failed at postFilter: raised ValueError: boom',
    ),
    ("no plugin", [], ""),
)
async def test_post_filter_plugins_without_extender_support(
    plugins: list[type[PostFilterPlugin]], message: str
) -> None:
    """PostFilter plugins without extender support are called as in a profile without extenders."""
    made = extender_rig((extender(), ScriptedExtender(on_filter=passes_only())), plugins=plugins)
    made.add(node("a"), pod("web"))
    assert await decide(made) is None
    assert made.condition.message == f"0/1 nodes are available:{' ' if message else ''}{message}"
