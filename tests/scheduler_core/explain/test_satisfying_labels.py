"""Labels that satisfy selector requirements."""

from __future__ import annotations

from scheduler_core.explain.candidate_events import matching_labels, node_labels, required_terms, satisfied
from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.selectors import compile_label_selector
from tests.support.builders import pod
from tests.support.tables import table


@table(
    "labels, requirement, expected",
    ("In, holds", {"a": "x"}, Requirement("a", "In", ("x", "y")), {"a": "x"}),
    ("In", {"a": "z"}, Requirement("a", "In", ("x", "y")), {"a": "x"}),
    ("NotIn", {"a": "x"}, Requirement("a", "NotIn", ("x",)), {}),
    ("NotIn, holds", {"a": "y"}, Requirement("a", "NotIn", ("x",)), {"a": "y"}),
    ("Exists", {}, Requirement("a", "Exists"), {"a": "true"}),
    ("DoesNotExist", {"a": "x"}, Requirement("a", "DoesNotExist"), {}),
    ("Gt", {"a": "3"}, Requirement("a", "Gt", ("7",)), {"a": "8"}),
    ("Gt, holds", {"a": "9"}, Requirement("a", "Gt", ("7",)), {"a": "9"}),
    ("Lt", {"a": "text"}, Requirement("a", "Lt", ("7",)), {"a": "6"}),
    ("unreadable", {"a": "x"}, Requirement("a", "Gt", ("text",)), {"a": "x"}),
)
def test_at_most_one_label_changes(labels: dict[str, str], requirement: Requirement, expected: dict[str, str]) -> None:
    """A requirement that does not hold changes one label, and one that holds changes none."""
    assert satisfied(labels, [requirement]) == expected


def test_labels_for_a_selector_match_it() -> None:
    """The proposed labels match the selector."""
    selector = LabelSelector({"app": "db"}, (Requirement("tier", "In", ("a", "b")), Requirement("old", "DoesNotExist")))
    assert compile_label_selector(selector).matches(matching_labels(selector))
    assert matching_labels(None) == {}


def test_a_pod_without_affinity_has_one_empty_term() -> None:
    """A pod without node affinity has one empty term, to which the node selector is added."""
    waiting = pod(node_selector={"disk": "ssd"})
    assert required_terms(waiting) == (NodeSelectorTerm(),)
    assert node_labels(waiting, NodeSelectorTerm(), {"disk": "hdd", "a": "b"}) == {"disk": "ssd", "a": "b"}
