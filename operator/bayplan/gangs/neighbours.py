"""Whose a PodGroup's status is where several processes serve a part of the profiles each.

Owns that rule. It must not know how statuses are made or written. Why one writer and not all: the counts and the reason
why a gang waits are known only to the process whose queue holds its members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang import Gang


class Neighbours(Struct, frozen=True):
    """What other processes do for groups, of which this one knows by what they have written.

    Attributes:
        shown: The status of an object as it was last shown; None for one that is not known.
        serves: Whether this process serves a scheduler name; None where no process does.
    """

    shown: Callable[[GroupKey], Mapping[str, Any] | None]
    serves: Callable[[str], bool | None]

    def write(self, gang: Gang | None) -> bool:
        """Whether a gang's status is another process's: of the names that members ask for, the first served decides.

        A group whose members nobody serves, or that has none, is everybody's: each process would write the same.
        """
        names = set() if gang is None else {pod.spec.scheduler_name for pod in gang.pods.values()}
        served = [self.serves(name) for name in sorted(names)]
        return next((not here for here in served if here is not None), False)
