"""Who takes groups and who observes them, both noting what they are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scheduler_core.errors import Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup


class RecordingTaker:
    """In the core's place.

    Attributes:
        served: Sources whose groups are known.
        withheld: Why those of others are not.
        told: Every call in order: the group that changed, or the key of one that is gone.
        groups: What is in force.
    """

    def __init__(self) -> None:
        self.served: list[GroupSource] = []
        self.withheld: dict[GroupSource, str] = {}
        self.told: list[PodGroup | GroupKey] = []
        self.groups: dict[GroupKey, PodGroup] = {}

    def serve(self, source: GroupSource) -> None:
        self.served.append(source)
        self.withheld.pop(source, None)

    def withhold(self, source: GroupSource, reason: str) -> None:
        self.withheld[source] = reason

    def group_changed(self, group: PodGroup) -> None:
        self.told.append(group)
        self.groups[group.key] = group

    def group_deleted(self, key: GroupKey) -> None:
        self.told.append(key)
        del self.groups[key]


class RecordingObserver:
    """In the place of who writes statuses.

    Attributes:
        told: One line for each call.
    """

    def __init__(self) -> None:
        self.told: list[str] = []

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any]) -> None:
        self.told.append(f"known {key} {uid} {generation} {dict(status)}")

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        self.told.append(f"invalid {key} {uid} {generation} {' '.join(problem.path for problem in problems)}")

    def gone(self, key: GroupKey) -> None:
        self.told.append(f"gone {key}")
