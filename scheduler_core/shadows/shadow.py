"""A running shadow profile."""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.shadows.comparison_record import ComparisonRecord
from scheduler_core.shadows.ledger import ShadowLedger
from scheduler_core.shadows.shadow_settings import ShadowSettings
from scheduler_core.shadows.time_budget import TimeBudget

NOT_SAMPLED, OVER_BUDGET, PAUSED, HAS_EXTENDERS, FAILED = "Sample", "Budget", "Paused", "Extenders", "ShadowError"
"""Reasons why a decision is not compared, besides those of :mod:`scheduler_core.cycle.decided_pods`."""

PAUSE_SECONDS = 60.0
"""Pause of a shadow after repeated errors."""
FAILURES_BEFORE_PAUSE = 5


class Shadow(Struct):
    """A running shadow profile.

    Attributes:
        paused_until: End of the pause after errors, in the clock's seconds.
    """

    name: str
    settings: ShadowSettings
    instance: FrameworkInstance
    budget: TimeBudget
    ledger: ShadowLedger
    record: ComparisonRecord
    live_revision: str = ""
    failures: int = 0
    paused_until: float = 0.0

    def samples(self, pod: DecidedPod) -> bool:
        """Return whether a decision is part of the sample; the same for every run."""
        percent = self.settings.sample_percent
        return percent >= 100 or crc32(f"{pod.info.uid}/{pod.number}".encode()) % 100 < percent

    def has_interested_extender(self, pod: DecidedPod) -> bool:
        """Return whether an extender of the profile takes part in the decision on a pod."""
        return any(each.is_interested(pod.info.pod) for each in self.instance.extenders)

    def ended(self, *, failed: bool, now: float) -> None:
        """Count the end of a decision; pause the shadow after repeated errors."""
        self.failures = self.failures + 1 if failed else 0
        if self.failures >= FAILURES_BEFORE_PAUSE:
            self.failures = 0
            self.paused_until = now + PAUSE_SECONDS
