"""Which profiles this process serves at present, and which others do.

Owns the memory of it, by which a change is seen: a profile that was labelled anew comes with a past that another
process has kept, and a name that another process serves is not this one's to write about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.reconcile.desired_state import DesiredState
from bayplan.reconcile.profile_selection import ProfileSelection


class ServedProfiles:
    """What was served last.

    Args:
        selection: The profiles of this process; None for all.

    Attributes:
        elsewhere: Scheduler names that other processes serve.
    """

    def __init__(self, selection: ProfileSelection | None) -> None:
        self.selection = selection
        self.elsewhere: frozenset[str] = frozenset()
        self._here: frozenset[str] = frozenset()
        self._uids: frozenset[str] | None = None

    def has_newcomers(self, profiles: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a profile that existed before has just become one of this process's own.

        Args:
            profiles: All SchedulerProfile objects as the API server gives them.
        """
        if self.selection is None or self._uids is None:
            return False
        for body in profiles:
            metadata = body["metadata"]
            if metadata.get("uid", "") not in self._uids and self.selection.matches(metadata.get("labels") or {}):
                return True
        return False

    def serves(self, scheduler_name: str) -> bool | None:
        """Whether this process serves a name; None where no process does."""
        if scheduler_name in self.elsewhere:
            return False
        return True if scheduler_name in self._here else None

    def noted(self, desired: DesiredState) -> bool:
        """Keep what is served from now on.

        Returns:
            Whether other names are served elsewhere than before.
        """
        changed = desired.elsewhere != self.elsewhere
        self.elsewhere = desired.elsewhere
        self._here = frozenset(profile.scheduler_name for profile in desired.profiles if profile.holds_name)
        self._uids = frozenset(profile.meta.uid for profile in desired.profiles)
        return changed
