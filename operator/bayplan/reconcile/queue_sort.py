"""When a change of the QueueSort plugin may happen.

Owns one rule: there is one active queue, so all live profiles order it alike, and a profile that asks for another order
waits until every live profile asks for the same; then all change together. It must not know what orders a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

QueueSort = tuple[str, str]
"""The plugin's name and its args in a form that can be compared."""


class QueueSortWish(Struct, frozen=True):
    """What a profile asks for.

    Attributes:
        profile: The profile's name.
        live: How it orders the queue now; None while it is not live.
        wanted: How it would; None when its spec cannot be built, so that it stays as it is.
    """

    profile: str
    live: QueueSort | None
    wanted: QueueSort | None


class QueueSortDecision(Struct, frozen=True):
    """Who may go live now.

    Attributes:
        ready: Profiles that may.
        waiting: Profiles that may not yet, each with those that stand against it.
    """

    ready: frozenset[str]
    waiting: dict[str, tuple[str, ...]]


def decide_queue_sort(wishes: Sequence[QueueSortWish]) -> QueueSortDecision:
    """Decide which profiles may go live together.

    Args:
        wishes: All profiles that are or would be live, oldest first.

    Returns:
        The decision. While nothing is live the oldest profile's order is taken.
    """
    live = [wish for wish in wishes if wish.live is not None]
    if live:
        asked = {wish.wanted or wish.live for wish in live}
        order = asked.pop() if len(asked) == 1 else live[0].live
    else:
        order = next((wish.wanted for wish in wishes if wish.wanted is not None), None)
    ready = frozenset(wish.profile for wish in wishes if wish.wanted is not None and wish.wanted == order)
    deciding = live or [wish for wish in wishes if wish.profile in ready]
    waiting = {
        wish.profile: tuple(
            sorted(
                other.profile
                for other in deciding
                if other.profile != wish.profile and (other.wanted or other.live) != wish.wanted
            )
        )
        for wish in wishes
        if wish.wanted is not None and wish.profile not in ready
    }
    return QueueSortDecision(ready, waiting)
