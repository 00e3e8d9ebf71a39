"""Converts a KubeSchedulerConfiguration to SchedulerProfiles, PluginConfigs and settings of the operator.

Backoffs and percentageOfNodesToScore are written into every profile although settings could hold them once: the
profiles then mean the same under any operator's settings, and an unset percentage has different meanings
(kube-scheduler: the adaptive formula; Bayplan: all nodes).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.configuration.configuration_file import RunConfiguration, build_profiles
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import API_VERSION, MAX_NAME_LENGTH
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings.operator_settings import Settings
from scheduler_core.config import plugin_set_types as plugins_config
from scheduler_core.config.plugin_args import IN_TREE_ARGS
from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.config.scheduler_configuration import DEFAULT_SCHEDULER_NAME, KubeSchedulerConfiguration
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.scheduler import Scheduler

_DEFAULT_PARALLELISM = 16
_DEFAULT_NAME_NOTICE = (
    f'a profile named "{DEFAULT_SCHEDULER_NAME}" is rejected unless the operator runs with '
    "--allow-default-scheduler (settings.allowDefaultScheduler); stop kube-scheduler first, or choose another name"
)
_Shared = Mapping[tuple[str, str], str]
"""Maps a plugin and its args in canonical form to the name of their PluginConfig."""


@dataclass(frozen=True, slots=True)
class Manifest:
    document: dict[str, Any]
    notices: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class ImportedConfiguration:
    """Result of converting a file.

    Attributes:
        manifests: PluginConfigs first, then a SchedulerProfile for each profile in the order of the file.
        settings: The operator's settings file, for fields that do not belong to a profile.
        notices: What could not be converted, and what else must be done.
    """

    manifests: tuple[Manifest, ...]
    settings: dict[str, Any]
    notices: tuple[str, ...]


def import_configuration(configuration: RunConfiguration, scheduler: Scheduler) -> ImportedConfiguration:
    """Convert a file; raises ConfigError with all problems of profiles, and of what custom resources cannot have."""
    for instance in build_profiles(scheduler, configuration):
        instance.retire()
    document = configuration.configuration
    configs = document.profile_configs()
    shared = _shared_args(configs)
    manifests = [*_plugin_configs(configs, shared), *_profiles(configs, shared)]
    problems = list(_manifest_problems(configuration.path, manifests))
    settings = _settings(document)
    try:
        validate(Settings, settings)
    except ConfigError as error:
        problems += [Problem(f"{configuration.path}: {each.path}", each.message) for each in error.problems]
    if problems:
        raise ConfigError(problems)
    return ImportedConfiguration(tuple(manifests), settings, tuple(_notices(document)))


# -- manifests ----------------------------------------------------------------------------------------------------


def _shared_args(configs: tuple[ProfileConfig, ...]) -> dict[tuple[str, str], str]:
    """Name the args that more than one profile uses for a plugin."""
    counts = Counter(_key(entry) for config in configs for entry in config.plugin_config)
    names: dict[tuple[str, str], str] = {}
    for key, count in counts.items():
        if count > 1:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key[0])
            names[key] = _free_name(words, set(names.values()))
    return names


def _plugin_configs(configs: tuple[ProfileConfig, ...], shared: _Shared) -> Iterator[Manifest]:
    entries = {_key(entry): entry for config in configs for entry in config.plugin_config}
    for key, name in shared.items():
        spec: dict[str, Any] = {"plugin": key[0]}
        args = _written_args(entries[key])
        if args:
            spec["args"] = args
        yield Manifest(_object(PluginConfig.definition.kind, name, spec))


def _profiles(configs: tuple[ProfileConfig, ...], shared: _Shared) -> Iterator[Manifest]:
    taken: set[str] = set()
    for config in configs:
        name = _free_name(config.scheduler_name, taken)
        taken.add(name)
        document = config.document()
        spec: dict[str, Any] = {} if name == config.scheduler_name else {"schedulerName": config.scheduler_name}
        for field in ("percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds", "plugins"):
            if field in document:
                spec[field] = document[field]
        inline = [entry for entry in config.plugin_config if _key(entry) not in shared]
        references = [shared[_key(entry)] for entry in config.plugin_config if _key(entry) in shared]
        if inline:
            spec["pluginConfig"] = [_entry(entry) for entry in inline]
        if references:
            spec["pluginConfigRefs"] = [{"name": reference} for reference in references]
        if config.extenders:
            spec["extenders"] = document["extenders"]
        notices = [_DEFAULT_NAME_NOTICE] if config.scheduler_name == DEFAULT_SCHEDULER_NAME else []
        notices += _extender_notices(config.extenders)
        yield Manifest(_object(SchedulerProfile.definition.kind, name, spec), tuple(notices))


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _manifest_problems(path: str, manifests: list[Manifest]) -> Iterator[Problem]:
    models = {model.definition.kind: model for model in (SchedulerProfile, PluginConfig)}
    for manifest in manifests:
        try:
            models[manifest.kind].from_object(manifest.document)
        except ConfigError as error:
            for problem in error.problems:
                where = f"{path}: {manifest.kind} {manifest.name}: {problem.path}"
                yield Problem(where, f"{problem.message}; the custom resource supports no other value")


def _key(entry: plugins_config.PluginConfig) -> tuple[str, str]:
    return entry.name, json.dumps(_written_args(entry), sort_keys=True, default=str)


def _entry(entry: plugins_config.PluginConfig) -> dict[str, Any]:
    args = _written_args(entry)
    return {"name": entry.name, "args": args} if args else {"name": entry.name}


def _written_args(entry: plugins_config.PluginConfig) -> dict[str, Any]:
    """Return the args without their type if the plugin's name implies it."""
    typed = ("apiVersion", "kind") if entry.name in IN_TREE_ARGS else ()
    return {name: value for name, value in entry.args.items() if name not in typed}


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return a DNS name similar to the wanted one that is not taken."""
    labels = [label.strip("-") for label in re.sub(r"[^a-z0-9.-]", "-", wanted.lower()).split(".")]
    base = ".".join(label for label in labels if label)[:MAX_NAME_LENGTH].rstrip(".-") or "profile"
    name, number = base, 1
    while name in taken:
        number += 1
        suffix = f"-{number}"
        name = base[: MAX_NAME_LENGTH - len(suffix)].rstrip(".-") + suffix
    return name


# -- settings -------------------------------------------------------------------------------------------------------


def _settings(document: KubeSchedulerConfiguration) -> dict[str, Any]:
    client, election = document.client_connection, document.leader_election
    settings: dict[str, Any] = {"kubeconfig": client.kubeconfig} if client.kubeconfig else {}
    if client.qps > 0:
        settings["clientQps"] = int(client.qps) if client.qps.is_integer() else client.qps
    settings["clientBurst"] = client.burst
    settings["podInitialBackoffSeconds"] = document.pod_initial_backoff_seconds
    settings["podMaxBackoffSeconds"] = document.pod_max_backoff_seconds
    settings["leaderElection"] = {"leaderElect": election.leader_elect}
    if election.leader_elect:
        settings["leaderElection"] |= {
            "leaseDuration": str(election.lease_duration),
            "renewDeadline": str(election.renew_deadline),
            "retryPeriod": str(election.retry_period),
        }
    settings["enableProfiling"] = document.enable_profiling
    settings["delayCacheUntilActive"] = document.delay_cache_until_active
    return settings


def _notices(document: KubeSchedulerConfiguration) -> Iterator[str]:
    if any(profile.scheduler_name == DEFAULT_SCHEDULER_NAME for profile in document.profiles):
        yield _DEFAULT_NAME_NOTICE
    yield from _extender_notices(document.extenders)
    election = document.leader_election
    if election.leader_elect:
        lease = f"{election.resource_namespace}/{election.resource_name}"
        yield f"the Lease {lease} remains kube-scheduler's; the operator uses its own"
    if document.parallelism != _DEFAULT_PARALLELISM:
        yield f"parallelism {document.parallelism} has no counterpart: all nodes are evaluated in one vectorised step"
    if document.enable_contention_profiling is False and document.enable_profiling:
        yield "enableContentionProfiling has no counterpart: the operator runs one thread, without lock contention"
    yield from map(str, document.notes())
    if document.client_connection.kubeconfig:
        yield "clientConnection.kubeconfig is in the settings; remove it for an operator that runs in a pod"


def _extender_notices(extenders: tuple[Extender, ...]) -> list[str]:
    if any(extender.tls_config is not None and extender.tls_config.key_data for extender in extenders):
        return ["tlsConfig.keyData holds a client key, which all users who can read profiles can read; use keyFile"]
    return []
