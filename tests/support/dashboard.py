"""Queries of the chart's Grafana dashboard, and whether a scrape has series for them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.presence import present
from tests.support.promql import Selector, Series, selectors

DASHBOARD = Path(__file__).resolve().parents[2] / "charts" / "bayplan" / "dashboards" / "bayplan.json"


def dashboard() -> dict[str, Any]:
    """Return the decoded dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def dashboard_queries() -> list[tuple[str, str]]:
    """Return every query with the title of its panel or the name of its variable; variables match any value."""
    board = dashboard()
    found = [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            query = present(re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]))
            found.append((f"${variable['name']}", f"count by ({query[2]}) ({query[1]})"))
    return [
        (title, re.sub(r"\$(job|namespace|profile)\b", ".*", expr.replace("$__rate_interval", "5m")))
        for title, expr in found
    ]


def series_of(scrape: str) -> dict[str, list[Series]]:
    """Return the labels of every sample of a scrape by sample name."""
    found: dict[str, list[Series]] = defaultdict(list)
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            found[sample.name].append(sample.labels)
    return found


def assert_has_series(scrape: str, prefix: str) -> None:
    """Assert that the dashboard reads metrics with a prefix, and that a scrape has series for all of them."""
    series = series_of(scrape)
    selected: list[Selector] = [
        each for _, query in dashboard_queries() for each in selectors(query) if each.name.startswith(prefix)
    ]
    assert selected
    assert [each for each in selected if not each.finds(series.get(each.name, ()))] == []
