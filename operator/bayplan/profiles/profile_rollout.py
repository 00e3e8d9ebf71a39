"""The running profiles: builds what is desired, swaps it in and retires what it replaces.

No I/O: one call is one step between two cycles.

    desired ──build──▶ candidate ──QueueSort matches──▶ live ──replaced, withdrawn──▶ retired by the scheduler
               │            └──superseded──▶ retired here
               └──problems──▶ the live one keeps running; at start, the newest stored revision that still builds
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bayplan.extenders.transport import url_problems
from bayplan.profiles.desired_profiles import (
    DesiredProfile,
    DesiredState,
    ProfileQueueSort,
    decide_queue_sort,
    with_versions,
)
from bayplan.profiles.profile_status import AppliedProfile, ProfileFindings
from bayplan.profiles.revision_store import with_keys
from scheduler_core.config.plugin_set_types import enabled_notes
from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.registry import ResolvedPlugins, warnings_without_effect
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.profile_table import queue_sort_of
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

LastGood = Callable[[str], Sequence[ProfileConfig]]
"""Maps a profile's UID to its stored revisions, newest first."""


@dataclass(slots=True)
class BuiltProfile:
    """A profile as built.

    Attributes:
        instance: The instance, which the caller retires or activates; None if there are problems, or if it went live.
        problems: Problems that validation had not found; paths begin with ``spec``.
        warnings: Entries that kube-scheduler accepts too, and that do not do what they seem to do.
        notes: Entries of which Bayplan does the work without a plugin.
    """

    instance: FrameworkInstance | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


_Build = tuple[object, BuiltProfile]
"""What was built, for comparison, and the result."""
_NOTHING: _Build = None, BuiltProfile()


class ProfileRollout:
    """Builds revisions and swaps them in; if a profile has no live and no valid one, one of ``last_good``."""

    def __init__(self, scheduler: Scheduler, last_good: LastGood) -> None:
        self._scheduler = scheduler
        self._last_good = last_good
        self._builds: dict[str, _Build] = {}
        self._fallbacks: dict[str, _Build] = {}
        self._serving: dict[str, str] = {}

    def live(self, scheduler_name: str, profile_uid: str) -> FrameworkInstance | None:
        """Return the instance that a profile runs under a scheduler name; None if it runs none."""
        if self._serving.get(scheduler_name) != profile_uid:
            return None
        return self._scheduler.context.profiles.get(scheduler_name)

    def apply(self, desired: DesiredState) -> tuple[AppliedProfile, ...]:
        """Make the running profiles match the desired state, as far as possible."""
        self._forget_others({profile.meta.uid for profile in desired.profiles})
        self._withdraw_others({profile.scheduler_name: profile for profile in desired.profiles if profile.holds_name})
        problems: dict[str, tuple[Problem, ...]] = {}
        targets: dict[str, FrameworkInstance] = {}
        for profile in desired.profiles:
            uid = profile.meta.uid
            problems[uid] = (*profile.problems, *self._build_problems(profile))
            target = self._target(profile, valid=not problems[uid])
            if target is not None:
                targets[uid] = target
        decision = decide_queue_sort([self._queue_sort(profile, targets) for profile in desired.profiles])
        activated = self._activate(desired, targets, decision.ready)
        return tuple(
            AppliedProfile(
                profile,
                _findings(
                    profile,
                    problems[profile.meta.uid],
                    self._builds.get(profile.meta.uid, _NOTHING)[1].warnings,
                    self.live(profile.scheduler_name, profile.meta.uid),
                    decision.waiting.get(profile.meta.name),
                ),
                activated.get(profile.meta.uid),
            )
            for profile in desired.profiles
        )

    # -- building -----------------------------------------------------------------------------------------------

    def _build_problems(self, profile: DesiredProfile) -> tuple[Problem, ...]:
        """Build the profile if its revision is new; return the problems that validation did not find."""
        uid, config = profile.meta.uid, profile.config
        if config is None:
            _drop(self._builds, uid)
            return ()
        key = (config.revision(), not profile.problems)
        live = self.live(profile.scheduler_name, uid)
        build = self._builds.get(uid)
        if build is None or build[0] != key:
            _drop(self._builds, uid)
            if live is None or live.revision != key[0] or profile.problems:
                built = build_profile(self._scheduler, profile)
            else:
                built = BuiltProfile(warnings=profile_warnings(profile, live.resolved, self._scheduler))
            build = self._builds[uid] = key, built
        return build[1].problems

    def _target(self, profile: DesiredProfile, *, valid: bool) -> FrameworkInstance | None:
        """Return the instance that should run for a profile; None if there is no valid one."""
        if not profile.holds_name:
            return None
        uid = profile.meta.uid
        live = self.live(profile.scheduler_name, uid)
        if valid:
            is_live = live is not None and profile.config is not None and live.revision == profile.config.revision()
            return live if is_live else self._builds[uid][1].instance
        return None if live is not None else self._fallback(profile)

    def _fallback(self, profile: DesiredProfile) -> FrameworkInstance | None:
        uid = profile.meta.uid
        stored = self._last_good(uid)
        key = "".join(config.revision() for config in stored)
        fallback = self._fallbacks.get(uid)
        if fallback is None or fallback[0] != key:
            _drop(self._fallbacks, uid)
            fallback = self._fallbacks[uid] = key, BuiltProfile(self._build_last_good(profile, stored))
        return fallback[1].instance

    def _build_last_good(self, profile: DesiredProfile, stored: Sequence[ProfileConfig]) -> FrameworkInstance | None:
        for config in stored:
            if config.scheduler_name != profile.scheduler_name:
                continue
            try:
                here = with_versions(_with_keys(config, profile), self._scheduler.registry)
                instance = self._scheduler.build(here)
            except ConfigError as error:
                log.warning(
                    "profile %s: stored revision %s can no longer be built, trying an older one: %s",
                    profile.meta.name,
                    config.revision(),
                    error,
                    extra={"profile": profile.meta.name, "revision": config.revision()},
                )
                continue
            return instance
        return None

    # -- swapping -----------------------------------------------------------------------------------------------

    def _activate(
        self, desired: DesiredState, targets: dict[str, FrameworkInstance], ready: frozenset[str]
    ) -> dict[str, ProfileConfig]:
        """Swap in the targets of profiles that may go live; return the revisions to store, by UID of the profile."""
        entering: list[tuple[DesiredProfile, FrameworkInstance]] = []
        for profile in desired.profiles:
            target = targets.get(profile.meta.uid)
            if target is None or profile.meta.name not in ready:
                continue
            if target is not self.live(profile.scheduler_name, profile.meta.uid):
                entering.append((profile, target))
        if not entering:
            return {}
        self._scheduler.activate([instance for _, instance in entering])
        activated: dict[str, ProfileConfig] = {}
        for profile, instance in entering:
            uid = profile.meta.uid
            self._serving[profile.scheduler_name] = uid
            fields = {"profile": profile.meta.name, "revision": instance.revision}
            log.info("profile %s: revision %s is live", profile.meta.name, instance.revision, extra=fields)
            _, built = self._builds.get(uid, _NOTHING)
            if built.instance is instance:
                for note in (*built.notes, *built.warnings):
                    log.warning("profile %s: %s", profile.meta.name, note, extra=fields)
                built.instance = None
                activated[uid] = instance.config
            _, fallback = self._fallbacks.get(uid, _NOTHING)
            if fallback.instance is instance:
                fallback.instance = None
            _drop(self._fallbacks, uid)
        return activated

    def _queue_sort(self, profile: DesiredProfile, targets: dict[str, FrameworkInstance]) -> ProfileQueueSort:
        live = self.live(profile.scheduler_name, profile.meta.uid)
        target = targets.get(profile.meta.uid)
        return ProfileQueueSort(
            profile.meta.name,
            None if live is None else queue_sort_of(live),
            None if target is None else queue_sort_of(target),
        )

    def _withdraw_others(self, holders: dict[str, DesiredProfile]) -> None:
        """Stop the instances of profiles that are gone or have lost their scheduler name."""
        for name, uid in list(self._serving.items()):
            holder = holders.get(name)
            if holder is None or holder.meta.uid != uid:
                # First: after an exception, the next reconcile repeats it.
                self._scheduler.withdraw(name)
                del self._serving[name]
                _drop(self._builds, uid)
                text = "scheduler name %s: no longer served by the profile with UID %s"
                log.info(text, name, uid, extra={"profile": name})

    def _forget_others(self, uids: set[str]) -> None:
        for builds in (self._builds, self._fallbacks):
            for uid in builds.keys() - uids:
                _drop(builds, uid)


def _findings(
    profile: DesiredProfile,
    problems: tuple[Problem, ...],
    warnings: tuple[Problem, ...],
    instance: FrameworkInstance | None,
    waiting_for: tuple[str, ...] | None = None,
) -> ProfileFindings:
    return ProfileFindings(
        generation=profile.meta.generation,
        scheduler_name=profile.scheduler_name,
        holds_name=profile.holds_name,
        problems=problems,
        warnings=warnings,
        live_revision="" if instance is None else instance.revision,
        resolved={} if instance is None else instance.resolved,
        waiting_for=waiting_for,
        name_is_reserved=profile.name_is_reserved,
        shadow=profile.shadow,
    )


def _drop(builds: dict[str, _Build], uid: str) -> None:
    _, built = builds.pop(uid, _NOTHING)
    if built.instance is not None:
        built.instance.retire()


def _with_keys(config: ProfileConfig, profile: DesiredProfile) -> ProfileConfig:
    """Return a stored configuration with the client keys that the profile has now; see :func:`with_keys`."""
    now = {} if profile.config is None else profile.config.document()
    return validate(ProfileConfig, with_keys(config.document(), now), "")


@dataclass(slots=True)
class _Running:
    """The last valid revision of a shadow, with the ``key`` of the spec and findings that were built last."""

    key: tuple[str, tuple[Problem, ...]]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    instance: FrameworkInstance | None = None
    settings: ShadowSettings | None = None


class ShadowRollout:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._running: dict[str, _Running] = {}

    def apply(self, shadows: Sequence[DesiredProfile]) -> tuple[AppliedProfile, ...]:
        """Make the running shadows match the desired ones."""
        if not shadows and not self._running:
            return ()
        uids = {profile.meta.uid for profile in shadows}
        self._running = {uid: running for uid, running in self._running.items() if uid in uids}
        for profile in shadows:
            self._build(profile)
        wanted = {}
        for profile in shadows:
            running = self._running[profile.meta.uid]
            if running.instance is not None and running.settings is not None:
                wanted[profile.meta.name] = running.instance, running.settings
        self._scheduler.shadows.serve(wanted)
        return tuple(
            AppliedProfile(
                profile, _findings(profile, (*profile.problems, *running.problems), running.warnings, running.instance)
            )
            for profile in shadows
            for running in (self._running[profile.meta.uid],)
        )

    def _build(self, profile: DesiredProfile) -> None:
        """Build a shadow if its spec is new."""
        uid, config = profile.meta.uid, profile.config
        key = ("" if config is None else config.revision(), (*profile.problems, *profile.warnings))
        running = self._running.get(uid)
        if running is None:
            running = self._running[uid] = _Running(("", ()))
        if running.key != key:
            built = build_profile(self._scheduler, profile)
            running.key, running.problems, running.warnings = key, built.problems, built.warnings
            instance = built.instance
            if instance is not None:
                running.instance = instance
                fields = {"profile": profile.meta.name, "revision": instance.revision}
                text = "profile %s: revision %s is a shadow of %s"
                assert profile.shadow is not None
                log.info(text, profile.meta.name, instance.revision, profile.shadow.shadow_of, extra=fields)
        if not profile.problems and not running.problems:
            running.settings = profile.shadow


def build_profile(scheduler: Scheduler, profile: DesiredProfile) -> BuiltProfile:
    """Build a profile; an instance of an invalid one, for findings about its other parts, is retired at once."""
    config = profile.config
    if config is None:
        return BuiltProfile()
    urls = tuple(url_problems(config.document(), "spec"))
    try:
        instance = scheduler.build(config, profile.args, is_shadow=profile.shadow is not None)
    except ConfigError as error:
        # The client of an extender, if the scheduler makes one, rejects the same URLs.
        built = profile.build_problems(error)
        return BuiltProfile(problems=(*built, *(each for each in urls if each not in built)))
    except Exception:  # a bug in one profile's plugin must not block the other profiles
        log.exception("profile %s: the build failed unexpectedly; please report this bug", profile.meta.name)
        return BuiltProfile(
            problems=(Problem("spec", "cannot be built because of a bug in Bayplan; see the operator's log"),)
        )
    warnings = profile_warnings(profile, instance.resolved, scheduler)
    notes = tuple(map(profile.located, enabled_notes(config.plugins)))
    if profile.problems or urls:
        instance.retire()
        return BuiltProfile(None, urls, warnings, notes)
    return BuiltProfile(instance, (), warnings, notes)


def profile_warnings(profile: DesiredProfile, resolved: ResolvedPlugins, scheduler: Scheduler) -> tuple[Problem, ...]:
    """Return the warnings about a profile of which the plugins of each extension point are known."""
    if profile.config is None:
        return ()
    found = warnings_without_effect(profile.config, resolved, scheduler.registry)
    return (*profile.warnings, *map(profile.located, found))
