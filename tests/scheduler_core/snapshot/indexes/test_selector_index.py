"""Selectors by a required label pair, namespaces that a selector selects, and PodDisruptionBudgets by namespace."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    MOST_LISTED,
    LabelMatcher,
    compile_label_selector,
)
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from scheduler_core.snapshot.indexes.selector_index import (
    MOST_EVALUATIONS,
    DisruptionBudgets,
    LabelBuckets,
    NamespaceLabels,
    required_pair,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter
from tests.support.builders import node, pod
from tests.support.preemption import budget
from tests.support.tables import table


def matcher(*expressions: Requirement, **labels: str) -> LabelMatcher:
    """Return a compiled selector."""
    return compile_label_selector(LabelSelector(labels, expressions))


@table(
    "selector, pair",
    ("everything", MATCH_EVERYTHING, None),
    ("nothing", MATCH_NOTHING, None),
    ("a-pair", matcher(app="web"), ("app", "web")),
    ("one-value", matcher(Requirement("app", "In", ("web",))), ("app", "web")),
    ("two-values", matcher(Requirement("app", "In", ("web", "db"))), None),
    ("not-in", matcher(Requirement("app", "NotIn", ("web",))), None),
    ("the-first-single-value", matcher(Requirement("a", "Exists"), tier="x"), ("tier", "x")),
)
def test_required_pair(selector: LabelMatcher, pair: tuple[str, str] | None) -> None:
    """required_pair() returns the first label with a single required value."""
    assert required_pair(selector) == pair


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))

_SELECTORS = st.builds(
    lambda labels, operator, key: matcher(*([Requirement(key, operator)] if operator else []), **labels),
    _LABELS,
    st.sampled_from(["", "Exists", "DoesNotExist"]),
    st.sampled_from("ab"),
) | st.just(MATCH_NOTHING)

_STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12)


@given(selectors=st.lists(_SELECTORS, min_size=4, max_size=4), steps=_STEPS, labels=_LABELS)
def test_candidates_include_all_matches(
    selectors: list[LabelMatcher], steps: list[tuple[bool, int]], labels: dict[str, str]
) -> None:
    """Candidates are distinct, include every stored selector that matches, and include nothing that was removed."""
    buckets: LabelBuckets[int] = LabelBuckets()
    stored: set[int] = set()
    for adds, item in steps:
        if adds:
            buckets.add(selectors[item], item)
            stored.add(item)
        else:
            buckets.remove(selectors[item], item)
            stored.discard(item)
    found = list(buckets.candidates(labels))
    assert len(found) == len(set(found))
    assert {item for item in stored if selectors[item].matches(labels)} <= set(found) <= stored


def test_candidates_exclude_selectors_with_other_pairs() -> None:
    """Selectors that require another value of the label are not candidates."""
    buckets: LabelBuckets[str] = LabelBuckets()
    buckets.add(matcher(app="web"), "web")
    buckets.add(matcher(app="db"), "db")
    buckets.add(MATCH_EVERYTHING, "all")
    assert list(buckets.candidates({"app": "db"})) == ["all", "db"]


def stored_namespaces() -> NamespaceLabels:
    labels = NamespaceLabels()
    labels.assign("a", {"team": "x"})
    labels.assign("b", {"team": "y"})
    labels.assign("c", {})
    return labels


@table(
    "selector, names",
    ("absent", None, set()),
    ("empty", LabelSelector(), {"a", "b", "c"}),
    ("a-label", LabelSelector({"team": "x"}), {"a"}),
    ("not-in", LabelSelector({}, (Requirement("team", "NotIn", ("x",)),)), {"b", "c"}),
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


WEB = {"app": "web"}


def compiled(subject: Pod) -> PodInfo:
    return NodeColumns().compile_pod(subject)


@table(
    "stored, subject, protects",
    ("selected", budget("b", WEB, 1), pod(labels=WEB), True),
    ("not-selected", budget("b", WEB, 1), pod(labels={"app": "db"}), False),
    ("no-labels", budget("b", WEB, 1), pod(), False),
    ("empty-selector", budget("b", {}, 1), pod(labels=WEB), False),
    ("no-selector", budget("b", None, 1), pod(labels=WEB), False),
    ("disruption-already-counted", budget("b", WEB, 1, disrupted=["pod"]), pod(labels=WEB), False),
    ("disruption-of-another-pod-counted", budget("b", WEB, 1, disrupted=["other"]), pod(labels=WEB), True),
    (
        "invalid-selector",
        PodDisruptionBudget(
            ObjectMeta("b", "default"),
            PodDisruptionBudgetSpec(LabelSelector(match_expressions=(Requirement("app", "Among", ("web",)),))),
        ),
        pod(labels=WEB),
        False,
    ),
    (
        "selector-too-large",
        PodDisruptionBudget(
            ObjectMeta("b", "default"),
            PodDisruptionBudgetSpec(LabelSelector({}, (Requirement("app", "In", ("db",) * (MOST_LISTED + 1)),))),
        ),
        pod(labels=WEB),
        True,
    ),
)
def test_protects(stored: PodDisruptionBudget, subject: Pod, protects: bool) -> None:
    """A budget protects labelled pods that it selects, unless their disruption is already counted."""
    budgets = DisruptionBudgets(StepCounter())
    budgets.assign(stored)
    assert bool(budgets.protecting(compiled(subject))) is protects


def test_namespaces_are_separate() -> None:
    """Only budgets of its own namespace protect a pod."""
    budgets = DisruptionBudgets(StepCounter())
    budgets.assign(budget("b", WEB, 1, namespace="shop"))
    assert [each.name for each in budgets.protecting(compiled(pod(namespace="shop", labels=WEB)))] == ["b"]
    assert budgets.protecting(compiled(pod(labels=WEB))) == ()


def test_an_updated_budget_replaces_the_old_one() -> None:
    """The value of disruptions_allowed is that of the last update."""
    budgets = DisruptionBudgets(StepCounter())
    budgets.assign(budget("b", WEB, 1))
    info = compiled(pod(labels=WEB))
    assert [each.disruptions_allowed for each in budgets.protecting(info)] == [1]
    budgets.assign(budget("b", WEB, 0))
    assert [each.disruptions_allowed for each in budgets.protecting(info)] == [0]
    assert (len(budgets), budgets.version) == (1, 2)


def test_remove() -> None:
    """Removing a budget deletes it; removing an unknown budget changes nothing."""
    budgets = DisruptionBudgets(StepCounter())
    budgets.assign(budget("b", WEB, 1))
    info = compiled(pod(labels=WEB))
    budgets.remove("default", "other")
    assert len(budgets.protecting(info)) == 1
    assert (len(budgets), budgets.version) == (1, 1)
    budgets.remove("default", "b")
    assert (len(budgets), budgets.version) == (0, 2)
    assert budgets.protecting(info) == ()


def test_a_pod_that_is_relabelled_has_other_budgets() -> None:
    """Stored budgets of a pod are those of its current labels."""
    columns = NodeColumns()
    columns.disruption_budgets.assign(budget("b", WEB, 1))
    info = columns.compile_pod(pod(labels=WEB))
    columns.add_pod(info, columns.add_node(node("n")))
    assert len(columns.disruption_budgets.protecting(info)) == 1
    columns.relabel_pod(info, pod(labels={"app": "db"}))
    assert columns.disruption_budgets.protecting(info) == ()


class Steps:
    """Counts slices of one step."""

    def __init__(self) -> None:
        self.taken = 0
        self.counter = StepCounter(slice_steps=1)
        self.counter.on_slice_end = self._end

    def _end(self) -> None:
        self.taken += 1


def excluding(name: str, size: int, allowed: int = 0) -> PodDisruptionBudget:
    """Return a budget of requirements that all hold for every pod of other labels."""
    terms = tuple(Requirement(f"k{each}", "NotIn", ("v",)) for each in range(size))
    status = PodDisruptionBudgetStatus(disruptions_allowed=allowed)
    return PodDisruptionBudget(ObjectMeta(name, "default"), PodDisruptionBudgetSpec(LabelSelector({}, terms)), status)


def test_a_change_of_the_allowed_disruptions_evaluates_no_selector_again() -> None:
    """The disruption controller writes it after each change of a pod."""
    steps, info = Steps(), compiled(pod(labels=WEB))
    budgets = DisruptionBudgets(steps.counter)
    for each in range(5):
        budgets.assign(excluding(f"b{each}", 10))
    assert len(budgets.protecting(info)) == 5
    before = steps.taken
    assert before > 0
    budgets.assign(excluding("b2", 10, allowed=7))
    assert [each.disruptions_allowed for each in budgets.protecting(info)] == [0, 0, 7, 0, 0]
    assert steps.taken == before
    budgets.assign(excluding("b2", 11))
    assert [each.name for each in budgets.protecting(info)] == ["b0", "b1", "b2", "b3", "b4"]
    assert steps.taken > before


def test_budgets_of_other_labels_are_not_evaluated() -> None:
    """Thousands of ordinary budgets cost nothing, and do not count towards the limit."""
    steps, info = Steps(), compiled(pod(labels=WEB))
    budgets = DisruptionBudgets(steps.counter)
    for each in range(3 * MOST_EVALUATIONS):
        budgets.assign(budget(f"b{each}", {"app": f"a{each}"}, 1))
    budgets.assign(budget("web", WEB, 1))
    assert [each.name for each in budgets.protecting(info)] == ["web"]
    assert steps.taken <= 4


@table(
    "count, size",
    ("many requirements", 2, MOST_EVALUATIONS // 2),
    ("many budgets of many requirements", 300, 500),
    ("many budgets", MOST_EVALUATIONS + 1, 1),
    ("ten times as many", 10 * MOST_EVALUATIONS, 1),
)
def test_a_pod_with_too_many_budgets_to_evaluate_is_protected(count: int, size: int) -> None:
    """The evaluations of a pod are bounded; evicting it then violates a budget, whatever those allow."""
    steps, info = Steps(), compiled(pod(labels=WEB))
    budgets = DisruptionBudgets(steps.counter)
    for each in range(count):
        budgets.assign(excluding(f"b{each}", size, allowed=100))
    assert [each.disruptions_allowed for each in budgets.protecting(info)] == [0]
    assert steps.taken <= MOST_EVALUATIONS
