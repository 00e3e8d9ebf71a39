"""Rule for changes of the QueueSort plugin.

There is one active queue, so all live profiles must have the same QueueSort. A profile with another one waits until
every live profile has it; then all change together.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

QueueSort = tuple[str, str]
"""The plugin's name and its args in a comparable form."""


class ProfileQueueSort(Struct, frozen=True):
    """QueueSort of one profile.

    Attributes:
        profile: The profile's name.
        live: The live QueueSort; None if the profile is not live.
        wanted: The QueueSort of its spec; None if the spec cannot be built, so that the live one stays.
    """

    profile: str
    live: QueueSort | None
    wanted: QueueSort | None


class QueueSortDecision(Struct, frozen=True):
    """The profiles that may go live now.

    Attributes:
        ready: Profiles that may.
        waiting: Profiles that may not yet, each with the profiles that disagree.
    """

    ready: frozenset[str]
    waiting: dict[str, tuple[str, ...]]


def decide_queue_sort(profiles: Sequence[ProfileQueueSort]) -> QueueSortDecision:
    """Decide which profiles may go live together.

    Args:
        profiles: All profiles that are or would be live, oldest first.

    Returns:
        The decision. While no profile is live, the oldest profile's QueueSort is used.
    """
    live = [profile for profile in profiles if profile.live is not None]
    if live:
        wanted = {profile.wanted or profile.live for profile in live}
        order = wanted.pop() if len(wanted) == 1 else live[0].live
    else:
        order = next((profile.wanted for profile in profiles if profile.wanted is not None), None)
    ready = frozenset(profile.profile for profile in profiles if profile.wanted is not None and profile.wanted == order)
    deciding = live or [profile for profile in profiles if profile.profile in ready]
    waiting = {
        profile.profile: tuple(
            sorted(
                other.profile
                for other in deciding
                if other.profile != profile.profile and (other.wanted or other.live) != profile.wanted
            )
        )
        for profile in profiles
        if profile.wanted is not None and profile.profile not in ready
    }
    return QueueSortDecision(ready, waiting)
