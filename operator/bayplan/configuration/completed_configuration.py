"""Prints a KubeSchedulerConfiguration with its defaults, as ``kube-scheduler --write-config-to`` does.

The output equals kube-scheduler's byte for byte, so that a diff of the two shows whether a file means the same to both.

Follows kube-scheduler v1.37.1, cmd/kube-scheduler/app/options/configfile.go: plugins are merged with the default set
but multiPoint is not expanded; args are those of the enabled plugins, sorted by name; resources that extenders declare
as ignored replace NodeResourcesFit's own ``ignoredResources``. Args that only Bayplan has are printed unless they have
their default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from bayplan.configuration.configuration_file import RunConfiguration, build_profiles
from bayplan.texts.yaml_documents import PlainDumper
from scheduler_core.config.config_model import ConfigModel
from scheduler_core.config.plugin_args import (
    API_VERSION,
    IN_TREE_ARGS,
    DynamicResourcesArgs,
    NodeResourcesFitArgs,
    VolumeBindingArgs,
    read_args,
)
from scheduler_core.config.plugin_set_types import PluginSet
from scheduler_core.config.profile_config import Extender
from scheduler_core.config.scheduler_configuration import KubeSchedulerConfiguration, KubeSchedulerProfile
from scheduler_core.framework.registry import Registry, merged_sets
from scheduler_core.in_tree import default_plugins
from scheduler_core.scheduler import Scheduler

_WIDTH = 1 << 20
_GATED_POINTS = ("placementGenerate", "placementScore", "podGroupPostFilter")
_DEFAULT_RESOURCES = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})


class _Dumper(PlainDumper):
    """YAML dumper with the style of Go's: no aliases, an empty string in double quotes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data else '"')


_Dumper.add_representer(str, _Dumper.represent_str)


def completed_configuration(configuration: RunConfiguration, scheduler: Scheduler) -> str:
    """Print a configuration with its defaults; raises ConfigError with every problem of its profiles."""
    for instance in build_profiles(scheduler, configuration):
        instance.retire()
    document = _completed(configuration.configuration, scheduler.registry)
    return yaml.dump(document, Dumper=_Dumper, sort_keys=True, width=_WIDTH)


def _completed(configuration: KubeSchedulerConfiguration, registry: Registry) -> dict[str, Any]:
    whole = configuration.model_dump(mode="json", by_alias=True)
    client = whole["clientConnection"]
    client["qps"] = int(client["qps"]) if float(client["qps"]).is_integer() else client["qps"]
    whole["enableContentionProfiling"] = bool(whole["enableContentionProfiling"])
    whole["extenders"] = [_extender(extender) for extender in configuration.extenders]
    ignored = _ignored_resources(configuration)
    whole["profiles"] = [_profile(profile, registry, ignored) for profile in configuration.profiles]
    omitted = [name for name in ("extenders", "delayCacheUntilActive") if not whole[name]]
    return {name: value for name, value in whole.items() if name not in omitted}


def _ignored_resources(configuration: KubeSchedulerConfiguration) -> list[str]:
    resources = [resource for extender in configuration.extenders for resource in extender.managed_resources]
    return [resource.name for resource in resources if resource.ignored_by_scheduler]


def _profile(profile: KubeSchedulerProfile, registry: Registry, ignored: list[str]) -> dict[str, Any]:
    merged = merged_sets(profile.plugins, default_plugins())
    document: dict[str, Any] = {"schedulerName": profile.scheduler_name}
    if profile.percentage_of_nodes_to_score is not None:
        document["percentageOfNodesToScore"] = profile.percentage_of_nodes_to_score
    document["plugins"] = {point: _plugin_set(found) for point, found in merged.items()}
    sets = profile.plugins.points()
    document["plugins"] |= {point: _plugin_set(sets[point]) for point in _GATED_POINTS}
    enabled = {entry.name for found in merged.values() for entry in found.enabled}
    given = {entry.name: entry.args for entry in profile.plugin_config}
    entries = []
    for name in sorted(enabled):
        if name in IN_TREE_ARGS:
            args = _args(name, given.get(name, {}))
            if name == "NodeResourcesFit" and ignored:
                args["ignoredResources"] = ignored
            entries.append({"name": name, "args": args})
        elif name in registry and given.get(name):
            entries.append({"name": name, "args": given[name]})
    if entries:
        document["pluginConfig"] = entries
    return document


def _plugin_set(found: PluginSet) -> dict[str, Any]:
    document = {
        "enabled": [{"name": entry.name, "weight": entry.weight or 0} for entry in found.enabled],
        # Only the name of a disabled plugin matters.
        "disabled": [{"name": entry.name, "weight": 0} for entry in found.disabled],
    }
    return {name: entries for name, entries in document.items() if entries}


def _args(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    model = read_args(name, IN_TREE_ARGS[name], given)
    document: dict[str, Any] = _without_unset(model.model_dump(mode="json", by_alias=True))
    complete = _COMPLETIONS.get(name)
    if complete is not None:
        complete(model, document)
    return {"apiVersion": API_VERSION, "kind": f"{name}Args", **document}


def _complete_fit(model: ConfigModel, document: dict[str, Any]) -> None:
    assert isinstance(model, NodeResourcesFitArgs)
    resources = model.scoring_strategy.scored_resources()
    document["scoringStrategy"]["resources"] = [resource.model_dump() for resource in resources]


def _complete_balance(_: ConfigModel, document: dict[str, Any]) -> None:
    document.setdefault("resources", [dict(resource) for resource in _DEFAULT_RESOURCES])


def _complete_volume_binding(model: ConfigModel, document: dict[str, Any]) -> None:
    assert isinstance(model, VolumeBindingArgs)
    document["shape"] = [point.model_dump() for point in model.scoring_shape()]


def _omit_own_defaults(model: ConfigModel, document: dict[str, Any]) -> None:
    """Drop args that kube-scheduler does not have, unless they are set to another value."""
    for field in _OWN_DEVICE_ARGS:
        info = DynamicResourcesArgs.model_fields[field]
        if getattr(model, field) == info.default:
            del document[str(info.alias)]


_OWN_DEVICE_ARGS = ("device_selection", "gang_search_steps")
_COMPLETIONS: Mapping[str, Callable[[ConfigModel, dict[str, Any]], None]] = MappingProxyType(
    {
        "DynamicResources": _omit_own_defaults,
        "NodeResourcesFit": _complete_fit,
        "NodeResourcesBalancedAllocation": _complete_balance,
        "VolumeBinding": _complete_volume_binding,
    }
)
"""What the args models leave to the plugin, and what only Bayplan has."""


def _extender(extender: Extender) -> dict[str, Any]:
    document = extender.document()
    if extender.tls_config is not None:
        document["tlsConfig"] = extender.tls_config.document()
    return {**document, "urlPrefix": extender.url_prefix, "httpTimeout": str(extender.http_timeout)}


def _without_unset(node: Any) -> Any:
    """Drop null values and empty lists, as Go's ``omitempty`` does."""
    if isinstance(node, dict):
        return {name: _without_unset(value) for name, value in node.items() if value is not None and value != []}
    return [_without_unset(value) for value in node] if isinstance(node, list) else node
