"""Case whose objects change, with the operations that all changes use."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.parity.oracle.generation.world import Json

T = TypeVar("T")


class Scene:
    """Case whose objects change.

    Attributes:
        case: The case, which changes modify.
        rng: Random generator of all choices.
    """

    def __init__(self, case: Json, rng: random.Random) -> None:
        self.case = case
        self.rng = rng

    @property
    def pod(self) -> Json:
        """Return the waiting pod."""
        pod: Json = self.case["pod"]
        return pod

    @property
    def namespace(self) -> str:
        """Return the namespace of the waiting pod."""
        return str(self.pod["metadata"].get("namespace", "default"))

    def p(self, chance: float) -> bool:
        """Return True with a probability."""
        return self.rng.random() < chance

    def pick(self, seq: Sequence[T]) -> T:
        """Return a random element."""
        return self.rng.choice(seq)

    def objects(self, field: str) -> list[Json]:
        """Return the modifiable list of the objects of a field."""
        found: list[Json] = self.case.get(field) or []
        self.case[field] = found
        return found

    def add(self, kind: str, made: Json) -> Json:
        """Return the change that adds an object."""
        made["metadata"]["resourceVersion"] = "7"
        return {"kind": kind, "new": made}

    def delete(self, kind: str, field: str, old: Json) -> Json:
        """Return the change that deletes an object, which is added to the existing objects if it is missing."""
        self._add_if_missing(field, old)
        return {"kind": kind, "old": copy.deepcopy(old)}

    def update(self, kind: str, field: str, old: Json, new: Json) -> Json:
        """Return the change that updates an object."""
        self._add_if_missing(field, old)
        new["metadata"]["resourceVersion"] = "8"
        return {"kind": kind, "old": copy.deepcopy(old), "new": new}

    def _add_if_missing(self, field: str, old: Json) -> None:
        old["metadata"]["resourceVersion"] = "7"
        if field != "pod" and all(each is not old for each in self.objects(field)):
            self.objects(field).append(old)

    def change(
        self, kind: str, field: str, made: Json, alter: Callable[[Scene, Json], None], *, existing: float = 0.6
    ) -> Json:
        """Add, update or delete an existing object or ``made``.

        Args:
            field: Field of the case with such objects.
            made: Object to use unless an existing one is chosen.
            alter: Function that changes an object.
            existing: Probability that an existing object is chosen.
        """
        known = self.objects(field)
        old = self.pick(known) if known and self.p(existing) else made
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
        """Return the topology keys of the pod's affinity and spread constraints."""
        spec = self.pod["spec"]
        keys = [one["topologyKey"] for one in spec.get("topologySpreadConstraints", [])]
        for kind in ("podAffinity", "podAntiAffinity"):
            terms = spec.get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
            keys += [term["topologyKey"] for term in terms]
        return keys

    def matching_labels(self) -> dict[str, str]:
        """Return labels of a pod that match one or all of the selectors."""
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
        """Return the names of the pod's claims."""
        names = []
        for volume in self.pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                names.append(volume["persistentVolumeClaim"]["claimName"])
            elif "ephemeral" in volume:
                names.append(f"{self.pod['metadata']['name']}-{volume['name']}")
        return names
