"""A PodGroup in a test, its members, and the status that it is told.

Owns how members come, change and go, and that each status starts from the one before, as at the API server. It must not
know which status is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Unpack

from bayplan.gangs.group_status import SeenGroup, group_status
from bayplan.gangs.group_verdict import Verdict

from scheduler_core.errors import Problem
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang import Gang, GangOutcome
from scheduler_core.queueing.gangs import Gangs
from tests.support.builders import PodFields, pod
from tests.support.virtual_clock import VirtualClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LACKS = GangOutcome("Unschedulable", "3 of 4 members fit, 1 lacks cpu.", fitting=3, tried=4)
PLACED = GangOutcome("Scheduled", "4 of 4 members fit into zone=a.", fitting=4, tried=4, domain="zone=a")


FOUR = ("a", "b", "c", "d")


def member(source: GroupSource, name: str, **fields: Unpack[PodFields]) -> Pod:
    """A pod of the group ``train``."""
    if source is GroupSource.NATIVE:
        fields["group"] = "train"
    else:
        fields["labels"] = {POD_GROUP_LABELS[source]: "train"}
    return pod(name, **fields)


@dataclass
class ToldGroup:
    """A PodGroup ``train`` and what becomes of it; its status is kept from step to step as the API server would."""

    source: GroupSource = GroupSource.BAYPLAN
    needed: int = 4
    gangs: Gangs = field(default_factory=lambda: Gangs(VirtualClock()))
    written: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    keeps_start: bool = False
    generation: int = 1
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.gangs.serve(self.source)
        self.key = GroupKey(self.source, "default", "train")
        self.gangs.group_changed(PodGroup(self.key, "uid-of-train", self.needed))

    @property
    def gang(self) -> Gang:
        """What the scheduler knows of it."""
        gang = self.gangs.get(self.key)
        assert gang is not None
        return gang

    def has(self, *names: str, **fields: Unpack[PodFields]) -> ToldGroup:
        """Members are shown so."""
        for name in names:
            self.gangs.saw(member(self.source, name, **fields))
        return self

    def loses(self, *names: str) -> ToldGroup:
        """Members are gone."""
        for name in names:
            self.gangs.lost(f"uid-of-default-{name}")
        return self

    def told(self) -> tuple[Verdict, dict[str, Any]]:
        """Write the status, and give it."""
        seen = SeenGroup(self.key, self.generation, self.written, self.problems, self.keeps_start)
        status = group_status(seen, self.gang, self.now)
        self.written = dict(status.fields)
        return status.verdict, status.fields

    def status(self) -> dict[str, Any]:
        """Write the status, and give its fields."""
        return self.told()[1]

    def phase(self) -> str:
        """Write the status, and give its phase."""
        return str(self.status()["phase"])

    def condition(self, kind: str = "Scheduled") -> dict[str, Any]:
        """Write the status, and give one of its conditions."""
        conditions: dict[str, dict[str, Any]] = {each["type"]: each for each in self.status()["conditions"]}
        return conditions[kind]
