"""Budgets by namespace."""

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
    ("kept", "about", "protects"),
    [
        pytest.param(budget("b", WEB, 1), pod(labels=WEB), True, id="selected"),
        pytest.param(budget("b", WEB, 1), pod(labels={"app": "db"}), False, id="not-selected"),
        pytest.param(budget("b", WEB, 1), pod(), False, id="no-labels"),
        pytest.param(budget("b", {}, 1), pod(labels=WEB), False, id="empty-selector"),
        pytest.param(budget("b", None, 1), pod(labels=WEB), False, id="no-selector"),
        pytest.param(budget("b", WEB, 1, disrupted=["pod"]), pod(labels=WEB), False, id="counted-already"),
        pytest.param(budget("b", WEB, 1, disrupted=["other"]), pod(labels=WEB), True, id="another-is-counted"),
        pytest.param(
            PodDisruptionBudget(
                ObjectMeta("b", "default"),
                PodDisruptionBudgetSpec(LabelSelector(match_expressions=(Requirement("app", "Among", ("web",)),))),
            ),
            pod(labels=WEB),
            False,
            id="unreadable",
        ),
    ],
)
def test_protects(kept: PodDisruptionBudget, about: Pod, protects: bool) -> None:
    """A budget protects labelled pods that it selects and that are not on their way out by it."""
    budgets = DisruptionBudgets()
    budgets.assign(kept)
    (compiled,) = budgets.of_namespace("default")
    assert compiled.protects(about) is protects


def test_namespaces_are_apart() -> None:
    """A budget is found in its own namespace only."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1, namespace="shop"))
    assert [each.name for each in budgets.of_namespace("shop")] == ["b"]
    assert list(budgets.of_namespace("default")) == []


def test_a_changed_budget_replaces_the_old() -> None:
    """What it allows is as it was last seen."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1))
    budgets.assign(budget("b", WEB, 0))
    assert [each.disruptions_allowed for each in budgets.of_namespace("default")] == [0]
    assert (len(budgets), budgets.version) == (1, 2)


def test_removing_forgets() -> None:
    """One that is not known is not missed."""
    budgets = DisruptionBudgets()
    budgets.assign(budget("b", WEB, 1))
    budgets.remove("default", "other")
    assert (len(budgets), budgets.version) == (1, 1)
    budgets.remove("default", "b")
    assert (len(budgets), budgets.version) == (0, 2)
    assert list(budgets.of_namespace("default")) == []
