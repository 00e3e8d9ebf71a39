"""Generates the reference pages: custom resources, settings, built-in plugins and alerts.

Each comes from the definition that the code uses: models, ``scheduler_core.in_tree``, the chart's alerting rules.
"""

from collections.abc import Mapping
from pathlib import Path

import click
import yaml
from bayplan.cli.run import run
from bayplan.resources.crd_generation import overlaid_definitions, part_of
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource
from bayplan.settings.operator_settings import Settings
from pydantic import BaseModel

from hack.docs.field_tables import Schema, default_of, table, type_of, type_section, types_reached
from scheduler_core.framework.extension_points import POINT_CLASSES, Plugin, serves
from scheduler_core.in_tree import default_plugins, in_tree_registry

HEADER = "<!-- Generated from the code by `make docs`; edit the descriptions there, not this page. -->\n\n"
_RULES = Path(__file__).resolve().parents[2] / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
_ALERTS = """# Alerts

The chart's PrometheusRule (`prometheusRule.enabled`) contains these alerts and the
[recorded objectives](#recorded-objectives). Braces mark values that the alert fills in. If the value
`prometheusRule.runbookUrl` is the address of this page where your users reach it, the annotation `runbook_url` of each
alert leads to its section; by default alerts have no such annotation.

"""
_OBJECTIVES = """
## Recorded objectives

The page shows the objectives of the last half hour; these rules record the same as fractions between 0 and 1, for
dashboards and for alerts on your own objectives. A rule has no value while there are no pods or attempts.

"""


def alert_page() -> str:
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    every = [rule for group in groups for rule in group["rules"]]
    rules = [rule for rule in every if "alert" in rule]
    rows = [
        (f"[{rule['alert']}](#{rule['alert'].lower()})", rule["labels"]["severity"], _summary(rule)) for rule in rules
    ]
    text = HEADER + _ALERTS + table(("alert", "severity", "summary"), rows) + "".join(map(_section, rules))
    recorded = [(f"`{rule['record']}`", f"`{' '.join(rule['expr'].split())}`") for rule in every if "record" in rule]
    return text + _OBJECTIVES + table(("record", "expression"), recorded)


def _summary(rule: dict[str, dict[str, str]]) -> str:
    return rule["annotations"]["summary"]


def _section(rule: dict[str, dict[str, str]]) -> str:
    lasting = f"After {rule['for']}: " if "for" in rule else ""
    description = " ".join(rule["annotations"]["description"].split())
    return f"\n## {rule['alert']}\n\n{lasting}{description}\n\n```promql\n{' '.join(str(rule['expr']).split())}\n```\n"


_PLUGINS = """# Built-in plugins

A profile that does not configure plugins has all of these except those marked "on demand", in this order and with
these weights. Names, order, weights and args are those of kube-scheduler v1.37.1. Args are set in a profile's
`pluginConfig` or in a [PluginConfig](pluginconfig.md). How to write another plugin:
[write-a-plugin.md](../write-a-plugin.md).

"""


def plugin_page() -> str:
    registry = in_tree_registry()
    weights = {entry.name: entry.weight for entry in default_plugins().multi_point.enabled}
    rows, definitions, roots = [], dict[str, Schema](), list[tuple[str, str]]()
    for name in registry:
        plugin = registry.get(name)
        if plugin is None:
            continue
        model = _args_model(plugin)
        link = ""
        if model is not None:
            definitions |= _definitions(model)
            roots.append((name, model.__name__))
            link = f"[{model.__name__}](#{model.__name__.lower()})"
        points = ", ".join(point for point in POINT_CLASSES if serves(plugin, point))
        weight = "on demand" if name not in weights else str(weights[name] or "")
        rows.append((f"`{name}`", points, weight, link))
    text = HEADER + _PLUGINS + table(("plugin", "extension points", "weight", "args"), rows)
    done: set[str] = set()
    for _, root in roots:
        for reached in types_reached(root, definitions):
            if reached not in done and "properties" in definitions[reached]:
                done.add(reached)
                text += "\n" + type_section(reached, definitions, 2 if reached == root else 3)
    return text


def _args_model(plugin: type[Plugin]) -> type[BaseModel] | None:
    model = getattr(plugin, "args_model", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) and model.model_fields else None


def _definitions(model: type[BaseModel]) -> Mapping[str, Schema]:
    schema = model.model_json_schema(by_alias=True)
    return {**schema.get("$defs", {}), model.__name__: schema}


_SETTINGSS = """# Settings of the operator

A setting is a flag of `bayplan run`, or a field of the YAML file of `bayplan run --settings FILE`, or a field under
`settings` in the chart's values, from which the chart generates that file. A flag overrides the file. Unknown names and
invalid values are rejected at startup, all at once, each with its field or flag.

```yaml
percentageOfNodesToScore: 0
leaderElection:
  leaderElect: true
logFormat: json
```

Durations are seconds, or texts such as `500ms`, `15s`, `5m`. The operator reads its settings at startup; the chart
replaces the pod when they change.

## Settings

"""


def settings_page() -> str:
    root = Settings.model_json_schema(by_alias=True)
    definitions = root.get("$defs", {})
    flags = {option.name: max(option.opts, key=len) for option in run.params if isinstance(option, click.Option)}
    rows = []
    for name, info in Settings.model_fields.items():
        field = root["properties"][info.alias or name]
        flag = f"`{flags[name]}`" if name in flags else ""
        columns = (f"`{info.alias or name}`", flag, type_of(field, definitions), default_of(field, definitions))
        rows.append((*columns, info.description or ""))
    text = HEADER + _SETTINGSS + table(("name", "flag", "type", "default", "meaning"), rows)
    for name in types_reached("Settings", {**definitions, "Settings": root}):
        if name != "Settings" and "properties" in definitions[name]:
            text += "\n" + type_section(name, definitions, 2)
    return text


def resource_page(resource: type[CustomResource]) -> str:
    definition = resource.definition
    definitions = overlaid_definitions(resource.model_json_schema(by_alias=True))
    scope = "namespaced" if definition.namespaced else "cluster-scoped"
    names = f"`{GROUP}/{VERSION}`, {scope}, `kubectl get {definition.short_name}` or `{definition.plural}.{GROUP}`."
    parts = [f"{HEADER}# {definition.kind}\n\n{definition.description}\n\n{names}\n"]
    if definition.rules:
        rules = "".join(f"- `{rule.field_path.lstrip('.')}`: {rule.message}\n" for rule in definition.rules)
        parts.append(f"The API server rejects objects that break these rules:\n\n{rules}")
    done: set[str] = set()
    for name, heading in (("spec", "Spec"), ("status", "Status")):
        parts.append(f"## {heading}\n")
        root = part_of(resource, name).__name__
        for reached in types_reached(root, definitions):
            if reached not in done and "properties" in definitions[reached]:
                done.add(reached)
                parts.append(type_section(reached, definitions, 3))
    rows = [(column.name, "`-o wide`" if column.wide else "", column.description) for column in definition.columns]
    columns = table(("column", "shown with", "meaning"), rows)
    command = f"`kubectl get {definition.short_name}`"
    parts.append(f"## Columns\n\n{command} shows the name, these columns, and the age:\n\n{columns}")
    return "\n".join(parts)
