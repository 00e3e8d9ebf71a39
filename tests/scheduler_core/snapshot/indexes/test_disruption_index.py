"""Index of PodDisruptionBudgets by namespace."""

import pytest

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from scheduler_core.snapshot.indexes.selector_index import DisruptionBudgets
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter
from tests.support.builders import node, pod
from tests.support.preemption import budget

WEB = {"app": "web"}


def compiled(subject: Pod) -> PodInfo:
    return NodeColumns().compile_pod(subject)


@pytest.mark.parametrize(
    ("stored", "subject", "protects"),
    [
        pytest.param(budget("b", WEB, 1), pod(labels=WEB), True, id="selected"),
        pytest.param(budget("b", WEB, 1), pod(labels={"app": "db"}), False, id="not-selected"),
        pytest.param(budget("b", WEB, 1), pod(), False, id="no-labels"),
        pytest.param(budget("b", {}, 1), pod(labels=WEB), False, id="empty-selector"),
        pytest.param(budget("b", None, 1), pod(labels=WEB), False, id="no-selector"),
        pytest.param(budget("b", WEB, 1, disrupted=["pod"]), pod(labels=WEB), False, id="disruption-already-counted"),
        pytest.param(
            budget("b", WEB, 1, disrupted=["other"]), pod(labels=WEB), True, id="disruption-of-another-pod-counted"
        ),
        pytest.param(
            PodDisruptionBudget(
                ObjectMeta("b", "default"),
                PodDisruptionBudgetSpec(LabelSelector(match_expressions=(Requirement("app", "Among", ("web",)),))),
            ),
            pod(labels=WEB),
            False,
            id="invalid-selector",
        ),
    ],
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
