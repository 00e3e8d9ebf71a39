"""Case during generation: its random generator, its objects, and quantities in every notation."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOST = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
RACK = "example.com/rack"
APPS = ["web", "api", "db", "cache", "batch"]
TIERS = ["front", "back", "data"]
TEAMS = ["red", "green", "blue"]

PRIORITY_CLASSES = [
    ("floor", -100, None),
    ("background", -5, None),
    ("normal", 0, None),
    ("batch", 10, None),
    ("standard", 100, None),
    ("high", 1000, None),
    ("high-gentle", 1000, "Never"),
    ("top", 100000, None),
    ("system-node-critical", 2000001000, None),
]

Decorate = Callable[["World", Json], None]


class World:
    """Case during generation."""

    def __init__(self, family: str, seed: int, index: int) -> None:
        self.r = random.Random(f"{seed}/{family}/{index}")
        self.family = family
        self.name = f"{family}-{seed}-{index:04d}"
        self.free: dict[str, list[int]] = {}  # node -> approximately free [milli-CPUs, mebibytes, pods]
        self.nodes: list[Json] = []
        self.pods: list[Json] = []
        self.namespaces: list[Json] = []
        self.pvs: list[Json] = []
        self.pvcs: list[Json] = []
        self.classes: list[Json] = []
        self.csinodes: list[Json] = []
        self.csidrivers: list[Json] = []
        self.capacities: list[Json] = []
        self.attachments: list[Json] = []
        self.pdbs: list[Json] = []
        self.services: list[Json] = []
        self.rss: list[Json] = []
        self.rcs: list[Json] = []
        self.stss: list[Json] = []
        self.resource_claims: list[Json] = []
        self.resource_slices: list[Json] = []
        self.device_classes: list[Json] = []
        self.pod: Json = {}
        self.profile: Json | None = None
        self.feature_gates: dict[str, bool] = {}
        self.starts = self.r.sample(range(2_000_000), 400)
        self.serial = 0

    def p(self, chance: float) -> bool:
        """Return True with a probability."""
        return self.r.random() < chance

    def pick(self, seq: Any) -> Any:
        """Return a random element."""
        return self.r.choice(list(seq))

    def some(self, seq: Any, lo: int, hi: int) -> list[Any]:
        """Return random elements without repetition."""
        seq = list(seq)
        return self.r.sample(seq, min(len(seq), self.r.randint(lo, hi)))

    def uid(self, prefix: str) -> str:
        """Return a new UID."""
        self.serial += 1
        return f"{prefix}-{self.serial:04d}-{self.r.getrandbits(32):08x}"

    def start(self) -> str:
        """Return a unique start time, so that preemption has no ties."""
        s = self.starts.pop()
        h, rest = divmod(s, 3600)
        m, sec = divmod(rest, 60)
        d, h = divmod(h, 24)
        return f"2026-03-{1 + d:02d}T{h:02d}:{m:02d}:{sec:02d}Z"

    def case(self) -> Json:
        """Return the case as a document."""
        out = {
            "name": self.name,
            "family": self.family,
            "nodes": self.nodes,
            "pods": self.pods,
            "namespaces": self.namespaces,
            "pod": self.pod,
        }
        used = {p["spec"].get("priorityClassName") for p in [*self.pods, self.pod]}
        pcs = []
        for name, value, policy in PRIORITY_CLASSES:
            if name in used:
                pc = {"metadata": {"name": name}, "value": value}
                if policy:
                    pc["preemptionPolicy"] = policy
                pcs.append(pc)
        extras = (
            ("priorityclasses", pcs),
            ("pvs", self.pvs),
            ("pvcs", self.pvcs),
            ("storageclasses", self.classes),
            ("csinodes", self.csinodes),
            ("csidrivers", self.csidrivers),
            ("csistoragecapacities", self.capacities),
            ("volumeattachments", self.attachments),
            ("pdbs", self.pdbs),
            ("services", self.services),
            ("replicasets", self.rss),
            ("replicationcontrollers", self.rcs),
            ("statefulsets", self.stss),
            ("resourceclaims", self.resource_claims),
            ("resourceslices", self.resource_slices),
            ("deviceclasses", self.device_classes),
            ("profile", self.profile),
            ("featureGates", self.feature_gates),
        )
        return out | {key: val for key, val in extras if val}


def cpu(w: World, milli: int) -> str:
    """Return milli-CPUs in a random notation."""
    forms = [f"{milli}m"]
    if milli % 1000 == 0:
        forms += [str(milli // 1000)] * 3
    elif milli % 100 == 0:
        forms.append(f"{milli / 1000:.1f}")
    return str(w.pick(forms))


def mem(w: World, mi: int) -> str:
    """Return mebibytes in a random notation."""
    forms = [f"{mi}Mi"] * 6
    if mi and mi % 1024 == 0:
        forms += [f"{mi // 1024}Gi"] * 6
    forms.append(str(mi * 1024 * 1024))
    if w.p(0.1):
        forms += [f"{mi}M", f"{mi * 1000}k", f"{mi}e6"]
    return str(w.pick(forms))
