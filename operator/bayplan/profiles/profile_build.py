"""The build of one profile and its findings; operator, webhook and ``bayplan validate`` call the same function."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bayplan.extenders.transport import url_problems
from bayplan.profiles.desired_profiles import DesiredProfile
from scheduler_core.config.plugin_set_types import enabled_notes
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.registry import ResolvedPlugins, warnings_without_effect
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltProfile:
    """A profile as built.

    Attributes:
        instance: The instance, which the caller retires or activates; None if there are problems.
        problems: Problems that validation had not found; paths begin with ``spec``.
        warnings: Entries that kube-scheduler accepts too, and that do not do what they seem to do.
        notes: Entries of which Bayplan does the work without a plugin.
    """

    instance: FrameworkInstance | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()


def build_profile(scheduler: Scheduler, profile: DesiredProfile) -> BuiltProfile:
    """Build a profile.

    An invalid profile is built for the findings about its other parts, and the instance is retired at once.
    """
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
