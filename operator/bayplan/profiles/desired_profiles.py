"""The desired state: all SchedulerProfiles and PluginConfigs, validated together.

Decides which profile holds a scheduler name, resolves references and validates args. Pure: the same objects always give
the same result, so that a restart decides as the process before it did. Validation continues after a problem, so that
the author of a manifest sees all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import ObjectMeta
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings.profile_selection import ProfileSelection
from bayplan.texts.yaml_documents import list_at, mapping_at, value_at
from scheduler_core.config import plugin_set_types as plugins_config
from scheduler_core.config.plugin_args import IN_TREE_ARGS, read_args
from scheduler_core.config.profile_config import DEFAULT_BUDGET_PERCENT, ProfileConfig, ShadowSettings
from scheduler_core.config.validation import did_you_mean, path_steps
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.registry import Registry, unknown_config_problem

_MAX_REFERRERS = 256


@dataclass(frozen=True, slots=True)
class DesiredPluginConfig:
    """Validated PluginConfig.

    Attributes:
        plugin: The plugin that it configures, "" if that cannot be read.
        entry: Its entry in a profile; None if it is invalid.
        args: Its validated args, from which profiles that refer to it are built; None if it has none or is invalid.
        problems: The problems; paths begin with ``spec``.
        referenced_by: Names of profiles that refer to it, as many as fit in the status.
    """

    meta: ObjectMeta
    plugin: str
    entry: plugins_config.PluginConfig | None
    args: BaseModel | None
    problems: tuple[Problem, ...]
    referenced_by: tuple[str, ...]
    reference_count: int
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Args:
    """Result of validating the args of one PluginConfig.

    Attributes:
        key: The plugin, and the args as text: in Python 1 and True are equal, in a manifest they are not.
        args: The validated args; None if the plugin takes none or they are invalid.
    """

    key: tuple[str, str]
    args: BaseModel | None = None
    problems: tuple[Problem, ...] = ()


class PluginConfigValidation:
    """Validation of PluginConfig objects; the args of an object are validated again only when they change."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._validated: dict[str, _Args] = {}

    def validate(
        self, bodies: Iterable[Mapping[str, Any]], references: Mapping[str, tuple[str, ...]]
    ) -> tuple[DesiredPluginConfig, ...]:
        """Return a result for each object, sorted by name; results of objects that are not among them are dropped."""
        before, self._validated = self._validated, {}
        results = [self._result(body, references, before) for body in bodies]
        return tuple(sorted(results, key=lambda config: config.meta.name))

    def _result(
        self, body: Mapping[str, Any], references: Mapping[str, tuple[str, ...]], before: Mapping[str, _Args]
    ) -> DesiredPluginConfig:
        meta = ObjectMeta.model_validate(body["metadata"])
        plugin = value_at(body, "spec", "plugin")
        entry, args, problems = None, None, tuple[Problem, ...]()
        try:
            entry = PluginConfig.from_object({name: value for name, value in body.items() if name != "status"}).entry()
        except ConfigError as error:
            problems = error.problems
        else:
            key = (entry.name, repr(entry.args))
            validated = before.get(meta.name)
            if validated is None or validated.key != key:
                validated = _validate_args(key, entry, self.registry)
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
            status=mapping_at(body, "status"),
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


DEFAULT_SCHEDULER = "default-scheduler"
_ALL_PERCENT = 100
_NO_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DesiredProfile:
    """Validated SchedulerProfile.

    Attributes:
        holds_name: Whether the claim is granted; only then may it run, also an earlier revision.
        config: The profile to build: complete if there are no problems, otherwise without its invalid parts, to find
            the problems of the rest; None if nothing is left to validate.
        problems: The problems so far; paths prefix with ``spec``.
        origins: For each entry of ``config.plugin_config``, where it was written, such as ``pluginConfigRefs[0]``.
        name_is_reserved: Whether the claim is rejected because the name is kube-scheduler's.
        shadow: How a shadow is run; None for other profiles. A shadow claims no scheduler name.
        warnings: What has no effect because of other profiles; paths begin with ``spec``.
    """

    meta: ObjectMeta
    scheduler_name: str
    holds_name: bool
    config: ProfileConfig | None
    problems: tuple[Problem, ...]
    args: Mapping[str, BaseModel]
    origins: tuple[str, ...]
    status: Mapping[str, Any]
    name_is_reserved: bool = False
    shadow: ShadowSettings | None = None
    warnings: tuple[Problem, ...] = ()

    def located(self, problem: Problem) -> Problem:
        """Return a problem of ``config`` with the path at which the user wrote it."""
        path = problem.path
        for index, origin in enumerate(self.origins):
            prefix = f"pluginConfig[{index}]"
            if path.startswith(prefix) and not origin.startswith(prefix):
                return Problem(f"spec.{origin}", f"{path[len(prefix) :].lstrip('.')}: {problem.message}".lstrip(": "))
        return Problem(f"spec.{path}" if path else "spec", problem.message)

    def build_problems(self, error: ConfigError) -> tuple[Problem, ...]:
        """Return the problems of a failed build of ``config`` as the user wrote the paths, without known problems."""
        located = (self.located(problem) for problem in error.problems)
        return tuple(problem for problem in located if problem not in self.problems)


@dataclass(frozen=True, slots=True)
class DesiredState:
    """All objects, validated.

    Attributes:
        profiles: The profiles that this process serves, oldest claim first.
        plugin_configs: Sorted by name.
        elsewhere: Scheduler names granted to profiles that other processes serve.
    """

    profiles: tuple[DesiredProfile, ...]
    plugin_configs: tuple[DesiredPluginConfig, ...]
    elsewhere: frozenset[str] = frozenset()

    @property
    def claimed(self) -> frozenset[str]:
        """Scheduler names that profiles of this process claim, granted or not, except kube-scheduler's."""
        return frozenset(
            each.scheduler_name for each in self.profiles if each.shadow is None and not each.name_is_reserved
        )

    def of_live_profiles(self) -> DesiredState:
        return replace(self, profiles=tuple(each for each in self.profiles if each.shadow is None))

    @property
    def shadows(self) -> tuple[DesiredProfile, ...]:
        return tuple(each for each in self.profiles if each.shadow is not None)


def desired_state(
    profiles: Iterable[Mapping[str, Any]],
    plugin_configs: Iterable[Mapping[str, Any]],
    validation: PluginConfigValidation,
    *,
    allow_default_scheduler: bool = False,
    selection: ProfileSelection | None = None,
) -> DesiredState:
    """Validate all objects together.

    Profiles that other processes serve are not validated, but their claims and references count: processes with
    different selections agree on the holder of a name, and on the status of every PluginConfig.

    Args:
        profiles: SchedulerProfile objects from the API server; one that is being deleted is ignored.
        selection: The profiles that this process serves; None for all.
    """
    claims = sorted((_Claim(body) for body in profiles if not _is_going(body)), key=lambda claim: claim.age)
    configs = validation.validate(
        [body for body in plugin_configs if not _is_going(body)],
        {claim.meta.name: claim.references for claim in claims},
    )
    by_name = {config.meta.name: config for config in configs}
    holders: dict[str, _Claim] = {}
    for claim in claims:
        if not claim.shadow_of:
            holders.setdefault(claim.scheduler_name, claim)
    shadows = {claim.meta.name for claim in claims if claim.shadow_of}
    validated, elsewhere = [], set[str]()
    for claim in claims:
        if selection is not None and not selection.matches(claim.labels):
            if holders.get(claim.scheduler_name) is claim:
                elsewhere.add(claim.scheduler_name)
            continue
        if claim.shadow_of:
            shadow = _as_shadow(_validate(claim, None, by_name, validation.registry), claim)
            has_shadow = claim.shadow_of in shadows and claim.shadow_of not in holders
            validated.append(replace(shadow, warnings=(shadow_of_shadow(claim.shadow_of),)) if has_shadow else shadow)
            continue
        is_reserved = claim.scheduler_name == DEFAULT_SCHEDULER and not allow_default_scheduler
        problem = _name_problem(claim, holders[claim.scheduler_name], is_reserved=is_reserved)
        validated.append(replace(_validate(claim, problem, by_name, validation.registry), name_is_reserved=is_reserved))
    return DesiredState(tuple(validated), configs, frozenset(elsewhere))


class _Claim:
    """A profile as written: the fields that can be read even if its spec is invalid."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.meta = ObjectMeta.model_validate(body["metadata"])
        self.labels: Mapping[str, str] = mapping_at(body, "metadata", "labels")
        self.spec: Mapping[str, Any] = mapping_at(body, "spec")
        self.status: Mapping[str, Any] = mapping_at(body, "status")
        written = self.spec.get("schedulerName")
        shadow_of = self.spec.get("shadowOf")
        self.shadow_of = shadow_of if isinstance(shadow_of, str) else ""
        has_name = isinstance(written, str) and written and not self.shadow_of
        self.scheduler_name = str(written) if has_name else self.meta.name
        self.age = (self.meta.creation_timestamp or _NO_TIME, self.meta.name)
        self.problems: tuple[Problem, ...] = ()
        self.profile = self._read(self.spec)
        names = (value_at(entry, "name") for entry in list_at(self.spec, "pluginConfigRefs"))
        self.references: tuple[str, ...] = tuple(name for name in names if isinstance(name, str))

    def _read(self, spec: Mapping[str, Any]) -> SchedulerProfile | None:
        """Parse the profile without its invalid fields, or else without the top-level fields that contain them."""
        try:
            return self._parse(spec)
        except ConfigError as error:
            self.problems = error.problems
        rest = _without(spec, [problem.path for problem in self.problems])
        for _ in range(2):
            try:
                return self._parse(rest)
            except ConfigError as error:
                bad = {problem.path.removeprefix("spec.").split(".")[0].split("[")[0] for problem in error.problems}
                rest = {name: value for name, value in rest.items() if name not in bad}
        return None

    def _parse(self, spec: Mapping[str, Any]) -> SchedulerProfile:
        metadata = self.meta.model_dump(by_alias=True)
        return SchedulerProfile.from_object({"metadata": metadata, "spec": spec})


def shadow_of_shadow(name: str) -> Problem:
    """Return the warning about a shadow of a profile that is a shadow itself."""
    return Problem(
        "spec.shadowOf", f'SchedulerProfile "{name}" is a shadow too; set the schedulerName of a live profile'
    )


def _as_shadow(profile: DesiredProfile, claim: _Claim) -> DesiredProfile:
    spec = None if claim.profile is None else claim.profile.spec
    percent = None if spec is None else spec.sample_percent
    budget = None if spec is None else spec.shadow_budget_percent
    settings = ShadowSettings(
        claim.shadow_of,
        _ALL_PERCENT if percent is None else percent,
        DEFAULT_BUDGET_PERCENT if budget is None else budget,
        calls_extenders=bool(spec is not None and spec.shadow_extenders),
    )
    return replace(profile, holds_name=False, shadow=settings)


def _without(spec: Mapping[str, Any], paths: Iterable[str]) -> Mapping[str, Any]:
    """Copy without some fields. List entries stay, so that the indexes of those behind them do not change."""
    left: dict[str, Any] = {"spec": spec}
    for path in paths:
        node: Any = left
        steps = path_steps(path)
        for index, name in steps[:-1]:
            step = int(index) if index.isdigit() and isinstance(node, list) else index or name
            inner = node.get(step) if isinstance(node, dict) else node[step] if step in range(len(node)) else None
            if not isinstance(inner, Mapping | list):
                break
            # Only the path to the field is copied: the rest may be deeply nested.
            node[step] = node = dict(inner) if isinstance(inner, Mapping) else list(inner)
        else:
            if isinstance(node, dict) and steps:
                node.pop(steps[-1][0] or steps[-1][1], None)
    copied: Mapping[str, Any] = left.get("spec", {})
    return copied


def _is_going(body: Mapping[str, Any]) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


def _name_problem(claim: _Claim, holder: _Claim, *, is_reserved: bool) -> Problem | None:
    name = claim.scheduler_name
    if is_reserved:
        return Problem(
            "spec.schedulerName",
            f'"{name}" belongs to kube-scheduler, and two schedulers of one name compete for its pods; choose another '
            "name, or run the operator with --allow-default-scheduler if kube-scheduler does not use it",
        )
    if holder is not claim:
        return Problem(
            "spec.schedulerName",
            f'"{name}" is held by SchedulerProfile "{holder.meta.name}", which is older; choose another name or '
            f'delete "{holder.meta.name}"',
        )
    return None


def _validate(
    claim: _Claim, name_problem: Problem | None, plugin_configs: Mapping[str, DesiredPluginConfig], registry: Registry
) -> DesiredProfile:
    problems = [*claim.problems, *([name_problem] if name_problem else [])]
    config, origins, args = None, list[str](), dict[str, BaseModel]()
    if claim.profile is not None:
        inline = claim.profile.spec.plugin_config
        found, reference_problems = _resolve_references(claim.profile, plugin_configs)
        problems += reference_problems
        origins = [*(f"pluginConfig[{index}]" for index in range(len(inline))), *found]
        args = {config.plugin: config.args for config in found.values() if config.args is not None}
        try:
            config = claim.profile.profile_config(config.entry for config in found.values() if config.entry is not None)
        except ConfigError as error:
            problems += error.problems
        else:
            config = with_versions(config, registry)
    return DesiredProfile(
        meta=claim.meta,
        scheduler_name=claim.scheduler_name,
        holds_name=name_problem is None,
        config=config,
        problems=tuple(problems),
        args=args,
        origins=tuple(origins),
        status=claim.status,
    )


def with_versions(config: ProfileConfig, registry: Registry) -> ProfileConfig:
    """Return a configuration with the versions of the plugins that are installed here."""
    return config.model_copy(update={"plugin_versions": registry.versions(config.plugins)})


def missing_plugin_config(name: str, known: Iterable[str]) -> str:
    """Return the message for a reference to a PluginConfig that does not exist."""
    return f'there is no PluginConfig "{name}"{did_you_mean(name, known)}; create it or correct the name'


def _resolve_references(
    profile: SchedulerProfile, plugin_configs: Mapping[str, DesiredPluginConfig]
) -> tuple[Mapping[str, DesiredPluginConfig], Sequence[Problem]]:
    """Return the valid PluginConfigs that references resolve to, by where each was written, and the problems."""
    configured = {entry.name: f"pluginConfig[{index}]" for index, entry in enumerate(profile.spec.plugin_config)}
    resolved: dict[str, DesiredPluginConfig] = {}
    problems: list[Problem] = []
    for index, reference in enumerate(profile.spec.plugin_config_refs):
        path = f"spec.pluginConfigRefs[{index}].name"
        found = plugin_configs.get(reference.name)
        if found is None:
            problems.append(Problem(path, missing_plugin_config(reference.name, plugin_configs)))
            continue
        earlier = configured.get(found.plugin)
        if earlier is not None:
            message = (
                f'PluginConfig "{reference.name}" configures plugin "{found.plugin}", which {earlier} configures '
                "already; merge the two or remove one"
            )
            problems.append(Problem(path, message))
        elif found.plugin:
            configured[found.plugin] = f'PluginConfig "{reference.name}"'
        if found.problems:
            reasons = "; ".join(str(problem) for problem in found.problems)
            problems.append(Problem(path, f'PluginConfig "{reference.name}" is invalid, correct it: {reasons}'))
        elif earlier is None and found.entry is not None:
            resolved[f"pluginConfigRefs[{index}]"] = found
    return resolved, problems


QueueSort = tuple[str, str]
"""The plugin's name and its args in a comparable form."""


class ProfileQueueSort(Struct, frozen=True):
    """QueueSort of one profile: the live one, and that of its spec; None if that cannot be built."""

    profile: str
    live: QueueSort | None
    wanted: QueueSort | None


class QueueSortDecision(Struct, frozen=True):
    """The profiles that may go live now, and those that wait, each with the profiles that disagree."""

    ready: frozenset[str]
    waiting: dict[str, tuple[str, ...]]


def decide_queue_sort(profiles: Sequence[ProfileQueueSort]) -> QueueSortDecision:
    """Decide which of all profiles, oldest first, may go live together; if none is live, the oldest one decides."""
    live = [profile for profile in profiles if profile.live is not None]
    if live:
        wanted = {profile.wanted or profile.live for profile in live}
        order = wanted.pop() if len(wanted) == 1 else live[0].live
    else:
        order = next((profile.wanted for profile in profiles if profile.wanted is not None), None)
    ready = frozenset(profile.profile for profile in profiles if profile.wanted is not None and profile.wanted == order)
    deciding = live or [profile for profile in profiles if profile.profile in ready]
    waiting = {
        profile.profile: tuple(
            sorted(
                other.profile
                for other in deciding
                if other.profile != profile.profile and (other.wanted or other.live) != profile.wanted
            )
        )
        for profile in profiles
        if profile.wanted is not None and profile.profile not in ready
    }
    return QueueSortDecision(ready, waiting)


class ProfileOwnership:
    """Which process serves which profiles, as of the last reconcile."""

    def __init__(self, selection: ProfileSelection | None) -> None:
        self.selection = selection
        self.elsewhere: frozenset[str] = frozenset()
        self._here: frozenset[str] = frozenset()
        self._uids: frozenset[str] | None = None

    def has_new_profiles(self, profiles: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether an existing profile has just been selected for this process."""
        if self.selection is None or self._uids is None:
            return False
        for body in profiles:
            metadata = body["metadata"]
            if metadata.get("uid", "") not in self._uids and self.selection.matches(metadata.get("labels") or {}):
                return True
        return False

    def serves(self, scheduler_name: str) -> bool | None:
        """Return whether this process serves a scheduler name; None if no process does."""
        if scheduler_name in self.elsewhere:
            return False
        return True if scheduler_name in self._here else None

    def update(self, desired: DesiredState) -> bool:
        """Store the profiles to serve from now on."""
        changed = desired.elsewhere != self.elsewhere
        self.elsewhere = desired.elsewhere
        self._here = frozenset(profile.scheduler_name for profile in desired.profiles if profile.holds_name)
        self._uids = frozenset(profile.meta.uid for profile in desired.profiles)
        return changed
