"""A KubeSchedulerConfiguration that is run directly: its file, its profiles, and the settings that it implies.

A flag that contradicts the file is an error; kube-scheduler silently lets the file win, but a user who gives a flag
expects it to take effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bayplan.settings.operator_settings import LeaderElectionSettings, Settings
from bayplan.texts import yaml_documents
from scheduler_core.config.plugin_set_types import ALL_PLUGINS
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.scheduler_configuration import (
    DEFAULT_SCHEDULER_NAME,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    parse_configuration,
)
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.runtime.framework_instance import FrameworkInstance, plan_profile
from scheduler_core.scheduler import Scheduler

_ELECTION = "leaderElection"
_OF_CUSTOM_RESOURCES = {
    "profiles": "selects SchedulerProfiles by labels",
    "webhook": "validates custom resources",
    "initial_profiles": "creates SchedulerProfiles",
}
"""Settings that have no effect on a file, and what they do."""


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    path: str
    configuration: KubeSchedulerConfiguration


def read_configuration(path: Path) -> RunConfiguration:
    """Read a KubeSchedulerConfiguration v1 in YAML or JSON; raises ConfigError with every problem and its path."""
    try:
        document = yaml_documents.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([Problem(str(path), f"cannot be read: {error}; correct the path or the file")]) from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError([Problem(str(path), "must be one KubeSchedulerConfiguration, a mapping of fields to values")])
    try:
        return RunConfiguration(str(path), _parsed(document))
    except ConfigError as error:
        raise _in_file(str(path), error) from error


def configuration_problems(document: Mapping[str, Any], scheduler: Scheduler) -> tuple[Problem, ...]:
    """Return every problem of a KubeSchedulerConfiguration with its field path; none if it can be run."""
    try:
        for instance in _built(scheduler, _parsed(document)):
            instance.retire()
    except ConfigError as error:
        return tuple(error.problems)
    return ()


def configuration_notes(document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return notes on a KubeSchedulerConfiguration, with field paths; none for one that cannot be run."""
    try:
        return _parsed(document).notes()
    except ConfigError:
        return ()


def _parsed(document: Mapping[str, Any]) -> KubeSchedulerConfiguration:
    """Parse a document, or raise all its problems together with those of its profiles' plugins."""
    try:
        return parse_configuration(document)
    except ConfigError as error:
        raise ConfigError(list(dict.fromkeys([*error.problems, *_plugin_problems(document)]))) from error


def _plugin_problems(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of the profiles' plugins, for a file that is invalid as a whole."""
    registry = in_tree_registry()
    registry.load_entry_points()
    for index, profile in enumerate(yaml_documents.list_at(document, "profiles")):
        if not isinstance(profile, dict):
            continue
        try:
            read = validate(KubeSchedulerProfile, _readable_plugins(profile))
        except ConfigError:
            continue  # reported already, with the file's other problems
        config = ProfileConfig(
            scheduler_name=DEFAULT_SCHEDULER_NAME, plugins=read.plugins.common(), plugin_config=read.plugin_config
        )
        for problem in plan_profile(config, registry, default_plugins()).problems:
            yield Problem(f"profiles[{index}].{problem.path}", problem.message)


def _readable_plugins(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile's plugins and args without what is invalid by itself, which is reported already."""
    sets: dict[str, Any] = {}
    for point, given in yaml_documents.mapping_at(profile, "plugins").items():
        try:
            validate(KubeSchedulerProfile, {"plugins": {point: {}}})
        except ConfigError:
            continue
        sets[point] = {
            field: [{"name": name} for name in _names(given, field) if field == "disabled" or name != ALL_PLUGINS]
            for field in ("enabled", "disabled")
            if isinstance(given, dict)
        }
    entries = []
    for entry in yaml_documents.list_at(profile, "pluginConfig"):
        try:
            validate(KubeSchedulerProfile, {"pluginConfig": [entry]})
        except ConfigError:
            continue
        entries.append(entry)
    return {"plugins": sets, "pluginConfig": entries}


def _names(plugin_set: Any, field: str) -> list[str]:
    names = [yaml_documents.value_at(entry, "name") for entry in yaml_documents.list_at(plugin_set, field)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def build_profiles(scheduler: Scheduler, configuration: RunConfiguration) -> list[FrameworkInstance]:
    """Build an instance of each profile, not live yet; raises ConfigError with every problem from the file's root."""
    try:
        return _built(scheduler, configuration.configuration)
    except ConfigError as error:
        raise _in_file(configuration.path, error) from error


def _built(scheduler: Scheduler, configuration: KubeSchedulerConfiguration) -> list[FrameworkInstance]:
    problems: list[Problem] = []
    instances = []
    for index, config in enumerate(configuration.profile_configs()):
        try:
            instances.append(scheduler.build(config))
        except ConfigError as error:
            problems += [Problem(f"profiles[{index}].{each.path}", each.message) for each in error.problems]
    if problems:
        for instance in instances:
            instance.retire()
        raise ConfigError(problems)
    return instances


def _in_file(path: str, error: ConfigError) -> ConfigError:
    return ConfigError([Problem(f"{path}: {problem.path}", problem.message) for problem in error.problems])


def configured_settings(configuration: RunConfiguration, settings: Settings, flags: Mapping[str, Any]) -> Settings:
    """Merge the file with the settings of the operator.

    Args:
        flags: The flags by field name, ``leader_elect`` among them; None means not given.

    Returns:
        The settings to run with: the file wins for each setting that it has a field for, defaults included.

    Raises:
        ConfigError: A flag or setting contradicts the file; both are named.
    """
    document = configuration.configuration
    given = {name for name, value in flags.items() if value is not None}
    problems = []
    implied = dict(_implied(document))
    for name, (field, value) in implied.items():
        setting = getattr(settings, name)
        if (name in given or name in settings.model_fields_set) and setting != value:
            problems.append(
                _contradiction(name, setting, name in given, f"{configuration.path}: {field} is {_shown(value)}")
            )
    if "leader_elect" in given and flags["leader_elect"] != document.leader_election.leader_elect:
        other = f"{configuration.path}: {_ELECTION}.leaderElect is {_shown(document.leader_election.leader_elect)}"
        problems.append(_contradiction("leader_elect", flags["leader_elect"], True, other))
    if given & {"allow_default_scheduler"} and not settings.allow_default_scheduler and _default_name(document):
        other = f'{configuration.path}: a profile is named "{DEFAULT_SCHEDULER_NAME}"'
        problems.append(_contradiction("allow_default_scheduler", False, True, other))
    if "namespace" in given:
        message = f"stores revisions of SchedulerProfiles, which --config {configuration.path} does not use"
        problems.append(Problem("--namespace", f"{message}; remove one of the two"))
    for name, effect in _OF_CUSTOM_RESOURCES.items():
        if getattr(settings, name) is not None:
            message = f"{effect}, which --config {configuration.path} does not use; remove one of the two"
            # The webhook has no flag.
            problems.append(Problem(_where(name, name in given and name != "webhook"), message))
    election = document.leader_election
    if election.leader_elect:
        times = _election(document).options("").problems(_ELECTION)
        problems += [Problem(f"{configuration.path}: {each.path}", each.message) for each in times]
    if problems:
        raise ConfigError(problems)
    update = {name: value for name, (_, value) in implied.items()}
    return settings.model_copy(update={**update, "leader_election": _election(document)})


def _implied(document: KubeSchedulerConfiguration) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield each setting that the file has a field for, with the field's path and value."""
    client = document.client_connection
    if client.kubeconfig:
        yield "kubeconfig", ("clientConnection.kubeconfig", client.kubeconfig)
    yield "client_qps", ("clientConnection.qps", client.qps if client.qps > 0 else None)
    yield "client_burst", ("clientConnection.burst", client.burst)
    yield "percentage_of_nodes_to_score", ("percentageOfNodesToScore", document.percentage_of_nodes_to_score)
    yield "pod_initial_backoff_seconds", ("podInitialBackoffSeconds", document.pod_initial_backoff_seconds)
    yield "pod_max_backoff_seconds", ("podMaxBackoffSeconds", document.pod_max_backoff_seconds)
    yield "enable_profiling", ("enableProfiling", document.enable_profiling)
    yield "delay_cache_until_active", ("delayCacheUntilActive", document.delay_cache_until_active)


def _election(document: KubeSchedulerConfiguration) -> LeaderElectionSettings:
    election = document.leader_election
    return LeaderElectionSettings.model_construct(
        leader_elect=election.leader_elect,
        lease_duration=election.lease_duration.seconds,
        renew_deadline=election.renew_deadline.seconds,
        retry_period=election.retry_period.seconds,
        resource_name=election.resource_name,
        resource_namespace=election.resource_namespace,
    )


def _default_name(document: KubeSchedulerConfiguration) -> bool:
    return any(profile.scheduler_name == DEFAULT_SCHEDULER_NAME for profile in document.profiles)


def _contradiction(name: str, setting: object, is_flag: bool, other: str) -> Problem:
    where = _where(name, is_flag)
    return Problem(where, f"is {_shown(setting)}, but {other}; --config takes precedence, so remove one of the two")


def _where(name: str, is_flag: bool) -> str:
    """Return where a setting was given: the flag, or the field of the settings file."""
    info = Settings.model_fields.get(name)
    return f"--{name.replace('_', '-')}" if is_flag else f"--settings: {info.alias if info else name}"


def _shown(value: object) -> str:
    if value is None:
        return "unlimited"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
