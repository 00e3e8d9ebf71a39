"""The profiles of a simulation: SchedulerProfile objects, kube-scheduler configurations, or the default profile.

SchedulerProfiles and PluginConfigs are validated by the operator's own ``desired_state``, so that a file is accepted
here exactly if a cluster would accept it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

from bayplan.profiles.desired_profiles import DesiredState, PluginConfigValidation, desired_state
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Place
from bayplan.simulation.memory_cluster import offline_scheduler
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.scheduler_configuration import parse_configuration
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod import DEFAULT_SCHEDULER_NAME
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler


@dataclass(slots=True)
class BuiltProfiles:
    """The profiles of a cluster, built."""

    instances: list[FrameworkInstance] = field(default_factory=list)
    invalid: dict[str, list[Problem]] = field(default_factory=dict)
    invalid_configs: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    @property
    def notices(self) -> list[str]:
        """Sentences about invalid profiles, for a cluster in which an operator runs."""
        return [
            f"profile {name} is invalid and ignored (the operator may run an older one): {'; '.join(map(str, found))}"
            for name, found in self.invalid.items()
        ]


def activate_profiles(scheduler: Scheduler, cluster: AdmittedCluster) -> None:
    """Activate the cluster's profiles; without any, the default profile serves ``default-scheduler``."""
    built = build_profiles(scheduler, cluster)
    if built.problems:
        raise ConfigError(built.problems)
    scheduler.activate(built.instances)


def build_profiles(scheduler: Scheduler, cluster: AdmittedCluster) -> BuiltProfiles:
    """Build the cluster's profiles, or the default profile if it has none; activates nothing."""
    built = BuiltProfiles()
    if cluster.serves_default and not (cluster.profiles or cluster.configurations):
        built.instances.append(scheduler.build(ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME)))
    _add_objects(scheduler, cluster, built)
    built.instances += _from_configurations(scheduler, cluster, built.problems)
    return built


def without_invalid(cluster: AdmittedCluster, retained_configs: Container[str] = ()) -> AdmittedCluster:
    """Return a cluster without invalid profiles and PluginConfigs, except ``retained_configs``, with notices."""
    built = build_profiles(offline_scheduler(), cluster)
    for instance in built.instances:
        instance.retire()
    dropped = built.invalid_configs - {name for name in built.invalid_configs if name in retained_configs}
    return replace(
        cluster,
        profiles=tuple(each for each in cluster.profiles if each.object["metadata"]["name"] not in built.invalid),
        plugin_configs=tuple(each for each in cluster.plugin_configs if each.object["metadata"]["name"] not in dropped),
        notices=(*cluster.notices, *built.notices),
    )


def _add_objects(scheduler: Scheduler, cluster: AdmittedCluster, built: BuiltProfiles) -> None:
    state = desired_state(
        [placed.object for placed in cluster.profiles],
        [placed.object for placed in cluster.plugin_configs],
        PluginConfigValidation(scheduler.registry),
        allow_default_scheduler=True,
    )
    built.problems += _plugin_config_problems(cluster, state)
    built.invalid_configs |= {config.meta.name for config in state.plugin_configs if config.problems}
    places = {placed.object["metadata"]["name"]: placed.place for placed in cluster.profiles}
    for profile in state.profiles:
        name = profile.meta.name
        found = list(profile.problems)
        instance = None
        if profile.config is not None:
            try:
                instance = scheduler.build(profile.config, profile.args)
            except ConfigError as error:
                found += profile.build_problems(error)
        if found:
            built.invalid[name] = list(dict.fromkeys(found))
        elif instance is not None and profile.shadow is not None:
            # A shadow places no pods.
            instance.retire()
        elif instance is not None:
            built.instances.append(instance)
        where = f"{places[name]} (SchedulerProfile {name})"
        built.problems += [Problem(f"{where}: {each.path}", each.message) for each in built.invalid.get(name, ())]


def _plugin_config_problems(cluster: AdmittedCluster, state: DesiredState) -> list[Problem]:
    """Return the problems of PluginConfigs that no profile references; others are reported with the profiles."""
    places = {placed.object["metadata"]["name"]: placed.place for placed in cluster.plugin_configs}
    return [
        Problem(f"{places[config.meta.name]} (PluginConfig {config.meta.name}): {problem.path}", problem.message)
        for config in state.plugin_configs
        if not config.referenced_by
        for problem in config.problems
    ]


def _from_configurations(
    scheduler: Scheduler, cluster: AdmittedCluster, problems: list[Problem]
) -> list[FrameworkInstance]:
    taken: dict[str, Place] = {}
    for placed in cluster.profiles:
        spec = placed.object.get("spec")
        written = spec.get("schedulerName") if isinstance(spec, dict) else None
        taken.setdefault(str(written or placed.object["metadata"]["name"]), placed.place)
    instances = []
    for placed in cluster.configurations:
        where = f"{placed.place} (KubeSchedulerConfiguration)"
        try:
            configs = parse_configuration(placed.object).profile_configs()
        except ConfigError as error:
            problems += [Problem(f"{where}: {problem.path}", problem.message) for problem in error.problems]
            continue
        for index, config in enumerate(configs):
            path = f"{where}: profiles[{index}]"
            other = taken.setdefault(config.scheduler_name, placed.place)
            if other is not placed.place:
                message = f'"{config.scheduler_name}" is already used in {other}; give each profile its own name'
                problems.append(Problem(f"{path}.schedulerName", message))
                continue
            try:
                instances.append(scheduler.build(config))
            except ConfigError as error:
                problems += [Problem(f"{path}.{problem.path}", problem.message) for problem in error.problems]
    return instances
