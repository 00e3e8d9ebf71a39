"""Configuration of one framework instance, from a SchedulerProfile object or a KubeSchedulerConfiguration.

The revision is a hash of the content, not of the object: equal profiles that are written differently have the same
revision, so a changed label or comment does not rebuild anything.
"""

import hashlib
import json
from collections.abc import Iterator

from pydantic import Field

from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.extender_config import Extender, extender_problems
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, repeated_plugin_config

_REVISION_DIGITS = 8


class ProfileSettings(ConfigModel):
    """The fields of a profile, of a SchedulerProfile object as of a complete profile."""

    scheduler_name: str | None = Field(
        default=None,
        min_length=1,
        description="Scheduler name of the pods that this profile schedules. Default: the profile's own name. "
        "Immutable. If two profiles claim a name, the older one holds it.",
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percentage of nodes to find feasible before the search stops (at least 100 nodes). 0 selects "
        "kube-scheduler's adaptive formula, from 50 % down to 5 % as the cluster grows. Default: every feasible node "
        "is scored.",
    )
    pod_initial_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Backoff of a pod after its first failed attempt, in seconds; it doubles with each further one. "
        "Default: the operator's setting.",
    )
    pod_max_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum backoff of a pod, in seconds; at least podInitialBackoffSeconds. Default: the operator's "
        "setting.",
    )
    plugins: Plugins = Field(
        default=Plugins(),
        description="Plugins to enable and disable at each extension point, in the syntax of "
        "KubeSchedulerConfiguration v1. Everything else is as in kube-scheduler's default profile. The result is in "
        "status.plugins.",
    )
    plugin_config: tuple[PluginConfig, ...] = Field(
        default=(),
        strict=False,
        description="Args of plugins, in the syntax of KubeSchedulerConfiguration v1; one entry for each plugin. "
        "The plugin validates them; problems are reported in the condition Accepted.",
    )
    extenders: tuple[Extender, ...] = Field(
        default=(),
        strict=False,
        description="HTTP extenders of this profile's decisions, called in this order.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the order of backoffs, duplicate plugin configs, and the extenders."""
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        yield from repeated_plugin_config(self.plugin_config)
        yield from extender_problems(self.extenders)


class ProfileConfig(ProfileSettings):
    """A complete profile: it has a name, references are resolved, default plugins are not merged yet.

    A configuration file may have longer backoffs than an object.
    """

    scheduler_name: str = Field(min_length=1)
    pod_initial_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)
    pod_max_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)

    def revision(self) -> str:
        """Return the revision of this content.

        Returns:
            Eight hexadecimal digits, equal for equal profiles.
        """
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def backoff_problems(initial: int | None, maximum: int | None) -> Iterator[RuleProblem]:
    """Check that the maximum backoff is not shorter than the initial one.

    Args:
        initial: Initial backoff in seconds, None if not set.
        maximum: Maximum backoff in seconds, None if not set.

    Yields:
        The problem, if there is one.
    """
    if initial is not None and maximum is not None and maximum < initial:
        yield RuleProblem(
            ("podMaxBackoffSeconds",), f"must be at least podInitialBackoffSeconds ({initial}), not {maximum}"
        )
