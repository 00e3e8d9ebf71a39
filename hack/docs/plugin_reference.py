"""Generates the page of the built-in plugins: extension points, weights and args from ``scheduler_core.in_tree``."""

from collections.abc import Mapping

from pydantic import BaseModel

from hack.docs.field_tables import Schema, table, type_section, types_reached
from hack.docs.resource_reference import HEADER
from scheduler_core.framework.extension_points import POINT_CLASSES, Plugin, serves
from scheduler_core.in_tree import default_plugins, in_tree_registry

_INTRODUCTION = """# Built-in plugins

A profile that does not configure plugins has all of these except those marked "on demand", in this order and with
these weights. Names, order, weights and args are those of kube-scheduler v1.36.3. Args are set in a profile's
`pluginConfig` or in a [PluginConfig](pluginconfig.md). How to write another plugin: [plugins.md](../plugins.md).

"""


def plugin_page() -> str:
    """Generate the page.

    Returns:
        Markdown.
    """
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
    text = HEADER + _INTRODUCTION + table(("plugin", "extension points", "weight", "args"), rows)
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
