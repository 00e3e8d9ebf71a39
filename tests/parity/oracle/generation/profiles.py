"""Families ``profiles`` and ``mixed``: other plugins, and all features together."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, new_pod, profile, run_on, target
from tests.parity.oracle.generation.node_rules import (
    add_tolerations,
    declared_features,
    node_affinity,
    put_ports,
    put_taints,
)
from tests.parity.oracle.generation.pod_rules import pod_affinity
from tests.parity.oracle.generation.preemption import pdb
from tests.parity.oracle.generation.requests import fit_args, more_resources, weights
from tests.parity.oracle.generation.spreading import spread_constraints, workload_of
from tests.parity.oracle.generation.storage import DRIVERS, storage_class
from tests.parity.oracle.generation.volumes import volumes_of_kind
from tests.parity.oracle.generation.world import APPS, TIERS, Json, World

SCORERS = [
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "PodTopologySpread",
    "InterPodAffinity",
    "ImageLocality",
]
FILTERS = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
]


def any_profile(w: World, name: str = "default-scheduler") -> None:
    """Add a profile with other plugins."""
    kind = w.pick(
        [
            "weights",
            "scoreonly",
            "noscore",
            "nofilter",
            "multipoint",
            "rebuilt",
            "rebuilt",
            "nopostfilter",
            "prefilteroff",
        ]
    )
    if kind == "weights":
        pl = weights(w, SCORERS, 0.5)
        profile(w, plugins=pl or {"score": {"disabled": [{"name": "ImageLocality"}]}}, name=name)
    elif kind == "scoreonly":
        en = [{"name": n, **({"weight": w.pick([1, 2, 7, 50])} if w.p(0.8) else {})} for n in w.some(SCORERS, 1, 4)]
        profile(w, plugins={"score": {"disabled": [{"name": "*"}], "enabled": en}}, name=name)
    elif kind == "noscore":
        profile(
            w, plugins={"score": {"disabled": [{"name": "*"}]}, "preScore": {"disabled": [{"name": "*"}]}}, name=name
        )
    elif kind == "nofilter":
        off = [{"name": n} for n in w.some(FILTERS, 1, 4)]
        profile(w, plugins={"filter": {"disabled": off}}, name=name)
    elif kind == "prefilteroff":
        # Without PreFilter, Filter checks nodes that PreFilter excludes.
        off = [{"name": n} for n in w.some(["NodeAffinity", "NodePorts", "NodeResourcesFit"], 1, 1)]
        profile(w, plugins={"preFilter": {"disabled": off}, "filter": {"disabled": off}}, name=name)
    elif kind == "multipoint":
        en = [{"name": n, "weight": w.pick([1, 2, 4, 9])} for n in w.some(SCORERS, 1, 4)]
        idle = [n for n in SCORERS if w.p(0.15) and n not in {e["name"] for e in en}]
        pl = {"multiPoint": {"enabled": en, "disabled": [{"name": n} for n in idle]}}
        if w.p(0.4):
            pl["score"] = {"enabled": [{"name": en[0]["name"], "weight": w.pick([3, 30])}]}
        profile(w, plugins=pl, name=name)
    elif kind == "rebuilt":
        scorers = w.some(SCORERS, 1, 6)
        en = [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]
        rest = [{"name": n, **({"weight": w.pick([1, 2, 3, 10])} if w.p(0.7) else {})} for n in scorers]
        rest += [{"name": n} for n in w.some([f for f in FILTERS if f not in scorers], 0, 4)]
        rest += [{"name": n} for n in ("SchedulingGates", "DefaultPreemption") if w.p(0.6)]
        w.r.shuffle(rest)
        profile(w, plugins={"multiPoint": {"enabled": en + rest, "disabled": [{"name": "*"}]}}, name=name)
    else:
        profile(
            w,
            plugins={"postFilter": {"disabled": [{"name": w.pick(["*", "DefaultPreemption", "DynamicResources"])}]}},
            name=name,
        )
    if w.p(0.25):
        profile(w, args={"NodeResourcesFit": fit_args(w)}, name=name)
    if w.p(0.15):
        profile(w, args={"InterPodAffinity": {"hardPodAffinityWeight": w.pick([0, 10, 100])}}, name=name)


def fam_profiles(w: World) -> None:
    """Generate a case of the family ``profiles``."""
    cluster(w, 3, 12, extended=0.2)
    labels = {"app": w.pick(APPS), "tier": w.pick(TIERS), "version": "v1"}

    def decorate(w: World, pod: Json) -> None:
        if w.p(0.25):
            pod_affinity(w, pod, labels, req_aff=0.1, pref_aff=0.4, req_anti=0.15, pref_anti=0.4)
        if w.p(0.2):
            put_ports(w, pod, False)

    fill(w, 3, 35, level=0.9, decorate=decorate)
    put_taints(w, 0.3)
    for n in w.nodes:
        if w.p(0.12):
            n["spec"]["unschedulable"] = True
        if w.p(0.5):
            n["status"]["images"] = [{"names": ["app:v1"], "sizeBytes": 400_000_000}]
    target(w, small=w.p(0.5), labels=labels, prio=w.pick(["normal", "normal", "high"]))
    w.pod["spec"]["containers"][0]["image"] = "app:v1"
    some_features(w, 0.35)
    any_profile(w)
    if w.p(0.3):
        other = "second-scheduler"
        any_profile(w, other)
        if w.p(0.5):
            w.pod["spec"]["schedulerName"] = other
    if w.p(0.2) and w.profile is not None:
        w.profile["percentageOfNodesToScore"] = w.pick([0, 5, 50, 100])


def some_features(w: World, chance: float) -> None:
    """Add random features to the pod."""
    labels = w.pod["metadata"]["labels"]
    if w.p(chance):
        add_tolerations(w, w.pod, 4)
    if w.p(chance):
        node_affinity(w, w.pod, required=0.3, preferred=0.8, selector=0.1)
    if w.p(chance):
        pod_affinity(w, w.pod, None, req_aff=0.1, pref_aff=0.5, req_anti=0.2, pref_anti=0.5)
    if w.p(chance):
        w.pod["spec"]["topologySpreadConstraints"] = spread_constraints(w, labels, hard=0.3)
    if w.p(chance * 0.6):
        put_ports(w, w.pod, True)
    if w.p(chance * 0.6):
        more_resources(w, w.pod, incoming=True)


def fam_mixed(w: World) -> None:
    """Generate a case of the family ``mixed``."""
    cluster(w, 10, 24, extended=0.25, zones=w.r.randint(2, 4), namespaces=w.r.randint(1, 4))
    labels = {"app": w.pick(APPS), "tier": w.pick(TIERS), "version": w.pick(["v1", "v2"])}

    def decorate(w: World, pod: Json) -> None:
        if w.p(0.15):
            pod_affinity(w, pod, labels, req_aff=0.15, pref_aff=0.4, req_anti=0.12, pref_anti=0.4)
        if w.p(0.15):
            put_ports(w, pod, False)
        if w.p(0.15):
            more_resources(w, pod, incoming=False)

    fill(w, 15, 58, level=w.pick([0.7, 0.9, 1.0]), decorate=decorate)
    put_taints(w, w.pick([0.1, 0.3, 0.5]))
    for n in w.nodes:
        if w.p(0.08):
            n["spec"]["unschedulable"] = True
        n["status"]["images"] = [
            {"names": [i], "sizeBytes": s}
            for i, s in (("app:v1", 250_000_000), ("web:2", 60_000_000), ("db:16", 1_100_000_000))
            if w.p(0.4)
        ]
    target(w, labels=labels, small=w.p(0.6), prio=w.pick(["normal", "standard", "high", "top"]))
    some_features(w, 0.4)
    if w.p(0.05):
        declared_features(w)
    if w.p(0.3):
        workload_of(w, w.pod)
    if w.p(0.25):
        storage_class(w, "fast", w.pick(DRIVERS), False)
        volumes_of_kind(w, w.pick(["bound", "bound", "static", "dynamic", "limits", "rwop"]))
    if w.p(0.3):
        for i in range(w.r.randint(1, 2)):
            pdb(
                w,
                i,
                w.pick(w.namespaces)["metadata"]["name"],
                {"matchLabels": {"app": w.pick(APPS)}},
                w.pick([0, 0, 1]),
            )
    if w.p(0.2):
        nom = new_pod(w, "waiting-0", c=w.pick([250, 1000]), m=256, prio=w.pick(["normal", "high", "top"]))
        nom["status"].update({"phase": "Pending", "nominatedNodeName": w.pick(w.nodes)["metadata"]["name"]})
        w.pods.append(nom)
    if w.p(0.05):
        stray = new_pod(w, "stray", c=100, m=64)
        run_on(w, stray, "node-that-left")
    if w.p(0.3):
        any_profile(w)
