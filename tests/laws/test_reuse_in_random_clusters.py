"""Law of reuse in random clusters: nodes and events are equal with and without cached results."""

from __future__ import annotations

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node
from tests.support.plain_profile import PlainNode, PlainPod
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import Rig, rig

TEMPLATES = st.lists(pods("template"), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add pod"] * 6 + ["delete pod", "cordon", "label", "grow", "add node", "delete node"]),
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=24,
)


class ClusterRun:
    """A cluster that changes step by step."""

    def __init__(self, cluster: tuple[PlainNode, ...], *, reuses: bool) -> None:
        self.rig: Rig = rig(defaults=default_plugins(), options=SchedulerOptions(reuses_results=reuses))
        self.nodes: list[Node] = [each.real() for each in cluster]
        self.placed: list[Pod] = []
        self.rig.add(*self.nodes)
        self.rig.add(*(other.real() for each in cluster for other in each.running_pods))

    def step(self, kind: str, number: int, templates: list[PlainPod], at: int) -> object:
        """Apply one step; return the node of a new pod, or the note of its event."""
        feed = self.rig.scheduler.feed
        if kind == "add pod":
            pod = dataclasses.replace(templates[number % len(templates)], name=f"p{at}").real()
            self.rig.add(pod)
            attempt = self.rig.decide()
            if attempt is None:
                return self.rig.writer.events[-1].note
            self.placed.append(pod)
            return attempt.node_name
        if kind == "delete pod" and self.placed:
            feed.pod_deleted(self.placed.pop(number % len(self.placed)))
        elif kind == "add node":
            self._add_node(node(f"late{at}", labels={"zone": "a"}))
        elif self.nodes and kind == "delete node":
            feed.node_deleted(self.nodes.pop(number % len(self.nodes)))
        elif self.nodes and kind in ("cordon", "label", "grow"):
            self._change(kind, number % len(self.nodes))
        return None

    def _add_node(self, new: Node) -> None:
        self.nodes.append(new)
        self.rig.add(new)

    def _change(self, kind: str, index: int) -> None:
        old = new = self.nodes[index]
        if kind == "cordon":
            new = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, unschedulable=True))
        elif kind == "label":
            labels = {"zone": "b", "size": "3"}
            new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=labels))
        else:
            amounts = {"cpu": "8", "memory": "32Gi", "pods": "7"}
            new = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, allocatable=amounts))
        self.nodes[index] = new
        self.rig.scheduler.feed.node_updated(old, new)


@given(cluster=CLUSTERS, templates=TEMPLATES, steps=STEPS)
def test_reuse_changes_no_decision(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], steps: list[tuple[str, int]]
) -> None:
    """Nodes and events are equal, whatever changes between pods."""
    reusing, without = ClusterRun(cluster, reuses=True), ClusterRun(cluster, reuses=False)
    for at, (kind, number) in enumerate(steps):
        assert reusing.step(kind, number, templates, at) == without.step(kind, number, templates, at)
    for run in (reusing, without):
        run.rig.queue.close()
