"""Planted bugs in the handling of gangs by owner; see :mod:`tests.simulation.planted_bugs`.

Each lets a PodGroup differ from its owner, outlive it or end before it, or counts too few members.
"""

from __future__ import annotations

from typing import Any

from bayplan.gangs import owner_groups
from bayplan.gangs.owner_groups import OwnerGroups, OwnersOfKind

from scheduler_core.queueing.gang_registry import Gangs
from tests.simulation.planted_bugs import Bug, Original, _patched, _skipped


def _of_any_owner(original: Original) -> Original:
    del original
    return lambda *_: True


def _of_any_uid(original: Original) -> Original:
    def find(self: OwnerGroups, instance: Any) -> Any:
        found = self._owners_of(instance.rule).by_name.get((instance.key.namespace, instance.owner_name))
        return original(self, instance) if found is None else found

    return find


def _without_ended(original: Original) -> Original:
    def ended_of_owners(self: Gangs, profile: str) -> list[Any]:
        return [pod for pod in original(self, profile) if pod.metadata.owner_references]

    return ended_of_owners


def _owned_by_no_one(original: Original) -> Original:
    del original
    return lambda *_: False


OWNER_BUGS: dict[str, Bug] = {
    "a change of an owner does not change minMember": _skipped(OwnersOfKind, "updated"),
    "a gang is not reconciled when its owner is received": _skipped(OwnerGroups, "_owner_changed"),
    "a failed write of a PodGroup is not repeated": _skipped(OwnerGroups, "_retry"),
    "a PodGroup of an earlier owner is kept": lambda: _patched(owner_groups, "_is_owned", _of_any_owner),
    "a PodGroup of the owner is deleted": lambda: _patched(owner_groups, "_is_owned", _owned_by_no_one),
    "an orphaned PodGroup is not deleted": _skipped(OwnerGroups, "_check"),
    "an owner of another UID has the pods": lambda: _patched(OwnerGroups, "_owner", _of_any_uid),
    "ended pods without owner reference do not count after a restart": lambda: _patched(
        Gangs, "ended_of_owners", _without_ended
    ),
}
"""Planted bugs by the defect that they cause."""
