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
    """An entry of ``spec.tolerations``: an empty key with Exists matches all keys, an empty effect all effects."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether this toleration matches ``taint``."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether any of ``tolerations`` matches ``taint``."""
    return any(toleration.tolerates(taint) for toleration in tolerations)
