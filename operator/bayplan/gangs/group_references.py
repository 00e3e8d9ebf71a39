"""Warnings of a PodGroup of ``bayplan.dev`` that names a PriorityClass or a node label that does not exist.

They are no problems of the object: classes and nodes may be created later, and tools apply objects in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from bayplan.resources.pod_group import PodGroup
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem

OF_EVERY_CLUSTER = ("system-cluster-critical", "system-node-critical")
"""PriorityClasses that the API server itself creates."""


def missing_references(
    group: PodGroup, classes: Collection[str], node_labels: Iterable[Mapping[str, str]]
) -> Iterator[Problem]:
    """Yield a warning for each name that does not exist.

    Args:
        classes: Names of the PriorityClasses; none means that they are unknown, because every cluster has some.
        node_labels: Labels of each node; none means that the nodes are unknown.
    """
    name = group.spec.priority_class_name
    if name and classes and name not in classes:
        message = (
            f'there is no PriorityClass "{name}"{did_you_mean(name, classes)}; until it exists, the highest priority '
            "of the members counts"
        )
        yield Problem("spec.priorityClassName", message)
    if group.spec.topology is not None:
        yield from _missing_labels(group, node_labels)


def _missing_labels(group: PodGroup, node_labels: Iterable[Mapping[str, str]]) -> Iterator[Problem]:
    topology = group.spec.topology
    assert topology is not None
    written = {topology.key: "spec.topology.key"}
    written |= {level: f"spec.topology.levels[{index}]" for index, level in enumerate(topology.levels)}
    missing, known = dict(written), set[str]()
    for labels in node_labels:
        for key in [key for key in missing if key in labels]:
            del missing[key]
        if not missing:
            return
        known |= labels.keys()
    if not known:
        return
    for key, path in missing.items():
        is_needed = key == topology.key and topology.mode == "Required"
        effect = "the group cannot be scheduled until one has it" if is_needed else "it has no effect until one has it"
        yield Problem(path, f'no node has the label "{key}"{did_you_mean(key, known)}; {effect}')
