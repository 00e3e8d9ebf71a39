"""A running shadow profile, and the results of its comparison with the live profile."""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime
from enum import Enum
from zlib import crc32

from msgspec import Struct, field

from scheduler_core.config.profile_config import ShadowSettings
from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.shadows.ledger import LedgerFigures, ShadowLedger
from scheduler_core.step_counter import TimeBudget

KEPT_DIFFERENCES = 100
"""Number of differences that are stored."""


class DifferenceKind(Enum):
    """What a shadow decides differently."""

    OTHER_NODE = "OtherNode"
    WOULD_REJECT = "WouldReject"
    WOULD_PLACE = "WouldPlace"


class ShadowDifference(Struct, frozen=True):
    """One decision that differs.

    Attributes:
        reason: Why they differ; for nodes that both allow, the plugins whose scores decide.
        live_points: Total score of the live node minus that of the shadow's node, by the live profile; None if the live
            profile rejects the shadow's node, or scores were not compared.
        shadow_points: Total score of the shadow's node minus that of the live node, by the shadow; None likewise.
    """

    when: datetime
    pod: str
    kind: DifferenceKind
    live_node: str
    shadow_node: str
    reason: str
    live_points: int | None = None
    shadow_points: int | None = None


class ScorePoints(Struct):
    """Score differences of one profile, in points of its own total."""

    count: int = 0
    total: int = 0

    def add(self, points: int | None) -> None:
        if points is not None:
            self.count += 1
            self.total += points

    @property
    def average(self) -> float | None:
        return self.total / self.count if self.count else None


class ComparisonRecord(Struct):
    """Results since the shadow or its live profile changed last.

    Attributes:
        agreed: Number of those that were equal: the same node, or no node.
        kinds: Number of those that differed, by kind.
        skipped: Number of decisions that were not compared, by reason.
        figures: Effect of the shadow's choices on packing and spread; None before the first estimate.
    """

    since: datetime
    decided: int = 0
    compared: int = 0
    agreed: int = 0
    kinds: Counter[DifferenceKind] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    last_error: str = ""
    live_points: ScorePoints = field(default_factory=ScorePoints)
    shadow_points: ScorePoints = field(default_factory=ScorePoints)
    differences: deque[ShadowDifference] = field(default_factory=lambda: deque(maxlen=KEPT_DIFFERENCES))
    figures: LedgerFigures | None = None

    @property
    def differed(self) -> int:
        return self.compared - self.agreed

    def add(self, difference: ShadowDifference | None) -> None:
        self.compared += 1
        if difference is None:
            self.agreed += 1
            return
        self.kinds[difference.kind] += 1
        self.live_points.add(difference.live_points)
        self.shadow_points.add(difference.shadow_points)
        self.differences.append(difference)


NOT_SAMPLED, OVER_BUDGET, PAUSED, HAS_EXTENDERS, FAILED = "Sample", "Budget", "Paused", "Extenders", "ShadowError"
"""Reasons why a decision is not compared, besides those of :mod:`scheduler_core.cycle.decided_pods`."""

PAUSE_SECONDS = 60.0
"""Pause of a shadow after repeated errors."""
FAILURES_BEFORE_PAUSE = 5


class Shadow(Struct):
    """A running shadow profile."""

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
