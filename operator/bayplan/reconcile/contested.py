"""The condition Contested: whether someone else binds a profile's pods.

Owns when a profile counts as contested and the words for it. It must not know how a lost bind is found. Why it looks
ten minutes back: a rival that takes one pod in a minute must not make the condition come and go with each.

After a restart the time of the last lost bind is taken from the status, and so are the words, so that the condition
stands until its time is over, whoever leads meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bayplan.resources.conditions import Condition, ConditionUpdate, find_condition
from scheduler_core.cycle.context import LostBind

CONTESTED = "Contested"
CONTESTED_SECONDS = 600.0
"""How long a profile counts as contested after a lost bind."""

_REMEDY = (
    "The pod's event Scheduled, where it has one, tells who. Let this profile alone serve the schedulerName: stop the "
    "other scheduler or give one of the two another name, and bind no pods of this name by other means."
)


def last_lost_time(lost: LostBind | None, written: Mapping[str, Any]) -> datetime | None:
    """When a bind was last lost, as far as this process or the status knows.

    Args:
        lost: The last bind that this process has lost.
        written: The status as it is.

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
    """Tell whether a profile is contested.

    Args:
        lost_binds: Binds that this process has lost.
        lost: The last of these.
        last_time: See :func:`last_lost_time`.
        conditions: Those that are written, whose words are kept where this process knows no better.
        now: The present time, with its zone.

    Returns:
        The condition.
    """
    if last_time is None or now - last_time >= timedelta(seconds=CONTESTED_SECONDS):
        minutes = round(CONTESTED_SECONDS / 60)
        return ConditionUpdate(
            CONTESTED, "False", "Uncontested", f"Nobody else has bound a pod of this profile in the last {minutes} min."
        )
    old = find_condition(conditions, CONTESTED)
    if lost is None:
        words = old.message if old is not None and old.status == "True" else f"A bind was lost to a rival. {_REMEDY}"
    else:
        last = f"pod {lost.pod} to node {lost.rival_node_name}, while this profile was binding it to {lost.node_name}"
        begin = (
            "" if lost_binds == 1 else f"{lost_binds} pods of this profile since the operator started, the last was "
        )
        words = f"Someone else has bound {begin}{last}. {_REMEDY}"
    return ConditionUpdate(CONTESTED, "True", "BindsLostToRival", words)
