"""The running shadow profiles: builds the shadows that are desired and lets them decide beside their live profiles.

An invalid edit never ends a running shadow: its last valid revision continues, until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from bayplan.profiles.applied_profile import AppliedProfile, ProfileFindings
from bayplan.profiles.desired_profiles import DesiredProfile
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler
from scheduler_core.shadows.shadow_settings import ShadowSettings

log = logging.getLogger(__name__)


class _Running(Struct):
    """The last valid revision of a shadow.

    Attributes:
        key: Revision of the spec that was built last, and the problems that validation had found.
        problems: Why the last build failed.
        instance: The revision that runs; None for none.
        settings: How it is run.
    """

    key: tuple[str, tuple[Problem, ...]]
    problems: tuple[Problem, ...] = ()
    instance: FrameworkInstance | None = None
    settings: ShadowSettings | None = None


class ShadowRollout:
    """Rolls out shadow profiles to a scheduler.

    Args:
        scheduler: Builds and runs the shadows.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._running: dict[str, _Running] = {}

    def apply(self, shadows: Sequence[DesiredProfile]) -> tuple[AppliedProfile, ...]:
        """Make the running shadows match the desired ones.

        Args:
            shadows: All shadows, validated.

        Returns:
            One record for each, in their order.
        """
        if not shadows and not self._running:
            return ()
        uids = {profile.meta.uid for profile in shadows}
        self._running = {uid: running for uid, running in self._running.items() if uid in uids}
        problems = {profile.meta.uid: self._build(profile) for profile in shadows}
        wanted = {}
        for profile in shadows:
            running = self._running[profile.meta.uid]
            if running.instance is not None and running.settings is not None:
                wanted[profile.meta.name] = running.instance, running.settings
        self._scheduler.shadows.serve(wanted)
        return tuple(
            AppliedProfile(profile, self._findings(profile, (*profile.problems, *problems[profile.meta.uid])))
            for profile in shadows
        )

    def _build(self, profile: DesiredProfile) -> tuple[Problem, ...]:
        """Build a shadow if its spec is new; return the problems that validation did not find."""
        uid, config = profile.meta.uid, profile.config
        key = ("" if config is None else config.revision(), profile.problems)
        running = self._running.get(uid)
        if running is None:
            running = self._running[uid] = _Running(("", ()))
        if running.key != key:
            running.key, running.problems = key, ()
            instance = None if config is None else self._built(profile, running)
            if instance is not None and profile.problems:
                instance.retire()
            elif instance is not None:
                running.instance = instance
                fields = {"profile": profile.meta.name, "revision": instance.revision}
                text = "profile %s: revision %s is a shadow of %s"
                assert profile.shadow is not None
                log.info(text, profile.meta.name, instance.revision, profile.shadow.shadow_of, extra=fields)
        if not profile.problems and not running.problems:
            running.settings = profile.shadow
        return running.problems

    def _built(self, profile: DesiredProfile, running: _Running) -> FrameworkInstance | None:
        assert profile.config is not None
        try:
            return self._scheduler.build(profile.config, profile.args, is_shadow=True)
        except ConfigError as error:
            running.problems = profile.build_problems(error)
        except Exception:  # a bug in one profile's plugin must not block the other profiles
            log.exception("profile %s: the build failed unexpectedly; please report this bug", profile.meta.name)
            message = "cannot be built because of a bug in Bayplan; see the operator's log"
            running.problems = (Problem("spec", message),)
        return None

    def _findings(self, profile: DesiredProfile, problems: tuple[Problem, ...]) -> ProfileFindings:
        instance = self._running[profile.meta.uid].instance
        return ProfileFindings(
            generation=profile.meta.generation,
            scheduler_name=profile.scheduler_name,
            holds_name=False,
            problems=problems,
            live_revision="" if instance is None else instance.revision,
            resolved={} if instance is None else instance.resolved,
            shadow=profile.shadow,
        )
