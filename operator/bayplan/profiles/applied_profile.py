"""Result of applying one profile: the record from which revisions, log lines and statuses are written."""

from __future__ import annotations

from msgspec import Struct, field

from bayplan.profiles.desired_profiles import DesiredProfile
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import Problem
from scheduler_core.framework.registry import ResolvedPlugins
from scheduler_core.shadows.shadow_settings import ShadowSettings


class ProfileFindings(Struct, frozen=True):
    """What validation and activation found about a profile.

    Attributes:
        generation: Generation of the validated object.
        scheduler_name: The scheduler name that it claims.
        holds_name: Whether the claim is granted.
        problems: All problems of its spec.
        live_revision: The revision that runs, "" if none does.
        resolved: The plugins of that revision.
        waiting_for: Profiles with another QueueSort; None if it does not wait.
        name_is_reserved: Whether the claim is rejected because the name is kube-scheduler's.
        shadow: How a shadow is run; None for other profiles.
    """

    generation: int
    scheduler_name: str
    holds_name: bool
    problems: tuple[Problem, ...] = ()
    live_revision: str = ""
    resolved: ResolvedPlugins = field(default_factory=dict)
    waiting_for: tuple[str, ...] | None = None
    name_is_reserved: bool = False
    shadow: ShadowSettings | None = None


class AppliedProfile(Struct, frozen=True):
    """A profile after its desired state was applied.

    Attributes:
        desired: The validated profile.
        findings: What validation, build and activation found.
        activated: The revision that went live from the current spec in this step and is to be stored; None for none.
    """

    desired: DesiredProfile
    findings: ProfileFindings
    activated: ProfileConfig | None = None
