"""Validation of PluginConfig objects by the plugins that use their args."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import ObjectMeta
from scheduler_core.config import enabled_plugins as plugins_config
from scheduler_core.config.plugin_args import IN_TREE_ARGS, read_args
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.plugin_sets import unknown_config_problem
from scheduler_core.framework.registry import Registry

_MAX_REFERRERS = 256


class DesiredPluginConfig(Struct, frozen=True):
    """Validated PluginConfig.

    Attributes:
        meta: Its metadata.
        plugin: The plugin that it configures, "" if that cannot be read.
        entry: Its entry in a profile; None if it is invalid.
        problems: The problems; paths begin with ``spec``.
        referenced_by: Names of profiles that refer to it, as many as fit in the status.
        reference_count: Number of profiles that refer to it.
        status: The status of the object.
    """

    meta: ObjectMeta
    plugin: str
    entry: plugins_config.PluginConfig | None
    problems: tuple[Problem, ...]
    referenced_by: tuple[str, ...]
    reference_count: int
    status: Mapping[str, Any]


def validate_plugin_configs(
    bodies: Iterable[Mapping[str, Any]], registry: Registry, references: Mapping[str, tuple[str, ...]]
) -> tuple[DesiredPluginConfig, ...]:
    """Validate PluginConfig objects.

    Args:
        bodies: The objects from the API server.
        registry: The installed plugins.
        references: For each profile, the PluginConfigs that it refers to.

    Returns:
        A result for each, sorted by name.
    """
    validated = [_validate(body, registry, references) for body in bodies]
    return tuple(sorted(validated, key=lambda config: config.meta.name))


def _validate(
    body: Mapping[str, Any], registry: Registry, references: Mapping[str, tuple[str, ...]]
) -> DesiredPluginConfig:
    meta = ObjectMeta.model_validate(body["metadata"])
    spec, status = body.get("spec"), body.get("status")
    plugin = spec.get("plugin") if isinstance(spec, Mapping) else None
    entry, problems = None, tuple[Problem, ...]()
    try:
        entry = PluginConfig.from_object({name: value for name, value in body.items() if name != "status"}).entry()
        problems = _entry_problems(entry, registry)
    except ConfigError as error:
        problems = error.problems
    referrers = sorted(profile for profile, names in references.items() if meta.name in names)
    return DesiredPluginConfig(
        meta=meta,
        plugin=plugin if isinstance(plugin, str) else "",
        entry=None if problems else entry,
        problems=problems,
        referenced_by=tuple(referrers[:_MAX_REFERRERS]),
        reference_count=len(referrers),
        status=status if isinstance(status, Mapping) else {},
    )


def _entry_problems(entry: plugins_config.PluginConfig, registry: Registry) -> tuple[Problem, ...]:
    unknown = unknown_config_problem(entry.name, registry)
    if unknown:
        return (Problem("spec.plugin", unknown),)
    kind = registry.get(entry.name)
    model = IN_TREE_ARGS.get(entry.name) if kind is None else kind.args_model
    if model is not None:
        try:
            read_args(entry.name, model, entry.args, "spec.args")
        except ConfigError as error:
            return error.problems
        return ()
    fields = sorted(set(entry.args) - {"apiVersion", "kind"})
    if fields:
        return (Problem("spec.args", f'plugin "{entry.name}" takes no args; remove {", ".join(fields)}'),)
    return ()
