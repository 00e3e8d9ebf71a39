"""Tests of warnings of names in a PodGroup that do not exist."""

from __future__ import annotations

from typing import Any

from bayplan.gangs.bayplan_group_source import missing_references
from bayplan.resources.pod_group import PodGroup

from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"
NODES = ({"kubernetes.io/hostname": "a"}, {"kubernetes.io/hostname": "b", ZONE: "z", "rack": "r"})
NO_CLASS = 'there is no PriorityClass "hihg" (did you mean "high"?); until it exists, the highest priority of the'


@table(
    "spec, classes, nodes, found",
    ("names nothing", {}, ["high"], NODES, []),
    ("all exist", {"priorityClassName": "high", "topology": {"key": ZONE}}, ["high"], NODES, []),
    ("class", {"priorityClassName": "hihg"}, ["high"], NODES, [("priorityClassName", NO_CLASS)]),
    ("unknown classes", {"priorityClassName": "hihg"}, [], NODES, []),
    ("unknown nodes", {"topology": {"key": "zone"}}, ["high"], (), []),
    (
        "required label",
        {"topology": {"key": ZONE[:-1]}},
        [],
        NODES,
        [("topology.key", f'no node has the label "{ZONE[:-1]}" (did you mean "{ZONE}"?); the group cannot be')],
    ),
    (
        "preferred label",
        {"topology": {"key": "block", "mode": "Preferred"}},
        [],
        NODES,
        [("topology.key", 'no node has the label "block"; it has no effect until one has it')],
    ),
    (
        "level",
        {"topology": {"key": ZONE, "levels": ["rack", "row"]}},
        [],
        NODES,
        [("topology.levels[1]", 'no node has the label "row"; it has no effect until one has it')],
    ),
)
def test_names_that_do_not_exist(
    spec: dict[str, Any], classes: list[str], nodes: tuple[dict[str, str], ...], found: list[tuple[str, str]]
) -> None:
    """Each name that does not exist is a warning with its effect and the most similar name."""
    group = PodGroup.from_object({"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": 2, **spec}})
    problems = list(missing_references(group, classes, nodes))
    assert [each.path for each in problems] == [f"spec.{path}" for path, _ in found]
    for problem, (_, message) in zip(problems, found, strict=True):
        assert problem.message.startswith(message)
