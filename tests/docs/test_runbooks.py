"""The runbook of each alert is a section of the page of alerts."""

from __future__ import annotations

import pytest
import yaml

from tests.docs.markdown import ROOT, Page

RULES = ROOT / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
ALERTS = {
    rule["alert"]: rule["annotations"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.mark.parametrize("alert", [pytest.param(name, id=name) for name in ALERTS])
def test_an_alert_has_its_runbook(alert: str) -> None:
    """The address of a runbook is the page of this release, and its anchor the section of the alert."""
    page, _, anchor = ALERTS[alert]["runbook_url"].partition("#")
    assert page == "docs/reference/alerts.md"
    assert anchor == alert.lower()
    assert anchor in Page(ROOT / "docs/reference/alerts.md").anchors
