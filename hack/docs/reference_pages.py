"""Generates the reference pages: custom resources, settings, plugins, alerts, commands and values of the chart.

Each comes from the definition that the code uses: models, ``scheduler_core.in_tree``, the chart's alerting rules, the
help of the commands. Values are described by the comments of ``values.yaml``: a second text would soon differ from
them. `llms.txt` (https://llmstxt.org) is the list of pages of docs/README.md, with links from the repository's root.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import yaml
from bayplan.cli import bayplan
from bayplan.cli.run import run
from bayplan.resources.crd_generation import overlaid_definitions, part_of
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource
from bayplan.settings.operator_settings import Settings
from pydantic import BaseModel
from yaml.nodes import MappingNode, Node

from hack.docs.field_tables import Schema, default_of, table, type_of, type_section, types_reached
from scheduler_core.framework.extension_points import POINT_CLASSES, Plugin, serves
from scheduler_core.in_tree import default_plugins, in_tree_registry

HEADER = "<!-- Generated from the code by `make docs`; edit the descriptions there, not this page. -->\n\n"
_ROOT = Path(__file__).resolve().parents[2]
_RULES = _ROOT / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
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


# -- commands ----------------------------------------------------------------------------------------------------------

_DEFAULT = re.compile(r"\s*\[default: (?P<default>[^]]*)\]")
_COMMANDS = """# Commands

`bayplan COMMAND --help` prints the same text. `bayplan -v COMMAND` shows the traceback of an error. Unless stated
otherwise, the exit code is 0 on success, 1 on failure, and 2 when options or input are not valid.

"""


def command_page() -> str:
    with click.Context(bayplan, info_name="bayplan") as context:
        names = bayplan.list_commands(context)
        commands = {name: bayplan.get_command(context, name) for name in names}
        index = "".join(f"- [`bayplan {name}`](#bayplan-{name}): {_short(commands[name])}\n" for name in names)
        sections = [
            _command_section(context, name, command) for name, command in commands.items() if command is not None
        ]
    return "\n".join([HEADER + _COMMANDS + index, *sections])


def _short(command: click.Command | None) -> str:
    return command.get_short_help_str(limit=200) if command is not None else ""


def _command_section(parent: click.Context, name: str, command: click.Command | None) -> str:
    assert command is not None, "each listed command exists"
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join(["bayplan", name, *command.collect_usage_pieces(context)])
    paragraphs = [" ".join(part.split()) for part in (command.help or "").replace("``", "`").split("\n\n")]
    text = f"## bayplan {name}\n\n```text\n{usage}\n```\n\n" + "\n\n".join(paragraphs) + "\n"
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if options:
        text += "\n" + table(("option", "default", "meaning"), [_option_row(option) for option in options])
    return text


def _option_row(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{option.metavar or _kind(option)}`"
    text = option.help or ""
    found = _DEFAULT.search(text)
    default = found["default"].removesuffix(".0") if found else _shown_default(option)
    return names + value, f"`{default}`" if default else "", _DEFAULT.sub("", text)


def _kind(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    return option.type.name.upper().removesuffix(" RANGE")


def _shown_default(option: click.Option) -> str:
    """Return the default that `--help` shows; never a number of this machine, such as its cores."""
    if isinstance(option.show_default, str):
        return f"({option.show_default})"
    # click 8.3 has a sentinel where earlier releases had None.
    if option.is_flag or option.multiple or not isinstance(option.default, str | int | float):
        return ""
    return str(option.default) if option.show_default or isinstance(option.type, click.Choice) else ""


# -- values of the chart -----------------------------------------------------------------------------------------------

_CHART = _ROOT / "charts" / "bayplan"
_BEGIN = "<!-- values: made by `make docs` from values.yaml -->\n"
_END = "<!-- end of values -->\n"
_LONGEST_DEFAULT = 60


def chart_readme() -> str:
    """Generate the chart's README: the hand-written text, and the table between its marks."""
    text = (_CHART / "README.md").read_text(encoding="utf-8")
    before, found, rest = text.partition(_BEGIN)
    _, ended, after = rest.partition(_END)
    if not (found and ended):
        raise ValueError(f"charts/bayplan/README.md lacks the lines {_BEGIN!r} and {_END!r}: put them back")
    rows = [(f"`{path}`", default, words) for path, default, words in _value_rows()]
    return "".join([before, _BEGIN, "\n", table(("value", "default", "what it is"), rows), "\n", _END, after])


def _value_rows() -> Iterator[tuple[str, str, str]]:
    """Yield path, default and description of every value that can be set separately."""
    text = (_CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, MappingNode)
    yield from _below("", root, text.splitlines())


def _below(prefix: str, node: MappingNode, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        # A mapping whose fields have no comments is a single value for users.
        if isinstance(value, MappingNode) and value.value and _is_explained(lines, value.value[0][0]):
            yield from _below(f"{path}.", value, lines)
        else:
            yield path, _shown(value), _comment(lines, key.start_mark.line)


def _is_explained(lines: list[str], key: Node) -> bool:
    return lines[key.start_mark.line - 1].lstrip().startswith("#")


def _shown(node: Node) -> str:
    """Return the default in one line; a long one is abbreviated."""
    value = yaml.SafeLoader("").construct_document(node)
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= _LONGEST_DEFAULT else "see values.yaml"


def _comment(lines: list[str], line: int) -> str:
    """Return the comment above a line; if another value is there, the comment of that value covers both."""
    found: list[str] = []
    above = line - 1
    while above >= 0 and re.match(r"\s*#", lines[above]):
        found.insert(0, lines[above].strip().lstrip("#").strip())
        above -= 1
    if not found and above >= 0 and lines[above].strip() and not lines[above].rstrip().endswith(":"):
        return _comment(lines, above)
    return " ".join(found)


# -- llms.txt ----------------------------------------------------------------------------------------------------------

_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_LLMS = """# Bayplan

> A Kubernetes scheduler that is managed as an operator, written in Python. Scheduler profiles, plugin configurations
> and gangs are custom resources. Decisions equal those of kube-scheduler v1.37.1.

A pod selects a profile by `spec.schedulerName`. `kubectl get sp,plc,bpg,bnr,brp` lists the custom resources (`podgroup`
alone may be Kubernetes' own). `bayplan explain NAMESPACE/POD` explains why a pod is pending. [README](README.md) ·
[changes](CHANGELOG.md) · [contribute](CONTRIBUTING.md).

"""


def llms_index() -> str:
    text = (_ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    sections = text[text.index("\n## ") + 1 :]
    return _LLMS + _LINK.sub(_from_root, sections)


def _from_root(link: re.Match[str]) -> str:
    target = link["target"]
    if "://" not in target:
        target = posixpath.normpath(posixpath.join("docs", target))
    return f"]({target}{link['anchor'] or ''})"
