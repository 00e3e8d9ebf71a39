"""Status and conditions of shadow profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from bayplan.profiles.applied_profile import ProfileFindings
from bayplan.resources.conditions import ConditionUpdate, cut_text
from bayplan.resources.scheduler_profile import (
    MAX_REASON_LENGTH,
    CarriedForward,
    Difference,
    NotCompared,
    PlacementFigures,
    ResourceFigures,
    ScoreDifference,
    ShadowStatus,
)
from scheduler_core.scheduler import Scheduler

if TYPE_CHECKING:
    from scheduler_core.shadows.comparison_record import ShadowDifference
    from scheduler_core.shadows.ledger import LedgerFigures, StateFigures
    from scheduler_core.shadows.shadow import Shadow

_MAX_ERROR_LENGTH = 4096
_MAX_RESOURCES = 32


class RunningShadow(Struct, frozen=True):
    """A shadow that runs.

    Attributes:
        shadow: The shadow with its results.
        has_live_profile: Whether a profile of that scheduler name is live in this process.
        is_paused: Whether it pauses after repeated errors.
    """

    shadow: Shadow
    has_live_profile: bool
    is_paused: bool


def running_shadow(scheduler: Scheduler, name: str) -> RunningShadow | None:
    """Return the shadow of a name with its results; None if it does not run."""
    shadow = scheduler.shadows.get(name)
    if shadow is None:
        return None
    context = scheduler.context
    return RunningShadow(
        shadow, shadow.settings.shadow_of in context.profiles, shadow.paused_until > context.clock.now()
    )


def shadow_conditions(findings: ProfileFindings, running: RunningShadow | None) -> Iterator[ConditionUpdate]:
    """Yield the conditions Ready and Comparing."""
    assert findings.shadow is not None
    live, of = findings.live_revision, findings.shadow.shadow_of
    if running is None:
        message = "No revision runs because the spec is invalid; see condition Accepted."
        yield ConditionUpdate("Ready", "False", "NotLive", message)
        yield ConditionUpdate("Comparing", "False", "NotRunning", message)
        return
    if findings.problems:
        message = f"Revision {live}, the last good one, keeps running as a shadow; see condition Accepted."
        yield ConditionUpdate("Ready", "True", "LastGoodRevision", message)
    else:
        yield ConditionUpdate("Ready", "True", "Shadow", f"Revision {live} is a shadow of {of} and binds no pods.")
    if not running.has_live_profile:
        message = f"No live profile of this process has the scheduler name {of}; correct shadowOf, or create it."
        yield ConditionUpdate("Comparing", "False", "NoLiveProfile", message)
    elif running.is_paused:
        message = "The shadow failed several times in a row and pauses for a minute; see status.shadow.lastError."
        yield ConditionUpdate("Comparing", "False", "Paused", message)
    else:
        settings = running.shadow.settings
        sample = f"{settings.sample_percent} % of the decisions of {of} are made again"
        message = f"{sample}, within {settings.budget_percent} % of the scheduler's time."
        yield ConditionUpdate("Comparing", "True", "Comparing", message)


def shadow_status(running: RunningShadow | None) -> ShadowStatus | None:
    """Return the results of a shadow; None if it does not run."""
    if running is None:
        return None
    shadow, record = running.shadow, running.shadow.record
    kinds = {kind.value: count for kind, count in record.kinds.items()}
    return ShadowStatus(
        live_revision=shadow.live_revision or None,
        since=record.since,
        decided=record.decided,
        compared=record.compared,
        agreed=record.agreed,
        differed=record.differed,
        other_node=kinds.get("OtherNode", 0),
        would_reject=kinds.get("WouldReject", 0),
        would_place=kinds.get("WouldPlace", 0),
        not_compared=tuple(NotCompared(reason=each, count=count) for each, count in sorted(record.skipped.items())),
        errors=record.errors,
        last_error=cut_text(record.last_error, _MAX_ERROR_LENGTH) or None,
        seconds=f"{shadow.budget.spent:.3f}",
        score_difference=ScoreDifference(
            live=_decimal(record.live_points.average), shadow=_decimal(record.shadow_points.average)
        ),
        carried_forward=None if record.figures is None else _carried(record.figures),
        differences=tuple(_difference(each) for each in reversed(record.differences)),
    )


def _decimal(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _difference(each: ShadowDifference) -> Difference:
    return Difference(
        time=each.when,
        pod=each.pod,
        kind=each.kind.value,
        live_node=each.live_node or None,
        shadow_node=each.shadow_node or None,
        reason=cut_text(each.reason, MAX_REASON_LENGTH),
    )


def _carried(figures: LedgerFigures) -> CarriedForward:
    return CarriedForward(
        since=figures.since,
        pods=figures.pods,
        moved=figures.moved,
        live=_placement(figures.live),
        shadow=_placement(figures.shadow),
    )


def _placement(state: StateFigures) -> PlacementFigures:
    names = sorted(state.imbalance.keys() | state.unusable.keys())[:_MAX_RESOURCES]
    return PlacementFigures(
        empty_nodes=state.empty_nodes,
        placed=state.placed,
        zone_skew=state.zone_skew,
        resources=tuple(
            ResourceFigures(
                name=name, imbalance=_percent(state.imbalance.get(name)), unusable=_percent(state.unusable.get(name))
            )
            for name in names
        ),
    )


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f}"
