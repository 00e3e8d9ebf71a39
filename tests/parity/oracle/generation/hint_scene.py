"""A case whose objects are about to change, with the queries that all changes use."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.parity.oracle.generation.world import Json

T = TypeVar("T")


class Scene:
    """A case in the making.

    Attributes:
        case: The case, to be altered freely.
        dice: Decides everything.
    """

    def __init__(self, case: Json, dice: random.Random) -> None:
        self.case = case
        self.dice = dice

    @property
    def pod(self) -> Json:
        """The waiting pod."""
        pod: Json = self.case["pod"]
        return pod

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.pod["metadata"].get("namespace", "default"))

    def p(self, chance: float) -> bool:
        """Return true with a probability."""
        return self.dice.random() < chance

    def pick(self, seq: Sequence[T]) -> T:
        """Draw one."""
        return self.dice.choice(seq)

    def objects(self, field: str) -> list[Json]:
        """Return the existing objects of one field, to be modified."""
        found: list[Json] = self.case.get(field) or []
        self.case[field] = found
        return found

    def add(self, kind: str, made: Json) -> Json:
        """Return the change that adds an object."""
        made["metadata"]["resourceVersion"] = "7"
        return {"kind": kind, "new": made}

    def delete(self, kind: str, field: str, old: Json) -> Json:
        """Return the change that deletes an object; it is added to the existing ones first if it was missing."""
        self._show(field, old)
        return {"kind": kind, "old": copy.deepcopy(old)}

    def update(self, kind: str, field: str, old: Json, new: Json) -> Json:
        """Return the change that updates an object."""
        self._show(field, old)
        new["metadata"]["resourceVersion"] = "8"
        return {"kind": kind, "old": copy.deepcopy(old), "new": new}

    def _show(self, field: str, old: Json) -> None:
        old["metadata"]["resourceVersion"] = "7"
        if field != "pod" and all(each is not old for each in self.objects(field)):
            self.objects(field).append(old)

    def happened(
        self, kind: str, field: str, made: Json, alter: Callable[[Scene, Json], None], *, there: float = 0.6
    ) -> Json:
        """Add, update or delete an existing object or ``made``.

        Args:
            kind: The kind of the object.
            field: The field of the case that has such objects.
            made: The object, unless an existing one is chosen.
            alter: Changes an object.
            there: Chance that an existing one is chosen.
        """
        known = self.objects(field)
        old = self.pick(known) if known and self.p(there) else made
        how = self.pick(["add", "add", "update", "update", "update", "delete"])
        if how == "add":
            self.case[field] = [each for each in known if each is not old]
            return self.add(kind, old)
        if how == "delete":
            return self.delete(kind, field, old)
        if self.p(0.5):
            alter(self, old)
        new = copy.deepcopy(old)
        if self.p(0.15):
            new["metadata"]["finalizers"] = ["example.com/kept"]
        else:
            for _ in range(self.pick([0, 1, 1, 2])):
                alter(self, new)
        return self.update(kind, field, old, new)

    def selectors(self) -> list[Json]:
        """Return the label selectors of the pod's affinity and spread constraints."""
        spec = self.pod["spec"]
        found: list[Any] = [one.get("labelSelector") for one in spec.get("topologySpreadConstraints", [])]
        for kind in ("podAffinity", "podAntiAffinity"):
            terms = spec.get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
            found += [term.get("labelSelector") for term in terms]
        return [one for one in found if one]

    def topology_keys(self) -> list[str]:
        """Return the node labels that they use."""
        spec = self.pod["spec"]
        keys = [one["topologyKey"] for one in spec.get("topologySpreadConstraints", [])]
        for kind in ("podAffinity", "podAntiAffinity"):
            terms = spec.get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
            keys += [term["topologyKey"] for term in terms]
        return keys

    def matching_labels(self) -> dict[str, str]:
        """Return labels of a pod that match one of the selectors, or all of them."""
        labels: dict[str, str] = {}
        selectors = self.selectors()
        if selectors and self.p(0.5):
            selectors = [self.pick(selectors)]
        for selector in selectors:
            labels.update(selector.get("matchLabels", {}))
            for one in selector.get("matchExpressions", []):
                if one["operator"] == "In":
                    labels[one["key"]] = one["values"][0]
                elif one["operator"] == "Exists":
                    labels[one["key"]] = "x"
        return labels

    def claim_names(self) -> list[str]:
        """Return the claims of the pod."""
        names = []
        for volume in self.pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                names.append(volume["persistentVolumeClaim"]["claimName"])
            elif "ephemeral" in volume:
                names.append(f"{self.pod['metadata']['name']}-{volume['name']}")
        return names
