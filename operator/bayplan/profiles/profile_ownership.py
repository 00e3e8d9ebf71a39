"""The profiles that this process serves, and the scheduler names that other processes serve.

They are stored to detect changes: a profile whose label changed has revisions that another process stored, and this
process must not write about a name that another one serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.profiles.desired_profiles import DesiredState
from bayplan.settings.profile_selection import ProfileSelection


class ProfileOwnership:
    """Which process serves which profiles, as of the last reconcile.

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

    def has_new_profiles(self, profiles: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether an existing profile has just been selected for this process.

        Args:
            profiles: All SchedulerProfile objects from the API server.
        """
        if self.selection is None or self._uids is None:
            return False
        for body in profiles:
            metadata = body["metadata"]
            if metadata.get("uid", "") not in self._uids and self.selection.matches(metadata.get("labels") or {}):
                return True
        return False

    def serves(self, scheduler_name: str) -> bool | None:
        """Return whether this process serves a scheduler name; None if no process does."""
        if scheduler_name in self.elsewhere:
            return False
        return True if scheduler_name in self._here else None

    def update(self, desired: DesiredState) -> bool:
        """Store the profiles to serve from now on.

        Returns:
            Whether the names served by other processes have changed.
        """
        changed = desired.elsewhere != self.elsewhere
        self.elsewhere = desired.elsewhere
        self._here = frozenset(profile.scheduler_name for profile in desired.profiles if profile.holds_name)
        self._uids = frozenset(profile.meta.uid for profile in desired.profiles)
        return changed
