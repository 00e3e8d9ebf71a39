"""Index of PodDisruptionBudgets by namespace."""

import pytest

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec
from scheduler_core.snapshot.indexes.disruption_index import DisruptionBudgets
from tests.support.builders import pod
from tests.support.preemption import budget

WEB = {"app": "web"}


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
    budgets = DisruptionBudgets()
    budgets.assign(stored)
    (compiled,) = budgets.of_namespace("default")
    assert compiled.protects(subject) is protects


def test_namespaces_are_separate() -> None:
    """of_namespace() returns only the budgets of the namespace."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1, namespace="shop"))
    assert [each.name for each in budgets.of_namespace("shop")] == ["b"]
    assert list(budgets.of_namespace("default")) == []


def test_an_updated_budget_replaces_the_old_one() -> None:
    """The value of disruptions_allowed is that of the last update."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1))
    budgets.assign(budget("b", WEB, 0))
    assert [each.disruptions_allowed for each in budgets.of_namespace("default")] == [0]
    assert (len(budgets), budgets.version) == (1, 2)


def test_remove() -> None:
    """Removing a budget deletes it; removing an unknown budget changes nothing."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1))
    budgets.remove("default", "other")
    assert (len(budgets), budgets.version) == (1, 1)
    budgets.remove("default", "b")
    assert (len(budgets), budgets.version) == (0, 2)
    assert list(budgets.of_namespace("default")) == []
