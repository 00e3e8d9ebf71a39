"""Metrics, dashboard, alerts and log of an operator after scheduled, rejected and preempted pods, gangs and edits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.launcher import ControlPlane
from tests.support.dashboard import dashboard, dashboard_queries, series_of
from tests.support.namespaces import new_namespace
from tests.support.observed_operator import Observed, observe
from tests.support.promql import TARGET_LABELS, Selector, Series, selectors
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "charts" / "bayplan" / "alerts"
OF_PROMETHEUS = {"up"}
"""Metrics that Prometheus itself adds."""
OF_SHADOWS = {"bayplan_shadow_decisions_total", "bayplan_shadow_seconds_total"}
"""Metrics of shadow profiles, which this run does not have; test_shadow_profiles.py tests their panels."""
AFTER_A_FAULT = {
    ("scheduler_async_api_call_execution_total", (("result", "error"),)): "no call to the API server failed",
    ("bayplan_device_allocations_total", ()): "no pod of this run has a claim; test_devices.py tests the panel",
    ("bayplan_contested_nodes", ()): "no other scheduler binds pods; test_rivals.py tests the panel",
    ("bayplan_rival_overcommits_total", ()): "as above",
    ("scheduler_permit_wait_duration_seconds_bucket", ()): "no plugin of this run makes a pod wait at Permit",
}
"""Series that this run does not have, and why; their families are exposed."""
DOCUMENTED_WITHOUT_SERIES = {
    "scheduler_batch_attempts_total": "documented as left out",
    "scheduler_batch_cache_flushed_total": "as above",
    "scheduler_get_node_hint_duration_seconds": "as above",
    "scheduler_store_schedule_results_duration_seconds": "as above",
    "scheduler_queued_entities": "documented as not implemented",
    "scheduler_queue_incoming_entities_total": "as above",
    "bayplan_shadow_decisions_total": "of shadow profiles; test_shadow_profiles.py tests it",
    "bayplan_shadow_not_compared_total": "as above",
    "bayplan_shadow_seconds_total": "as above",
}


@pytest.fixture(scope="module")
def observed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """Run one operator for all tests of this module."""
    with new_namespace(control_plane, "test-observability") as name:
        return observe(control_plane, name, tmp_path_factory.mktemp("observed"))


@pytest.fixture(scope="module")
def series(observed: Observed) -> dict[str, list[Series]]:
    """Return the labels of every sample, by the sample's name."""
    return series_of(observed.scrape)


def queries_of_alerts() -> list[tuple[str, str]]:
    """Return the expression of every alert and recorded objective, with its name."""
    return [
        (rule.get("alert") or rule["record"], rule["expr"])
        for file in sorted(ALERTS.glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def named(queries: list[tuple[str, str]]) -> list[Any]:
    return [pytest.param(expr, id=f"{title} {number}") for number, (title, expr) in enumerate(queries)]


def is_excused(selector: Selector) -> bool:
    matched = tuple(
        (label, value) for label, _, value in selector.matchers if label not in TARGET_LABELS and value != ".*"
    )
    return selector.name in OF_PROMETHEUS or selector.name in OF_SHADOWS or (selector.name, matched) in AFTER_A_FAULT


@pytest.mark.parametrize("expression", named(dashboard_queries() + queries_of_alerts()))
def test_queries_find_series(series: dict[str, list[Series]], expression: str) -> None:
    """Every selector of the dashboard and the alerts finds a series with the labels by which it is grouped."""
    found = selectors(expression)
    assert found
    for selector in found:
        assert is_excused(selector) or selector.finds(series.get(selector.name, ())), selector


def test_excused_series_are_absent(observed: Observed, series: dict[str, list[Series]]) -> None:
    """The family of each excused series is exposed, but the series itself is absent."""
    for name, matched in AFTER_A_FAULT:
        assert f"# HELP {name.removesuffix('_bucket')} " in observed.scrape
        assert not any(dict(matched).items() <= dict(labels).items() for labels in series.get(name, ()))


def test_a_wrong_query_finds_nothing(series: dict[str, list[Series]]) -> None:
    """A selector with a wrong name, label, value or grouping finds no series."""
    for wrong in (
        "sum(rate(scheduler_schedule_attempt_total[5m]))",
        'scheduler_pending_pods{queues="active"}',
        'scheduler_pending_pods{queue="activ"}',
        "sum by (queues) (scheduler_pending_pods)",
    ):
        (selector,) = selectors(wrong)
        assert not selector.finds(series.get(selector.name, ()))


def test_legends_use_labels_of_the_query() -> None:
    """A legend may only use labels that the query groups by."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            labels = frozenset().union(*(selector.by for selector in selectors_of(target["expr"])))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]


def selectors_of(expression: str) -> list[Selector]:
    return selectors(expression.replace("$__rate_interval", "5m"))


def test_the_dashboard_is_well_formed() -> None:
    """Panels do not overlap, have unique ids and a description, and query the selected data source."""
    board = dashboard()
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels)
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(set(cells)) == len(cells)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["description"]


def test_the_page_lists_every_metric(observed: Observed) -> None:
    """docs/operate/metrics.md names every exposed metric, and no other."""
    text = (ROOT / "docs" / "operate" / "metrics.md").read_text()
    listed = set(
        re.findall(r"`((?:scheduler|bayplan|kubernetes|leader|dynamic_resource_allocation)_[a-z_]+[a-z])`", text)
    )
    shown = re.findall(r"^# TYPE (\w+) ", observed.scrape, re.MULTILINE)
    own = {name for name in shown if not name.startswith("process_")}
    assert own - listed == set()
    assert listed - own - set(DOCUMENTED_WITHOUT_SERIES) == set()


# -- the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret",
    [
        "the operator's own token",
        "a caller's token",
        "an extender's key",
        "an extender's key in base64",
        "the middle of that",
    ],
)
def test_no_secret_is_logged(observed: Observed, secret: str) -> None:
    """No secret is logged at the highest verbosity, by Bayplan, kopf, aiohttp or asyncio."""
    assert len(observed.secrets[secret]) > 20
    assert observed.secrets[secret] not in observed.log


@table(
    "fields, words",
    (
        "a pod is bound",
        {"pod": "test-observability/small-0", "result": "scheduled"},
        {"profile", "revision", "node", "attempts"},
    ),
    ("a pod is rejected", {"result": "unschedulable"}, {"pod", "profile", "revision"}),
    ("a gang is placed", {"podgroup": "test-observability/gang"}, {"profile", "result"}),
    ("a revision goes live", {"logger": "bayplan.profiles.profile_rollout"}, {"profile", "revision"}),
    ("a victim", {"pod": "test-observability/victim", "logger": "scheduler_core.decisions"}, {"node"}),
    ("an extender is unreachable", {"logger": "scheduler_core.runtime.extenders"}, {"pod"}),
)
def test_lines_have_fields(observed: Observed, fields: dict[str, str], words: set[str]) -> None:
    """A log line has the objects it is about in separate keys."""
    lines = [line for line in observed.lines if fields.items() <= line.items()]
    assert lines
    for line in lines:
        assert words <= line.keys()


def test_every_line_is_json(observed: Observed) -> None:
    """Every line of the log is written by the JSON formatter."""
    assert len(observed.lines) == len(observed.log.splitlines())
