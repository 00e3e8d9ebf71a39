"""Generates the page of the alerts from the chart's alerting rules."""

from pathlib import Path

import yaml

from hack.docs.field_tables import table
from hack.docs.resource_reference import HEADER

_RULES = Path(__file__).resolve().parents[2] / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
_INTRODUCTION = """# Alerts

The chart's PrometheusRule (`prometheusRule.enabled`) contains these alerts. Braces mark values that the alert fills in.

"""


def alert_page() -> str:
    """Generate the page.

    Returns:
        Markdown.
    """
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    rows = [
        (f"[{rule['alert']}](#{rule['alert'].lower()})", rule["labels"]["severity"], _summary(rule)) for rule in rules
    ]
    return HEADER + _INTRODUCTION + table(("alert", "severity", "summary"), rows) + "".join(map(_section, rules))


def _summary(rule: dict[str, dict[str, str]]) -> str:
    return rule["annotations"]["summary"]


def _section(rule: dict[str, dict[str, str]]) -> str:
    lasting = f"After {rule['for']}: " if "for" in rule else ""
    description = " ".join(rule["annotations"]["description"].split())
    return f"\n## {rule['alert']}\n\n{lasting}{description}\n\n```promql\n{' '.join(str(rule['expr']).split())}\n```\n"
