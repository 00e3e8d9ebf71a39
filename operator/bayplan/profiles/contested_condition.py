"""Condition Contested: whether another client binds a profile's pods.

It covers the last ten minutes, so that a rival that binds one pod a minute does not toggle the condition each time.
After a restart the time of the last lost bind and the message come from the status, so that the condition stays until
its time is over, whichever replica leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bayplan.resources.conditions import Condition, ConditionUpdate, find_condition
from scheduler_core.metrics.profile_metrics import LostBind

CONTESTED = "Contested"
CONTESTED_SECONDS = 600.0
"""Duration for which a profile counts as contested after a lost bind."""

_REMEDY = (
    "The pod's event Scheduled, if it has one, names the rival. Use this schedulerName in this profile only: stop the "
    "other scheduler or rename one of the two, and do not bind pods of this name by other means."
)


def last_lost_time(lost: LostBind | None, written: Mapping[str, Any]) -> datetime | None:
    """Return when a bind was last lost, as recorded by this process or in the status.

    Args:
        lost: The last bind that this process has lost.
        written: The current status.

    Returns:
        The time, None for never.
    """
    if lost is not None:
        return lost.when
    text = written.get("lastLostBindTime")
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def contested(
    lost_binds: int, lost: LostBind | None, last_time: datetime | None, conditions: tuple[Condition, ...], now: datetime
) -> ConditionUpdate:
    """Make the condition Contested.

    Args:
        lost_binds: Number of binds that this process has lost.
        lost: The last of them.
        last_time: See :func:`last_lost_time`.
        conditions: The current conditions, whose message stays if this process has lost no bind.
        now: The current time, with its zone.

    Returns:
        The condition.
    """
    if last_time is None or now - last_time >= timedelta(seconds=CONTESTED_SECONDS):
        minutes = round(CONTESTED_SECONDS / 60)
        return ConditionUpdate(
            CONTESTED,
            "False",
            "Uncontested",
            f"No other client has bound a pod of this profile in the last {minutes} min.",
        )
    old = find_condition(conditions, CONTESTED)
    if lost is None:
        message = old.message if old is not None and old.status == "True" else f"A bind was lost to a rival. {_REMEDY}"
    else:
        last = f"pod {lost.pod} to node {lost.rival_node_name}, while this profile was binding it to {lost.node_name}"
        prefix = (
            "" if lost_binds == 1 else f"{lost_binds} pods of this profile since the operator started, the last was "
        )
        message = f"Another client has bound {prefix}{last}. {_REMEDY}"
    return ConditionUpdate(CONTESTED, "True", "BindsLostToRival", message)
