"""Revisions of profiles: the plugin instances of one in the order of each extension point.

An instance is built completely or not at all, and its plugins are closed once, after the last pod in flight.

    building ──▶ live ──swap──▶ retired ──last pod done──▶ closed

Pods in flight finish on the instance on which they started.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from pydantic import BaseModel

from scheduler_core.config.plugin_args import NodeResourcesFitArgs, read_args
from scheduler_core.config.plugin_set_types import BUILT_IN_BEHAVIOUR, Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError, PluginError, Problem
from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration
from scheduler_core.framework.cycle_state import Evaluations
from scheduler_core.framework.device_choices import DeviceChooser
from scheduler_core.framework.diagnosis import EXTENDER
from scheduler_core.framework.extension_points import (
    BindPlugin,
    FilterPlugin,
    NodeFilterPlugin,
    PermitPlugin,
    Plugin,
    PodReads,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import NodeChange
from scheduler_core.framework.registry import Registry, ResolvedPlugins, resolve, unknown_config_problem
from scheduler_core.ports import Watchdog
from scheduler_core.runtime.extenders import OpenExtenders
from scheduler_core.runtime.node_adapters import (
    FilterRunner,
    NodeFilterAdapter,
    ScoreRunner,
    filter_runner,
    score_runner,
)
from scheduler_core.runtime.plugin_time_budget import PluginTimeBudget

if TYPE_CHECKING:
    from scheduler_core.runtime.equivalence import PodClasses


log = logging.getLogger(__name__)

T = TypeVar("T", bound=Plugin)

_REJECTING = (PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, NodeFilterPlugin, ReservePlugin, PermitPlugin)


class FrameworkInstance:
    """One running revision of a profile.

    Attributes:
        name: The scheduler name of the profile.
        resolved: Plugin names and weights per point, for the status.
        capacity_plugins: Plugins whose queueing hints requeue a pod when a node has more free resources.
        label_plugins: Plugins whose queueing hints requeue a pod when the labels of a node change.
        node_filters: Those of the filters that are called node by node.
        not_for_resizes: Plugins that are not called for running pods whose resize is deferred.
        extenders: Extenders in calling order. They register no events, so any event may help a pod that they reject.
        in_flight: Number of attempts that started on this instance and have not ended.
        is_retired: Whether it begins no attempts any more; the end of the last one closes it.
        evaluations: Number of evaluations per plugin; continued by the next revision of the profile.
        pod_classes: Results that are reused between pods of one class; None before the first pod and after closing.
            They refer to plugins, which refer to the instance, so a table elsewhere would keep the instance alive.
    """

    def __init__(
        self, plan: ProfilePlan, plugins: Mapping[str, Plugin], extenders: OpenExtenders, budget: PluginTimeBudget
    ) -> None:
        self.config = plan.config
        self._origin = self
        self.name = plan.config.scheduler_name
        self.revision = plan.revision
        self.resolved = resolved = plan.resolved
        self.plugins = plugins

        def at(point: str, kind: type[T]) -> tuple[T, ...]:
            found = [plugins[entry.name] for entry in resolved[point]]
            return tuple(plugin for plugin in found if isinstance(plugin, kind))

        self.queue_sort = at("queueSort", QueueSortPlugin)[0]  # type: ignore[type-abstract]  # only used in isinstance
        self.built_in = frozenset(name for name, plugin in plugins.items() if budget.is_built_in(plugin))
        self.pre_enqueue = at("preEnqueue", PreEnqueuePlugin)  # type: ignore[type-abstract]  # as above
        self.pre_filter = at("preFilter", PreFilterPlugin)  # type: ignore[type-abstract]  # as above
        self.filters: tuple[FilterRunner, ...] = tuple(
            budget.runner(filter_runner(plugins[entry.name])) for entry in resolved["filter"]
        )
        self.node_filters = tuple(each for each in self.filters if isinstance(each, NodeFilterAdapter))
        self.post_filter = at("postFilter", PostFilterPlugin)  # type: ignore[type-abstract]  # as above
        self.pre_score = at("preScore", PreScorePlugin)  # type: ignore[type-abstract]  # as above
        self.scores: tuple[tuple[ScoreRunner, int], ...] = tuple(
            (budget.runner(score_runner(plugins[entry.name])), entry.weight) for entry in resolved["score"]
        )
        self.reserve = at("reserve", ReservePlugin)  # type: ignore[type-abstract]  # as above
        self.permit = at("permit", PermitPlugin)  # type: ignore[type-abstract]  # as above
        self.pre_bind = at("preBind", PreBindPlugin)  # type: ignore[type-abstract]  # as above
        self.bind = at("bind", BindPlugin)  # type: ignore[type-abstract]  # as above
        self.post_bind = at("postBind", PostBindPlugin)  # type: ignore[type-abstract]  # as above
        self.registrations: dict[str, tuple[EventRegistration, ...]] = {
            name: budget.registrations(plugin) for name, plugin in plugins.items() if isinstance(plugin, _REJECTING)
        }
        self.capacity_plugins = self._rejecting_with(NodeChange.CAPACITY)
        self.label_plugins = self._rejecting_with(NodeChange.LABELS)
        self.not_for_resizes = frozenset(name for name, plugin in plugins.items() if not plugin.handles_resizes)
        self.may_fork = all(plugin.may_fork or name in self.built_in for name, plugin in plugins.items())
        self._budget = budget
        self.pod_classes: PodClasses | None = None
        self.continue_counts(Evaluations())
        self.extenders = extenders.runners
        if self.extenders:
            self.registrations[EXTENDER] = (EventRegistration(EVERY_EVENT),)
        self._close_extenders = extenders.close
        self.in_flight = 0
        self.is_retired = False
        self._closed = False

    @contextmanager
    def freeing_devices(self) -> Iterator[None]:
        """Preempt pods for their devices in a block, whatever the profile sets; only for dry runs."""
        config = self.config
        settings = config.preemption.model_copy(update={"devices": True})
        # Plugins have the settings of the instance of which a dry run uses a copy.
        self.config = self._origin.config = config.model_copy(update={"preemption": settings})
        try:
            yield
        finally:
            self.config = self._origin.config = config

    def _rejecting_with(self, change: NodeChange) -> frozenset[str]:
        return frozenset(name for name in self.registrations if change in self.plugins[name].hints_for)

    @cached_property
    def filters_by_identity(self) -> bool:
        """Whether PreFilter or Filter may differ for pods that differ only in their identity."""
        return any(PodReads.IDENTITY in each.reuse.pod for each in (*self.pre_filter, *self.filters))

    @property
    def is_in_plugin(self) -> bool:
        """Whether a plugin that is not built in is being called."""
        return self._budget.calls > 0

    @property
    def places_gangs(self) -> bool:
        """Whether gangs are scheduled in group cycles; False if a Permit plugin gathers their members."""
        return not any(plugin.gathers_gangs for plugin in self.permit)

    @property
    def extenders_evaluate_nodes(self) -> bool:
        """Whether any extender filters or scores, so that a search must not end at the first feasible node."""
        return any(each.config.filter_verb or each.config.prioritize_verb for each in self.extenders)

    def continue_counts(self, evaluations: Evaluations) -> None:
        """Continue the counts of the live revision, which this instance replaces; plugins that are new start at 0."""
        self.evaluations = evaluations
        for counts, plugins in (
            (evaluations.pre_filter, self.pre_filter),
            (evaluations.filter, self.filters),
            (evaluations.pre_score, self.pre_score),
            (evaluations.score, tuple(plugin for plugin, _ in self.scores)),
        ):
            for plugin in plugins:
                counts.setdefault(plugin.name, 0)

    def begin(self) -> None:
        """Count the start of an attempt."""
        self.in_flight += 1

    def end(self) -> None:
        """Count the end of an attempt; the last one closes a retired instance."""
        self.in_flight -= 1
        try:
            self._close_if_done()
        except Exception:
            # The attempt has ended, and what it did must not be undone.
            log.exception("profile %s failed to close", self.name, extra={"profile": self.name})

    def retire(self) -> None:
        """Accept no new attempts; close the instance after the last one."""
        self.is_retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self.is_retired or self.in_flight or self._closed:
            return
        self._closed = True
        self.pod_classes = None
        _close_all(self.plugins, self.name, self.revision)
        self._close_extenders()


@dataclass(slots=True, eq=False)
class InstanceReference:
    """Reference to an instance from the handle of its plugins, which are created with that handle."""

    _profile_name: str
    _instance: FrameworkInstance | None = None

    def __call__(self) -> FrameworkInstance:
        """Return the instance. Raises PluginError: the instance is not built yet."""
        if self._instance is None:
            raise PluginError(
                "", "filter", f'profile "{self._profile_name}" is not built yet; call this only from extension points'
            )
        return self._instance

    def built(self, instance: FrameworkInstance) -> FrameworkInstance:
        self._instance = instance
        return instance


HandleFactory = Callable[[str, InstanceReference], Handle]
"""Creates the handle of a profile from its scheduler name and the reference to its instance."""

OpenProfileExtenders = Callable[[ProfileConfig], OpenExtenders]
"""Opens the clients of a profile's extenders; raises ConfigError."""


class ProfilePlan(Struct, frozen=True):
    """Validated configuration of a profile, before plugins are instantiated. Instances may share it.

    Attributes:
        resolved: Plugin names and weights per point.
        args: Valid args of each enabled plugin; None for a plugin that takes none.
        problems: Problems of the profile; with any of them no instance is built.
    """

    config: ProfileConfig
    revision: str
    resolved: ResolvedPlugins
    args: Mapping[str, BaseModel | None]
    problems: tuple[Problem, ...]


def plan_profile(
    config: ProfileConfig, registry: Registry, defaults: Plugins, validated: Mapping[str, BaseModel] | None = None
) -> ProfilePlan:
    """Resolve a profile's plugins and validate their args.

    Args:
        validated: Args by plugin that are the result of validating the same args before; a copy of them is used.
    """
    resolved, found = resolve(config.plugins, defaults, registry)
    problems = list(found)
    given = {entry.name: (index, entry.args) for index, entry in enumerate(config.plugin_config)}
    for name, (index, args) in given.items():
        message = unknown_config_problem(name, registry)
        if message:
            problems.append(Problem(f"pluginConfig[{index}].name", message))
        elif name in BUILT_IN_BEHAVIOUR:
            problems += _needless_args(name, args, f"pluginConfig[{index}]")
    enabled = dict.fromkeys(entry.name for entries in resolved.values() for entry in entries)
    known, plugin_args = validated or {}, dict[str, BaseModel | None]()
    for name in dict.fromkeys([*enabled, *(name for name in given if name in registry)]):
        index, args = given.get(name, (-1, {}))
        try:
            done = known.get(name)
            read = _read(name, args, f"pluginConfig[{index}]", registry) if done is None else done.model_copy(deep=True)
        except ConfigError as error:
            problems += error.problems
            continue
        if name in enabled:
            plugin_args[name] = _without_ignored(read, config)
    return ProfilePlan(config, config.revision(), resolved, plugin_args, tuple(problems))


def _without_ignored(args: BaseModel | None, config: ProfileConfig) -> BaseModel | None:
    """Replace the ignored resources of NodeResourcesFit by those that extenders mark ``ignoredByScheduler``.

    Follows kube-scheduler v1.37.1, ``pkg/scheduler/scheduler.go`` (``buildExtenders``).
    """
    if not isinstance(args, NodeResourcesFitArgs):
        return args
    managed = [resource for extender in config.extenders for resource in extender.managed_resources]
    ignored = tuple(resource.name for resource in managed if resource.ignored_by_scheduler)
    return args.model_copy(update={"ignored_resources": ignored}) if ignored else args


def build_planned(
    plan: ProfilePlan,
    registry: Registry,
    make_handle: HandleFactory,
    open_extenders: OpenProfileExtenders,
    watchdog: Watchdog | None = None,
) -> FrameworkInstance:
    """Instantiate a planned profile, completely or not at all.

    Args:
        open_extenders: Opens the clients of the extenders, after all plugins are created.
        watchdog: Interrupts plugins that are not built in and take too long; None for no limit.

    Raises:
        ConfigError: All problems of the plan, and plugins that cannot be created; without any, those of the extenders.
    """
    config, problems = plan.config, list(plan.problems)
    paths = {entry.name: f"pluginConfig[{index}]" for index, entry in enumerate(config.plugin_config)}
    reference, budget = InstanceReference(config.scheduler_name), PluginTimeBudget(registry, watchdog)
    handle = make_handle(config.scheduler_name, reference)
    plugins: dict[str, Plugin] = {}
    for name, args in plan.args.items():
        try:
            plugins[name] = budget.watch(_make(name, args, paths.get(name, "plugins"), registry, handle))
        except ConfigError as error:
            problems += error.problems
    if problems:
        _close_all(plugins, plan.config.scheduler_name, plan.revision)
        raise ConfigError(problems)
    try:
        extenders = open_extenders(config)
    except ConfigError:
        _close_all(plugins, plan.config.scheduler_name, plan.revision)
        raise
    try:
        return reference.built(FrameworkInstance(plan, plugins, extenders, budget))
    except Exception as error:
        _close_all(plugins, plan.config.scheduler_name, plan.revision)
        extenders.close()
        message = f"the plugins cannot be combined: {error}; see the operator's log, or disable the faulty plugin"
        raise ConfigError([Problem("plugins", message)]) from error


def _read(name: str, args: Mapping[str, object], path: str, registry: Registry) -> BaseModel | None:
    kind = registry.get(name)
    assert kind is not None
    if kind.args_model is not None:
        return read_args(name, kind.args_model, args, f"{path}.args")
    problems = _needless_args(name, args, path)
    if problems:
        raise ConfigError(problems)
    return None


def _needless_args(name: str, args: Mapping[str, object], path: str) -> list[Problem]:
    fields = sorted(set(args) - {"apiVersion", "kind"})
    return [Problem(f"{path}.args", f'plugin "{name}" takes no args; remove {", ".join(fields)}')] if fields else []


def _make(name: str, args: BaseModel | None, path: str, registry: Registry, handle: Handle) -> Plugin:
    kind = registry.get(name)
    assert kind is not None
    try:
        return kind(args, handle)
    except (Exception, SystemExit) as error:
        # A constructor that parses arguments may exit.
        message = f'plugin "{name}" cannot be created: {error}; correct its args or disable it'
        raise ConfigError([Problem(path, message)]) from error


def device_chooser(instance: FrameworkInstance) -> DeviceChooser | None:
    """Return the plugin of a profile that allocates devices; None for none."""
    return next((plugin for plugin in instance.reserve if isinstance(plugin, DeviceChooser)), None)


def _close_all(plugins: Mapping[str, Plugin], profile: str, revision: str) -> None:
    for plugin in plugins.values():
        try:
            plugin.close()
        except Exception:
            # The other plugins hold resources, too.
            extra = {"plugin": plugin.name, "profile": profile, "revision": revision}
            log.exception("plugin %s of profile %s failed to close", plugin.name, profile, extra=extra)
