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
from tests.support.scripted_extender import ScriptedExtender, decide, extended_rig, extender, leaves

HIGH = pod("high", requests={"cpu": "4"}, priority=10)
VICTIMS = {
    "cheap": pod("v-cheap", node_name="cheap", requests={"cpu": "4"}, priority=1),
    "dear": pod("v-dear", node_name="dear", requests={"cpu": "4"}, priority=5),
}


def full_cluster(client: ScriptedExtender, **fields: object) -> Rig:
    """Two full nodes, of which ``cheap`` is the better one to preempt on, and a pod that needs a whole node."""
    made = extended_rig((extender("http://extender", **fields), client), defaults=default_plugins())
    made.add(*(node(name) for name in VICTIMS), *VICTIMS.values(), HIGH)
    return made


def deleted(made: Rig) -> list[str]:
    return [deletion.name for deletion in made.writer.deletions]


async def test_an_extender_narrows_the_choice() -> None:
    """The cheaper node is chosen, unless the extender accepts only the other one."""
    made = full_cluster(ScriptedExtender())
    assert await decide(made) is None
    assert (deleted(made), made.queue.nominator.node_of(HIGH.metadata.uid)) == (["v-cheap"], "cheap")

    client = ScriptedExtender(on_preempt=lambda asked: {"dear": asked["dear"]})
    made = full_cluster(client)
    assert await decide(made) is None
    assert (deleted(made), made.queue.nominator.node_of(HIGH.metadata.uid)) == (["v-dear"], "dear")
    assert client.verbs() == ["preempt"]


def without_victims(asked: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
    return dict.fromkeys(asked, NodeVictims(()))


@pytest.mark.parametrize(
    ("fields", "client", "said"),
    [
        pytest.param(
            {},
            ScriptedExtender(on_preempt=lambda _: {}),
            "preemption: no candidate node for preemption",
            id="none left",
        ),
        pytest.param(
            {},
            ScriptedExtender(on_preempt=without_victims),
            'preemption: extender http://extender: expected at least one victim pod on node "',
            id="no victims",
        ),
        pytest.param(
            {"ignorable": True},
            ScriptedExtender(on_preempt=without_victims),
            "preemption: no candidate node for preemption",
            id="ignorable: no victims",
        ),
    ],
)
async def test_extenders_that_leave_nothing_stop_the_preemption(
    fields: dict[str, object], client: ScriptedExtender, said: str
) -> None:
    """No pod is evicted, and the pod's condition says why; an earlier nomination stays, as in kube-scheduler."""
    made = full_cluster(client, **fields)
    assert await decide(made) is None
    assert deleted(made) == []
    assert made.condition.message.startswith("0/2 nodes are available: 2 Insufficient cpu. ")
    assert said in made.condition.message


@pytest.mark.parametrize("ignorable", [False, True])
async def test_an_extender_that_fails_at_preemption(ignorable: bool) -> None:
    """If it is ignorable, preemption continues without it; otherwise no pod is evicted and the pod stays rejected."""
    client = ScriptedExtender()
    client.fails("preempt")
    made = full_cluster(client, ignorable=ignorable)
    assert await decide(made) is None
    assert deleted(made) == (["v-cheap"] if ignorable else [])
    assert made.condition.reason == "Unschedulable"
    assert ("preemption: extender http://extender: away" in made.condition.message) is not ignorable


async def test_extenders_are_not_called_where_preemption_cannot_help() -> None:
    """There are no candidates."""
    client = ScriptedExtender()
    made = extended_rig((extender(), client), defaults=default_plugins())
    made.add(node("a"), pod("big", requests={"cpu": "99"}))
    assert await decide(made) is None
    assert client.asked == []


@pytest.mark.parametrize(
    ("failed", "hopeless", "evicted"),
    [
        pytest.param({"cheap": "x"}, {}, [], id="a node without a pod to preempt for the extender's sake"),
        pytest.param({}, {"cheap": "x"}, [], id="hopeless"),
    ],
)
async def test_preemption_tries_nodes_that_extenders_call_helpable(
    failed: dict[str, str], hopeless: dict[str, str], evicted: list[str]
) -> None:
    """A node where the pod fits without victims is no candidate, whichever extender rejected it."""
    client = ScriptedExtender(on_filter=leaves(failed=failed, hopeless=hopeless))
    made = extended_rig((extender(), client), defaults=default_plugins())
    made.add(node("cheap"), pod("low", node_name="cheap", requests={"cpu": "1"}), pod("web", priority=5))
    assert await decide(made) is None
    assert deleted(made) == evicted
    said = "Preemption is not helpful" if hopeless else 'expected at least one victim pod on node "cheap"'
    assert said in made.condition.message


class Plain(PostFilterPlugin):
    """Does not use extenders."""

    name = "Plain"

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        assert nodes is self.handle.nodes
        return PostFilterResult(unschedulable("plain said no"))


class Asking(Plain):
    """Fails when it calls extenders."""

    name = "Asking"

    async def post_filter_with(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, extenders: PreemptionExtenders
    ) -> PostFilterResult:
        await extenders.process_preemption(pod, ())
        raise ValueError("boom")


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        pytest.param([Plain], "plain said no", id="the plain form serves"),
        pytest.param(
            [Plain, Asking], 'plugin "Asking" failed at postFilter: raised ValueError: boom', id="a fault ends it"
        ),
        pytest.param([], "", id="no plugin"),
    ],
)
async def test_post_filter_plugins_need_not_know_of_extenders(plugins: list[type[PostFilterPlugin]], said: str) -> None:
    """They are called as in a profile without extenders."""
    made = extended_rig((extender(), ScriptedExtender(on_filter=leaves())), plugins=plugins)
    made.add(node("a"), pod("web"))
    assert await decide(made) is None
    assert made.condition.message == f"0/1 nodes are available:{' ' if said else ''}{said}"
