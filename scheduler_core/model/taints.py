"""Taints and tolerations.

Follows kube-scheduler v1.37.1 (``k8s.io/component-helpers/scheduling/corev1``, ``k8s.io/api/core/v1/toleration.go``):
the ``Lt`` and ``Gt`` operators of tolerations are behind a feature gate that is off, so they tolerate nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"

TAINT_NODE_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class Taint(Struct, gc=False, frozen=True, rename="camel"):
    """An entry of a node's ``spec.taints``; ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class Toleration(Struct, gc=False, frozen=True, rename="camel"):
    """A toleration of a pod or a device request: an empty key matches all keys, an empty effect all effects."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


class TolerationIndex:
    """Index of tolerations, for comparisons with many taints: its time does not depend on the number of tolerations."""

    __slots__ = ("_equal", "_exists")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        self._exists: set[tuple[str, str]] = set()
        self._equal: set[tuple[str, str, str]] = set()
        for each in tolerations:
            if each.operator in ("", "Equal"):
                self._equal.add((each.key, each.effect, each.value))
            elif each.operator == "Exists":
                self._exists.add((each.key, each.effect))

    def tolerates(self, taint: Taint) -> bool:
        exists, equal, value = self._exists, self._equal, taint.value
        return any(
            (key, effect) in exists or (key, effect, value) in equal
            for key in (taint.key, "")
            for effect in (taint.effect, "")
        )


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)
