"""The dashboard's queries return data on Prometheus while an operator schedules pods.

The operator is the only one of its cluster, unlike in ``test_prometheus.py``: a second one would bind some of its pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.dashboard import dashboard_queries
from tests.support.namespaces import new_namespace
from tests.support.observed_operator import observe
from tests.support.operator_process import OperatorProcess
from tests.support.prometheus_server import RANGE, PrometheusServer

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus, pytest.mark.timeout(300)]

WITHOUT_DATA = {
    "scheduler_async_api_call_execution_total": "of failed calls, and none failed",
    "scheduler_permit_wait_duration_seconds": "no plugin makes a pod wait at Permit",
    "bayplan_device_allocations_total": "no pod has a claim",
    "bayplan_contested_nodes": "no other scheduler binds pods",
    "bayplan_rival_overcommits_total": "as above",
    "bayplan_shadow_": "there is no shadow profile",
}
"""Series of the dashboard that the run does not have; test_observability.py tests that this is so."""


def test_dashboard_queries_return_data(plane: ControlPlane, tmp_path: Path) -> None:
    """Every query of the dashboard returns samples, and the objectives are recorded, while pods are scheduled."""
    lacking: list[str] = []

    @contextmanager
    def scraped(operator: OperatorProcess) -> Iterator[None]:
        with PrometheusServer(tmp_path) as prometheus:
            prometheus.scrape({"a": operator.port})
            prometheus.until(lambda: prometheus.query("bayplan_leader") != [], "the operator is scraped")
            yield
            queries = [expression.replace("[5m]", f"[{RANGE}]") for _, expression in dashboard_queries()]
            queries += ["namespace:bayplan_pods_bound_in_time:ratio_rate30m"]
            queries += ["namespace_profile:bayplan_attempts_in_time:ratio_rate30m"]
            expected = [each for each in queries if not any(name in each for name in WITHOUT_DATA)]
            assert len(expected) > 20

            def are_answered() -> bool:
                lacking[:] = [each for each in expected if not prometheus.query(each)]
                return not lacking

            try:
                prometheus.until(are_answered, "all queries return data")
            except AssertionError as error:
                raise AssertionError(f"no data: {lacking}") from error

    with new_namespace(plane, "test-dashboard") as name:
        observe(plane, name, tmp_path / "observed", scraped)
