"""How a shadow profile is run; the rest of the package is imported with the first shadow."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_BUDGET_PERCENT = 10


class ShadowSettings(Struct, frozen=True):
    """How a shadow profile is run.

    Attributes:
        sample_percent: Percentage of the live profile's decisions that are compared, 1 to 100.
        budget_percent: Largest percentage of the scheduler's time that the shadow uses, 1 to 100.
        calls_extenders: Whether its extenders are called.
    """

    shadow_of: str
    sample_percent: int = 100
    budget_percent: int = DEFAULT_BUDGET_PERCENT
    calls_extenders: bool = False
