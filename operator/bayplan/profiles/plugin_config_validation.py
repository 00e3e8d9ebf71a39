"""Validation of PluginConfig objects by the plugins that use their args; args are validated once per edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import ObjectMeta
from scheduler_core.config import plugin_set_types as plugins_config
from scheduler_core.config.plugin_args import IN_TREE_ARGS, read_args
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.registry import Registry, unknown_config_problem

_MAX_REFERRERS = 256


class DesiredPluginConfig(Struct, frozen=True):
    """Validated PluginConfig.

    Attributes:
        meta: Its metadata.
        plugin: The plugin that it configures, "" if that cannot be read.
        entry: Its entry in a profile; None if it is invalid.
        args: Its validated args, from which profiles that refer to it are built; None if it has none or is invalid.
        problems: The problems; paths begin with ``spec``.
        referenced_by: Names of profiles that refer to it, as many as fit in the status.
        reference_count: Number of profiles that refer to it.
        status: The status of the object.
    """

    meta: ObjectMeta
    plugin: str
    entry: plugins_config.PluginConfig | None
    args: BaseModel | None
    problems: tuple[Problem, ...]
    referenced_by: tuple[str, ...]
    reference_count: int
    status: Mapping[str, Any]


class _Args(Struct, frozen=True):
    """Result of validating the args of one PluginConfig.

    Attributes:
        key: The plugin, and the args as text: in Python 1 and True are equal, in a manifest they are not.
        args: The validated args; None if the plugin takes none or they are invalid.
        problems: The problems; paths begin with ``spec``.
    """

    key: tuple[str, str]
    args: BaseModel | None = None
    problems: tuple[Problem, ...] = ()


class PluginConfigValidation:
    """Validation of PluginConfig objects; the args of an object are validated again only when they change.

    Args:
        registry: The installed plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._validated: dict[str, _Args] = {}

    def validate(
        self, bodies: Iterable[Mapping[str, Any]], references: Mapping[str, tuple[str, ...]]
    ) -> tuple[DesiredPluginConfig, ...]:
        """Validate all PluginConfig objects; results of objects that are not among them are dropped.

        Args:
            bodies: The objects from the API server.
            references: For each profile, the PluginConfigs that it refers to.

        Returns:
            A result for each, sorted by name.
        """
        before, self._validated = self._validated, {}
        results = [self._result(body, references, before) for body in bodies]
        return tuple(sorted(results, key=lambda config: config.meta.name))

    def _result(
        self, body: Mapping[str, Any], references: Mapping[str, tuple[str, ...]], before: Mapping[str, _Args]
    ) -> DesiredPluginConfig:
        meta = ObjectMeta.model_validate(body["metadata"])
        spec, status = body.get("spec"), body.get("status")
        plugin = spec.get("plugin") if isinstance(spec, Mapping) else None
        entry, args, problems = None, None, tuple[Problem, ...]()
        try:
            entry = PluginConfig.from_object({name: value for name, value in body.items() if name != "status"}).entry()
        except ConfigError as error:
            problems = error.problems
        else:
            key = (entry.name, repr(entry.args))
            validated = before.get(meta.name)
            if validated is None or validated.key != key:
                validated = _validate_args(key, entry, self._registry)
            self._validated[meta.name] = validated
            args, problems = validated.args, validated.problems
        referrers = sorted(profile for profile, names in references.items() if meta.name in names)
        return DesiredPluginConfig(
            meta=meta,
            plugin=plugin if isinstance(plugin, str) else "",
            entry=None if problems else entry,
            args=args,
            problems=problems,
            referenced_by=tuple(referrers[:_MAX_REFERRERS]),
            reference_count=len(referrers),
            status=status if isinstance(status, Mapping) else {},
        )


def _validate_args(key: tuple[str, str], entry: plugins_config.PluginConfig, registry: Registry) -> _Args:
    unknown = unknown_config_problem(entry.name, registry)
    if unknown:
        return _Args(key, problems=(Problem("spec.plugin", unknown),))
    kind = registry.get(entry.name)
    model = IN_TREE_ARGS.get(entry.name) if kind is None else kind.args_model
    if model is not None:
        try:
            return _Args(key, read_args(entry.name, model, entry.args, "spec.args"))
        except ConfigError as error:
            return _Args(key, problems=error.problems)
    fields = sorted(set(entry.args) - {"apiVersion", "kind"})
    if fields:
        message = f'plugin "{entry.name}" takes no args; remove {", ".join(fields)}'
        return _Args(key, problems=(Problem("spec.args", message),))
    return _Args(key)
