"""Runs a case: a new scheduler, loaded with the case's cluster, dry-runs one attempt.

Each case has its own complete scheduler: the one that runs in a cluster, without state from another case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Generic, TypeVar

from bayplan.settings.feature_gates import FeatureGates, with_gates
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.registry import Registry
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.framework_instance import FrameworkInstance, ProfilePlan, plan_profile
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from tests.parity.conformance.cases import Case, CaseProfile, profile_of, profiles_of
from tests.support.presence import present

_T = TypeVar("_T")
_PLANS = 256


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Result of a case.

    Attributes:
        left_out: Plugins that the case's profile enables and that Bayplan does not have.
    """

    examination: Examination
    left_out: tuple[str, ...]


def attempt_case(case: Case, registry: Registry, defaults: Plugins) -> CaseOutcome:
    """Dry-run one attempt for the case's pod.

    Args:
        defaults: The default plugin set.

    Raises:
        ConfigError: The case's profile is invalid, or Bayplan does not have one of its feature gates.
        QuantityError: A quantity of the case's pod cannot be parsed.
    """
    profile = profile_of(case, registry)
    # Timestamps of claims are compared with the present time, as in kube-scheduler.
    clock = SimulatedClock(datetime.now(UTC))
    options = with_gates(SchedulerOptions(), FeatureGates(case.feature_gates))
    scheduler = scheduler_of(case, Scheduler(clock, MemoryCluster(), options, registry, defaults), registry, defaults)
    instance = present(scheduler.context.profiles.get(profile.config.scheduler_name))
    info = scheduler.context.cache.columns.compile_pod(case.pod)
    examination = scheduler.cycles.examiner.examine(instance, info)
    for each in scheduler.context.profiles:
        each.retire()
    return CaseOutcome(examination, profile.left_out)


def scheduler_of(case: Case, scheduler: Scheduler, registry: Registry, defaults: Plugins) -> Scheduler:
    """Activate a case's profiles in a new scheduler, and load the cluster of the case without its pod.

    Args:
        defaults: Its default plugin set.

    Raises:
        ConfigError: A profile is invalid.
    """
    # All of the case's profiles are live: pods of other profiles would not wait, and nominations would not count.
    scheduler.activate([_built(scheduler, each, registry, defaults) for each in profiles_of(case, registry)])
    add_objects(scheduler, case, case.pods)
    return scheduler


def add_objects(scheduler: Scheduler, case: Case, pods: Iterable[Pod]) -> None:
    """Report the objects of a case to the feeds, pods last."""
    for surrounding in case.surroundings:
        scheduler.workload_feed.added(surrounding)
    for stored in case.storage:
        scheduler.storage_feed.added(stored)
    for device_object in case.devices:
        scheduler.device_feed.added(device_object)
    for node in case.nodes:
        scheduler.feed.node_added(node)
    for pod in pods:
        scheduler.feed.pod_added(pod)


def _built(scheduler: Scheduler, profile: CaseProfile, registry: Registry, defaults: Plugins) -> FrameworkInstance:
    try:
        return scheduler.build_planned(_plan(_ById(profile), _ById(registry), _ById(defaults)))
    except ConfigError as error:
        problems = [Problem(f"{profile.path}{problem.path}", problem.message) for problem in error.problems]
        raise ConfigError(problems) from error


class _ById(Generic[_T]):
    """A key by identity: profiles of the same text are one object already, and hashing a profile is expensive."""

    __slots__ = ("value",)

    def __init__(self, value: _T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value


@lru_cache(maxsize=_PLANS)
def _plan(profile: _ById[CaseProfile], registry: _ById[Registry], defaults: _ById[Plugins]) -> ProfilePlan:
    """Plan a profile once for all its cases; each case builds its own plugins from the plan."""
    return plan_profile(profile.value.config, registry.value, defaults.value)
