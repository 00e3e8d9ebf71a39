"""Labels of namespaces, and the namespaces that a selector selects."""

import pytest

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.snapshot.indexes.selector_index import NamespaceLabels


def stored_namespaces() -> NamespaceLabels:
    labels = NamespaceLabels()
    labels.assign("a", {"team": "x"})
    labels.assign("b", {"team": "y"})
    labels.assign("c", {})
    return labels


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        pytest.param(None, set(), id="absent"),
        pytest.param(LabelSelector(), {"a", "b", "c"}, id="empty"),
        pytest.param(LabelSelector({"team": "x"}), {"a"}, id="a-label"),
        pytest.param(LabelSelector({}, (Requirement("team", "NotIn", ("x",)),)), {"b", "c"}, id="not-in"),
    ],
)
def test_selected(selector: LabelSelector | None, names: set[str]) -> None:
    """selected() returns the stored namespaces with matching labels."""
    assert stored_namespaces().selected(compile_label_selector(selector)) == names


def test_the_version_changes_with_labels_only() -> None:
    """The version increases only if labels change or a known namespace is removed."""
    labels = stored_namespaces()
    version = labels.version
    labels.assign("a", {"team": "x"})
    labels.remove("unknown")
    assert labels.version == version
    labels.assign("a", {"team": "z"})
    labels.remove("b")
    assert labels.version == version + 2
    assert (labels.get("a"), labels.get("b")) == ({"team": "z"}, None)
