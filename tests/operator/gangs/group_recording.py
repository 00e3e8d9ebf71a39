"""Sink and observer of groups that record their calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import Problem
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup


class RecordingSink:
    """Sink that records its calls in place of the scheduler's feed.

    Attributes:
        served: APIs whose groups are listed.
        withheld: Reasons why the groups of other APIs are not listed, by API.
        calls: Every call in order: the group that changed, or the key of a deleted one.
        groups: Accepted groups.
    """

    def __init__(self) -> None:
        self.suspension = Suspension()
        self.served: list[GroupSource] = []
        self.withheld: dict[GroupSource, str] = {}
        self.calls: list[PodGroup | CompositePodGroup | GroupKey] = []
        self.groups: dict[GroupKey, PodGroup] = {}

    def serve(self, source: GroupSource) -> None:
        self.served.append(source)
        self.withheld.pop(source, None)

    def withhold(self, source: GroupSource, reason: str) -> None:
        self.withheld[source] = reason

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        self.calls.append(group)
        if isinstance(group, PodGroup):
            self.groups[group.key] = group

    def group_deleted(self, key: GroupKey) -> None:
        self.calls.append(key)
        self.groups.pop(key, None)

    def group_refused(self, key: GroupKey, problems: Iterable[Problem]) -> None:
        del key, problems


class RecordingObserver:
    """Observer in place of the status controller.

    Attributes:
        calls: One line for each call.
        versions: Version of each object with a call of :meth:`known`.
        warnings: The last warnings of each object.
    """

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.warnings: dict[GroupKey, tuple[Problem, ...]] = {}
        self.calls: list[str] = []

    def warned(self, key: GroupKey, warnings: Sequence[Problem]) -> None:
        self.warnings[key] = tuple(warnings)

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any], *, version: str = "") -> None:
        self.versions.append(version)
        self.calls.append(f"known {key} {uid} {generation} {dict(status)}")

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        self.calls.append(f"invalid {key} {uid} {generation} {' '.join(problem.path for problem in problems)}")

    def gone(self, key: GroupKey) -> None:
        self.calls.append(f"gone {key}")
