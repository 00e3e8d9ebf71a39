"""Labels of namespaces, and which of them a selector selects."""

import pytest

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.snapshot.indexes.namespace_labels import NamespaceLabels


def known() -> NamespaceLabels:
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
    """Of the known ones."""
    assert known().selected(compile_label_selector(selector)) == names


def test_the_version_moves_with_labels_only() -> None:
    """What was selected stays good while nothing changes."""
    labels = known()
    version = labels.version
    labels.assign("a", {"team": "x"})
    labels.remove("unknown")
    assert labels.version == version
    labels.assign("a", {"team": "z"})
    labels.remove("b")
    assert labels.version == version + 2
    assert (labels.get("a"), labels.get("b")) == ({"team": "z"}, None)
