"""The page of the operator's settings.

Owns what it says beside the tables. It must not hold a default or a meaning: those are the settings' own.
"""

import click
from bayplan.cli.run import run
from bayplan.settings import Settings

from hack.docs.field_tables import default_of, table, type_of, type_section, types_reached
from hack.docs.resource_reference import HEADER

_INTRODUCTION = """# Settings of the operator

A setting is given as a flag of `bayplan run`, or by the name below in the YAML file of `bayplan run --settings FILE`,
or under `settings` in the chart's values, from which the chart makes that file. A flag wins over the file. Unknown
names and values that cannot work are refused at the start, all at once, with the field or the flag.

```yaml
percentageOfNodesToScore: 0
leaderElection:
  leaderElect: true
logFormat: json
```

Times are seconds, or texts such as `500ms`, `15s`, `5m`. Settings are read when the process starts; the chart starts a
new pod when they change.

## Settings

"""


def settings_page() -> str:
    """Write the page.

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
        told = (f"`{info.alias or name}`", flag, type_of(field, definitions), default_of(field, definitions))
        rows.append((*told, info.description or ""))
    text = HEADER + _INTRODUCTION + table(("name", "flag", "type", "default", "meaning"), rows)
    for name in types_reached("Settings", {**definitions, "Settings": root}):
        if name != "Settings" and "properties" in definitions[name]:
            text += "\n" + type_section(name, definitions, 2)
    return text
