"""Generates the page of the operator's settings from their model."""

import click
from bayplan.cli.run import run
from bayplan.settings import Settings

from hack.docs.field_tables import default_of, table, type_of, type_section, types_reached
from hack.docs.resource_reference import HEADER

_INTRODUCTION = """# Settings of the operator

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
    """Generate the page.

    Returns:
        Markdown.
    """
    root = Settings.model_json_schema(by_alias=True)
    definitions = root.get("$defs", {})
    flags = {option.name: max(option.opts, key=len) for option in run.params if isinstance(option, click.Option)}
    rows = []
    for name, info in Settings.model_fields.items():
        field = root["properties"][info.alias or name]
        flag = f"`{flags[name]}`" if name in flags else ""
        columns = (f"`{info.alias or name}`", flag, type_of(field, definitions), default_of(field, definitions))
        rows.append((*columns, info.description or ""))
    text = HEADER + _INTRODUCTION + table(("name", "flag", "type", "default", "meaning"), rows)
    for name in types_reached("Settings", {**definitions, "Settings": root}):
        if name != "Settings" and "properties" in definitions[name]:
            text += "\n" + type_section(name, definitions, 2)
    return text
