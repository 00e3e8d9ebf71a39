"""Families ``taints``, ``nodeaffinity`` and ``ports``: rules that depend on the node."""

from __future__ import annotations

from collections.abc import Sequence

from tests.parity.oracle.generation.clusters import cluster, fill, profile, target
from tests.parity.oracle.generation.requests import weights
from tests.parity.oracle.generation.world import ARCH, HOST, ZONE, Json, World

TAINT_KEYS = ["dedicated", "example.com/maintenance", "node.kubernetes.io/not-ready", "gpu", "spot"]


def taint(
    w: World, effects: Sequence[str] = ("NoSchedule", "NoSchedule", "PreferNoSchedule", "PreferNoSchedule", "NoExecute")
) -> Json:
    """Generate a taint."""
    t = {"key": w.pick(TAINT_KEYS), "effect": w.pick(effects)}
    if w.p(0.7):
        t["value"] = w.pick(["a", "b", "true", "5"])
    return t


def toleration(w: World) -> Json:
    """Generate a toleration."""
    t = {}
    if w.p(0.06):
        t["operator"] = "Exists"
        if w.p(0.7):
            t["effect"] = w.pick(["NoSchedule", "PreferNoSchedule", "NoExecute"])
    else:
        t["key"] = w.pick(TAINT_KEYS)
        op = w.pick(["Exists", "Exists", "Equal", None])
        if op:
            t["operator"] = op
        if op != "Exists" and w.p(0.85):
            t["value"] = w.pick(["a", "b", "true", "5"])
        if w.p(0.6):
            t["effect"] = w.pick(["NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute"])
    if t.get("effect") == "NoExecute" and w.p(0.4):
        t["tolerationSeconds"] = w.pick([0, 30, 300])
    return t


def put_taints(w: World, share: float, effects: Sequence[str] | None = None) -> None:
    """Add taints to a share of the nodes."""
    for n in w.nodes:
        if w.p(share):
            seen, ts = set(), []
            for t in (taint(w, effects) if effects else taint(w) for _ in range(w.r.randint(1, 3))):
                if (t["key"], t["effect"]) not in seen:
                    seen.add((t["key"], t["effect"]))
                    if t["effect"] == "NoExecute":
                        t["timeAdded"] = "2026-03-01T00:00:00Z"
                    ts.append(t)
            n["spec"]["taints"] = ts


def add_tolerations(w: World, pod: Json, hi: int) -> None:
    """Add up to ``hi`` tolerations to a pod."""
    have = pod["spec"].setdefault("tolerations", [])
    for _ in range(w.r.randint(0, hi)):
        t = toleration(w)
        if t not in have:
            have.append(t)


def fam_taints(w: World) -> None:
    """Generate a case of the family ``taints``."""
    cluster(w, 3, 16)
    fill(w, 0, 20, level=0.6)
    if w.p(0.35):
        put_taints(w, 1.0, ["NoSchedule", "NoExecute", "NoExecute"])
    else:
        put_taints(w, w.pick([0.3, 0.6, 0.9, 1.0]))
    target(w, small=True)
    add_tolerations(w, w.pod, w.pick([1, 2, 5, 8]))
    if w.p(0.15):
        profile(w, plugins=weights(w, ["TaintToleration"], 1))


def requirement(w: World) -> Json:
    """Generate a requirement on node labels."""
    key = w.pick(["disk", "disk", "gen", "gen", "pool", ZONE, ARCH, HOST, "missing"])
    values = {
        "disk": ["ssd", "hdd", "nvme", "tape"],
        "gen": ["1", "2", "3", "5", "10", "x7", "007"],
        "pool": ["general", "spot", "gpu"],
        ZONE: ["zone-a", "zone-b", "zone-c", "zone-d"],
        ARCH: ["amd64", "arm64"],
        HOST: [n["metadata"]["name"] for n in w.nodes],
        "missing": ["1", "x"],
    }[key]
    ops = ["In", "In", "NotIn", "Exists", "DoesNotExist"] + (
        ["Gt", "Lt", "Gt", "Lt"] if key == "gen" else ["Gt"] if w.p(0.1) else []
    )
    op = w.pick(ops)
    q = {"key": key, "operator": op}
    if op in ("In", "NotIn"):
        q["values"] = w.some(values, 1, 3)
    elif op in ("Gt", "Lt"):
        q["values"] = [str(w.pick([0, 1, 2, 3, 7, 11]))]
    return q


def node_term(w: World, fields: float = 0.15, width: int = 2) -> Json:
    """Generate a node selector term."""
    t: Json = {}
    if w.p(0.03):
        return t  # matches nothing
    if w.p(fields):
        t["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": w.pick(["In", "In", "NotIn"]),
                "values": [w.pick(w.nodes)["metadata"]["name"] if w.p(0.9) else "ghost"],
            }
        ]
        if w.p(0.6):
            return t
    t["matchExpressions"] = [requirement(w) for _ in range(w.r.randint(1, width))]
    return t


def node_affinity(w: World, pod: Json, required: float = 0.6, preferred: float = 0.6, selector: float = 0.25) -> None:
    """Add node affinity to a pod."""
    spec = pod["spec"]
    na: Json = {}
    if w.p(required):
        na["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [node_term(w) for _ in range(w.r.randint(1, 3))]
        }
    if w.p(preferred):
        na["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": w.r.randint(1, 100), "preference": node_term(w, fields=0.1)} for _ in range(w.r.randint(1, 4))
        ]
    if na:
        spec.setdefault("affinity", {})["nodeAffinity"] = na
    if w.p(selector):
        keys = w.some(["disk", "pool", ARCH, ZONE], 1, 2 if w.p(0.3) else 1)
        vals = {
            "disk": ["ssd", "hdd"],
            "pool": ["general", "gpu"],
            ARCH: ["amd64", "amd64", "arm64"],
            ZONE: ["zone-a", "zone-b"],
        }
        spec["nodeSelector"] = {k: w.pick(vals[k]) for k in keys}


def fam_nodeaffinity(w: World) -> None:
    """Generate a case of the family ``nodeaffinity``."""
    cluster(w, 4, 20, odd_hosts=0.1)
    fill(w, 0, 20, level=0.6)
    target(w, small=True)
    node_affinity(w, w.pod)
    if w.p(0.12):
        # Every term names one node, so that PreFilter restricts the nodes.
        spec = w.pod["spec"]
        names = w.some([n["metadata"]["name"] for n in w.nodes] + ["ghost"], 1, 2)
        spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})[
            "requiredDuringSchedulingIgnoredDuringExecution"
        ] = {
            "nodeSelectorTerms": [
                {
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": [n]}],
                    **({"matchExpressions": [requirement(w)]} if w.p(0.3) else {}),
                }
                for n in names
            ]
        }
    if w.p(0.25):
        added: Json = {}
        if w.p(0.6):
            added["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [node_term(w) for _ in range(w.r.randint(1, 2))]
            }
        if w.p(0.6) or not added:
            added["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": w.r.randint(1, 100), "preference": node_term(w, fields=0)} for _ in range(w.r.randint(1, 2))
            ]
        profile(w, args={"NodeAffinity": {"addedAffinity": added}}, plugins=weights(w, ["NodeAffinity"], 0.4))


def put_ports(w: World, pod: Json, incoming: bool) -> None:
    """Add host ports to a pod."""
    spec = pod["spec"]
    spec["containers"][0].setdefault("ports", [])
    used = set()
    hostnet = w.p(0.08)
    cts = [spec["containers"][0]]
    if w.p(0.15):
        spec.setdefault("initContainers", []).append(
            {"name": "proxy", "image": "proxy:1", **({"restartPolicy": "Always"} if w.p(0.6) else {})}
        )
        cts.append(spec["initContainers"][-1])
    if w.p(0.2):
        spec["containers"].append({"name": "extra", "image": "extra:1"})
        cts.append(spec["containers"][-1])
    for ct in cts:
        for _ in range(w.r.randint(1, 3 if incoming else 2)):
            port, proto = w.pick([80, 443, 8080, 9090, 53]), w.pick(["TCP", "TCP", "TCP", "UDP", "SCTP", None])
            ip = w.pick(
                [
                    None,
                    None,
                    None,
                    "0.0.0.0",  # noqa: S104 - a host port of a pod, nothing listens
                    "127.0.0.1",
                    "10.0.0.7",
                    "10.0.0.8",
                ]
            )
            if (port, proto or "TCP") in used:
                continue
            used.add((port, proto or "TCP"))
            e = {"containerPort": port, "hostPort": port}
            if w.p(0.08) and not hostnet:
                e.pop("hostPort")
            elif ip:
                e["hostIP"] = ip
            if proto:
                e["protocol"] = proto
            ct.setdefault("ports", []).append(e)
    if hostnet:
        spec["hostNetwork"] = True


def declared_features(w: World) -> None:
    """Let the pod require features that only some kubelets declare."""
    for n in w.nodes:
        if w.p(0.6):
            n["status"]["declaredFeatures"] = (
                ["RestartAllContainersOnContainerExits"] if w.p(0.7) else ["ExtendWebSocketsToKubelet"]
            )
    w.pod["spec"]["containers"][0].update(
        {
            "restartPolicy": "Never",
            "restartPolicyRules": [
                {
                    "action": w.pick(["RestartAllContainers", "RestartAllContainers", "Restart"]),
                    "exitCodes": {"operator": "In", "values": [42]},
                }
            ],
        }
    )


def fam_ports(w: World) -> None:
    """Generate a case of the family ``ports``."""
    cluster(w, 3, 12)

    def decorate(w: World, pod: Json) -> None:
        if w.p(0.6):
            put_ports(w, pod, False)

    fill(w, 3, 40, level=0.8, decorate=decorate)
    for n in w.nodes:
        if w.p(0.2):
            n["spec"]["unschedulable"] = True
            if w.p(0.6):
                n["spec"]["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        elif w.p(0.03):
            n["spec"]["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    target(w, small=True, prio=w.pick(["normal", "normal", "standard", "high"]))
    if w.p(0.85):
        put_ports(w, w.pod, True)
    if w.p(0.3):
        w.pod["spec"].setdefault("tolerations", []).append(
            w.pick(
                [
                    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"},
                    {"operator": "Exists"},
                ]
            )
        )
    if w.p(0.25):
        name = w.pick(w.nodes)["metadata"]["name"] if w.p(0.9) else "ghost"
        w.pod["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
                    ]
                }
            }
        }
    if w.p(0.12):
        declared_features(w)
