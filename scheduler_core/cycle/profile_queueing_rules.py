"""Queueing rules of the live profiles, as the queue looks them up by scheduler name: gates, hints, order, backoff."""

from __future__ import annotations

from scheduler_core.metrics.scheduler_metrics import QueueMetrics, SchedulerMetrics
from scheduler_core.ports import Clock
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.profile_table import ProfileTable, queue_sort_of


class ProfileQueueingRules:
    """Rules by scheduler name."""

    def __init__(
        self, initial_backoff_seconds: float, max_backoff_seconds: float, metrics: SchedulerMetrics, clock: Clock
    ) -> None:
        self._initial_backoff_seconds = initial_backoff_seconds
        self._max_backoff_seconds = max_backoff_seconds
        self._metrics = metrics
        self._clock = clock
        self._rules: dict[str, QueueingRules] = {}
        self._queue_sort: tuple[str, str] | None = None

    def get(self, name: str) -> QueueingRules | None:
        """Return the rules of a profile, None if it is not live."""
        return self._rules.get(name)

    def update(self, name: str, profiles: ProfileTable) -> bool:
        """Update the rules of a profile that went live, was replaced or was withdrawn.

        Returns:
            Whether the order of the queue changed. All profiles change their QueueSort plugin at once, so the rules of
            all of them are updated then.
        """
        instance = profiles.get(name)
        if instance is None:
            self._rules.pop(name, None)
            return False
        self._rules[name] = self._of(instance)
        before, self._queue_sort = self._queue_sort, queue_sort_of(instance)
        if before in (None, self._queue_sort):
            return False
        self._rules.update((live.name, self._of(live)) for live in profiles)
        return True

    def _of(self, instance: FrameworkInstance) -> QueueingRules:
        config = instance.config
        initial, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
        return QueueingRules(
            instance.pre_enqueue,
            instance.registrations,
            instance.queue_sort.sort_key,
            self._initial_backoff_seconds if initial is None else initial,
            self._max_backoff_seconds if longest is None else longest,
            places_gangs=instance.places_gangs,
            are_keys_plain=instance.queue_sort.name in instance.built_in,
            metrics=QueueMetrics(instance.name, self._metrics, self._clock),
        )
