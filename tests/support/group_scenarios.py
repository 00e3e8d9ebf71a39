"""A PodGroup, its members, and its computed status.

As with the API server, each status is computed from the previous one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Unpack

from bayplan.gangs.group_phase import Verdict
from bayplan.gangs.group_status import SeenGroup, group_status
from msgspec.structs import replace

from hack.controlplane.api_client import condition_of
from scheduler_core.errors import Problem
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import (
    POD_GROUP_LABELS,
    GroupKey,
    GroupSource,
    MarkedMeta,
    PodAnnotations,
    PodGroup,
)
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.gang_registry import Gangs
from tests.support.builders import PodFields, pod
from tests.support.presence import present
from tests.support.virtual_clock import VirtualClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNSCHEDULABLE = GangOutcome("Unschedulable", "3 of 4 members fit, 1 lacks cpu.", fitting=3)
SCHEDULED = GangOutcome("Scheduled", "4 of 4 members fit into zone=a.", fitting=4, domain="zone=a")
FOUR = ("a", "b", "c", "d")


def member(source: GroupSource, name: str, **fields: Unpack[PodFields]) -> Pod:
    """Return a pod of the group ``train``."""
    if source is GroupSource.VOLCANO:
        made = pod(name, **fields)
        known = {each: getattr(made.metadata, each) for each in ObjectMeta.__struct_fields__ if each != "annotations"}
        return replace(made, metadata=MarkedMeta(**known, annotations=PodAnnotations(volcano="train")))
    if source is GroupSource.NATIVE:
        fields["group"] = "train"
    else:
        fields["labels"] = {POD_GROUP_LABELS[source]: "train"}
    return pod(name, **fields)


@dataclass
class GroupScenario:
    """PodGroup ``train`` with its members; the previous status is the input of the next one."""

    source: GroupSource = GroupSource.BAYPLAN
    min_member: int = 4
    gangs: Gangs = field(default_factory=lambda: Gangs(VirtualClock()))
    written: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    keeps_start: bool = False
    generation: int = 1
    version: str = ""
    now: datetime = NOW

    def __post_init__(self) -> None:
        if self.source is GroupSource.VOLCANO:
            self.gangs.count_volcano()
        self.gangs.serve(self.source)
        self.gangs.follow_runs()
        self.key = GroupKey(self.source, "default", "train")
        self.gangs.group_changed(PodGroup(self.key, "uid-of-train", self.min_member))

    @property
    def gang(self) -> Gang:
        """Gang of the group."""
        return present(self.gangs.get(self.key))

    def add_members(self, *names: str, **fields: Unpack[PodFields]) -> GroupScenario:
        """Add or change members."""
        for name in names:
            self.gangs.saw(member(self.source, name, **fields))
        return self

    def remove_members(self, *names: str) -> GroupScenario:
        """Delete members."""
        for name in names:
            self.gangs.lost(f"uid-of-default-{name}")
        return self

    def write(self) -> tuple[Verdict, dict[str, Any]]:
        """Write the status and return it with the verdict."""
        seen = SeenGroup(self.key, self.generation, self.written, self.problems, self.keeps_start, self.version)
        status = group_status(seen, self.gang, self.now)
        self.written = dict(status.fields)
        return status.verdict, status.fields

    def status(self) -> dict[str, Any]:
        """Write the status and return its fields."""
        return self.write()[1]

    def phase(self) -> str:
        """Write the status and return its phase."""
        return str(self.status()["phase"])

    def condition(self, kind: str = "Scheduled") -> dict[str, Any]:
        """Write the status and return one of its conditions."""
        return condition_of({"status": self.status()}, kind)
