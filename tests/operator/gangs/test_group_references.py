"""Tests of warnings of names in a PodGroup or NodeReservation that do not exist."""

from __future__ import annotations

from typing import Any

from bayplan.resources.missing_references import missing_of_reservation, missing_references
from bayplan.resources.node_reservation import NodeReservation
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


PROFILES = ({"metadata": {"name": "batch"}, "spec": {}}, {"metadata": {"name": "web"}, "spec": {"schedulerName": ""}})
CONTAINERS = {"containers": [{"name": "main", "image": "main"}]}


@table(
    "spec, classes, nodes, profiles, found",
    ("all exist", {"schedulerName": "web", "priorityClassName": "high"}, ["high"], NODES, PROFILES, []),
    ("nothing is known", {"schedulerName": "a", "priorityClassName": "b", "topology": {"key": "c"}}, [], (), (), []),
    (
        "class",
        {"schedulerName": "web", "priorityClassName": "hihg"},
        ["high"],
        NODES,
        PROFILES,
        [("priorityClassName", 'there is no PriorityClass "hihg" (did you mean "high"?); no room is reserved until')],
    ),
    (
        "profile",
        {"schedulerName": "bacth"},
        [],
        NODES,
        PROFILES,
        [("schedulerName", 'no profile has the schedulerName "bacth" (did you mean "batch"?); no room is reserved')],
    ),
    (
        "default profile",
        {},
        [],
        NODES,
        PROFILES,
        [("schedulerName", 'no profile has the schedulerName "default-scheduler", the default; no room is reserved')],
    ),
    (
        "template",
        {"template": {"spec": {**CONTAINERS, "schedulerName": "a", "priorityClassName": "b"}}},
        ["high"],
        NODES,
        PROFILES,
        [
            ("template.spec.priorityClassName", 'there is no PriorityClass "b"'),
            ("template.spec.schedulerName", 'no profile has the schedulerName "a"'),
        ],
    ),
    (
        "class instead of that of the template",
        {"template": {"spec": {**CONTAINERS, "priorityClassName": "b"}}, "priority": 1, "schedulerName": "web"},
        ["high"],
        NODES,
        PROFILES,
        [],
    ),
    (
        "label",
        {"schedulerName": "web", "topology": {"key": "rack-name"}},
        [],
        NODES,
        PROFILES,
        [("topology.key", 'no node has the label "rack-name"; no room is reserved until one has it')],
    ),
)
def test_names_of_a_reservation_that_do_not_exist(
    spec: dict[str, Any], classes: list[str], nodes: Any, profiles: Any, found: list[tuple[str, str]]
) -> None:
    """Each name is one warning at the field of the spec or template that has it."""
    form = {} if "template" in spec else {"resources": {"cpu": 1}}
    body = {"metadata": {"name": "a", "namespace": "ml"}, "spec": {"owner": {"labels": {"app": "a"}}, **form, **spec}}
    problems = list(missing_of_reservation(NodeReservation.from_object(body), classes, nodes, profiles))
    assert [each.path for each in problems] == [f"spec.{path}" for path, _ in found]
    assert all(each.message.startswith(text) for each, (_, text) in zip(problems, found, strict=True)), problems
