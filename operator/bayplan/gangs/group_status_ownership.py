"""Decides which process writes the status of a PodGroup if several processes serve different profiles.

Only one of them writes, because only the process whose queue holds the members knows their counts and why they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang_members import Gang


class OtherProcesses(Struct, frozen=True):
    """Other processes that write statuses of PodGroups; they communicate only through the objects.

    Attributes:
        status_of: Returns the status of an object as last received; None for an unknown object.
        serves: Returns whether this process serves a scheduler name; None if no process does.
    """

    status_of: Callable[[GroupKey], Mapping[str, Any] | None]
    serves: Callable[[str], bool | None]

    def write(self, gang: Gang | None) -> bool:
        """Return whether another process writes the status of a gang.

        The first schedulerName of its members, in alphabetical order, that any process serves decides. If there is
        none, every process writes the status, since all compute the same.
        """
        names = set() if gang is None else {pod.spec.scheduler_name for pod in gang.pods.values()}
        served = [self.serves(name) for name in sorted(names)]
        return next((not is_here for is_here in served if is_here is not None), False)
