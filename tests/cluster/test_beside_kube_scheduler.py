"""kube-scheduler and Bayplan schedule the same manifests: both must bind the same pods and report the same reasons."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.scenarios.scenario import Scenario, read_scenarios
from tests.scenarios.scenario_runner import SCHEDULERS, ScenarioRunner

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kwok,
    pytest.mark.kube_scheduler,
    pytest.mark.reference,
    pytest.mark.timeout(300),
]

SCENARIOS = read_scenarios(Path(__file__).resolve().parent / "scenarios")


@pytest.fixture(scope="module")
def runners() -> Iterator[list[ScenarioRunner]]:
    """Start a control plane with kube-scheduler and one with Bayplan."""
    with ExitStack() as stack, ThreadPoolExecutor(len(SCHEDULERS)) as pool:
        yield [stack.enter_context(runner) for runner in pool.map(ScenarioRunner, SCHEDULERS)]


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in SCENARIOS])
def test_both_schedulers_agree(scenario: Scenario, runners: list[ScenarioRunner]) -> None:
    """Nodes, nominations, conditions, victims and events are equal and match the scenario's expectations."""
    with ThreadPoolExecutor(len(runners)) as pool:
        reference, ours = pool.map(lambda runner: runner.run(scenario), runners)
    assert (reference.missed_waits, ours.missed_waits) == ((), ())
    differences = reference.differences(ours)
    assert not differences, f"kube-scheduler first, Bayplan second: {scenario.description}\n" + "\n".join(differences)
