"""Configuration of one framework instance, from a SchedulerProfile object or a KubeSchedulerConfiguration.

The revision is a hash of the content, not of the object: equal profiles that are written differently have the same
revision, so a changed label or comment does not rebuild anything.
"""

import hashlib
import json
from collections.abc import Iterator

from pydantic import Field

from scheduler_core.config.config_model import INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.extender_config import Extender, extender_problems
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, repeated_plugin_config

_REVISION_DIGITS = 8


class ProfileConfig(ConfigModel):
    """A complete profile: references are resolved, default plugins are not merged yet.

    Attributes:
        scheduler_name: The ``spec.schedulerName`` of the pods that it schedules.
        percentage_of_nodes_to_score: 1 to 100 percent of the nodes; 0 for kube-scheduler's adaptive formula; None to
            score every feasible node.
        pod_initial_backoff_seconds: Initial backoff of a failed pod, in seconds; None for the operator's setting.
        pod_max_backoff_seconds: Maximum backoff, in seconds; None for the operator's setting.
        plugins: Enabled and disabled plugins at each extension point.
        plugin_config: Args by plugin; each plugin at most once.
        extenders: HTTP extenders, called in this order.
    """

    scheduler_name: str = Field(min_length=1)
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    pod_initial_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)
    pod_max_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = Field(default=(), strict=False)
    extenders: tuple[Extender, ...] = Field(default=(), strict=False)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the order of backoffs, duplicate plugin configs, and the extenders."""
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        yield from repeated_plugin_config(self.plugin_config, "pluginConfig")
        yield from extender_problems(self.extenders)

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
