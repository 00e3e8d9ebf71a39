"""Families ``preemption`` and ``gates``: full clusters, and pods with scheduling gates."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, new_pod, run_on, target
from tests.parity.oracle.generation.node_rules import put_ports, put_taints
from tests.parity.oracle.generation.world import APPS, HOST, TIERS, ZONE, Json, World


def pdb(w: World, i: int, ns: str, selector: Json, allowed: int) -> None:
    """Add a PodDisruptionBudget."""
    w.pdbs.append(
        {
            "metadata": {"name": f"pdb-{i}", "namespace": ns, "uid": w.uid("pdb")},
            "spec": {"selector": selector, "minAvailable": 1},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3},
        }
    )


def fam_preemption(w: World) -> None:
    """Generate a case of the family ``preemption``."""
    cluster(w, 3, 9, tight=w.p(0.4), extended=0.3 if w.p(0.3) else 0.0, namespaces=w.r.randint(1, 2))
    ladder = w.pick(
        [
            ["normal", "batch", "standard"],
            ["floor", "background", "normal"],
            ["standard", "high", "top"],
            ["normal", "normal", "high", "system-node-critical"],
        ]
    )
    mode = w.pick(["cpu"] * 9 + ["pods"] * 3 + ["ports"] * 2 + ["anti"] * 3 + ["spread"] * 2 + ["victimanti"] * 3)
    labels = {"app": w.pick(APPS), "tier": w.pick(TIERS)}

    def decorate(w: World, pod: Json) -> None:
        if mode == "ports" and w.p(0.9):
            put_ports(w, pod, False)
        elif mode == "victimanti" and w.p(0.7):
            pod["spec"]["affinity"] = {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": w.pick([HOST, HOST, ZONE]),
                            "labelSelector": {"matchLabels": {"app": labels["app"]}},
                            **({"namespaceSelector": {}} if w.p(0.8) else {}),
                        }
                    ]
                }
            }
        if w.p(0.85 if mode in ("anti", "spread") else 0.4):
            pod["metadata"]["labels"]["app"] = labels["app"]
        if w.p(0.15):
            pod["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = 30

    fill(w, 8 if mode == "cpu" else 25, 45, level=1.0, decorate=decorate, overcommit=0.0, prio=lambda: w.pick(ladder))
    # The nodes are filled, so that the pod does not fit without preemption.
    if mode in ("cpu", "anti", "spread", "victimanti") and w.p(0.9 if mode == "cpu" else 0.4):
        for i, n in enumerate(w.nodes):
            name = n["metadata"]["name"]
            f = w.free[name]
            while f[0] > 400 and f[2] > 0 and len(w.pods) < 57 and w.p(0.95):
                c = min(f[0], w.pick([300, 500, 1000, 1000] if f[0] < 5000 else [1000, 2000, 3000]))
                pod = new_pod(w, f"top-{i}-{f[0]}", c=c, m=min(64, max(f[1], 0)), prio=w.pick(ladder))
                decorate(w, pod)
                f[0] -= c
                f[2] -= 1
                run_on(w, pod, name)
    if mode == "pods":
        for n in w.nodes:
            name = n["metadata"]["name"]
            n["status"]["allocatable"]["pods"] = n["status"]["capacity"]["pods"] = str(
                max(1, sum(1 for p in w.pods if p["spec"]["nodeName"] == name) + (w.p(0.05)))
            )
    mine = w.pick(["high", "top", "top", "top", "standard", "system-node-critical", "high-gentle", "normal"])
    target(
        w,
        c=w.pick(
            [1000, 1500, 2000, 3000, 3500, 5000]
            if mode == "cpu"
            else [500, 1000]
            if mode in ("pods", "ports")
            else [50, 100, 500, 1500]
        ),
        m=w.pick([64, 256, 1024]),
        labels=dict(labels),
        prio=mine,
        ns="default" if mode == "spread" else None,
    )
    _need(w, mode, labels)
    if w.p(0.15):
        put_taints(w, 0.4)
    _surround(w, labels)


def _need(w: World, mode: str, labels: dict[str, str]) -> None:
    """Add requirements that only preemption can meet."""
    if mode == "ports":
        put_ports(w, w.pod, True)
    elif mode == "anti":
        w.pod["spec"]["affinity"] = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": w.pick([HOST] * 5 + [ZONE]),
                        "labelSelector": {"matchLabels": {"app": labels["app"]}},
                        **({"namespaceSelector": {}} if w.p(0.5) else {}),
                    }
                ]
            }
        }
    elif mode == "spread":
        key = w.pick([HOST, ZONE, ZONE])
        w.pod["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": w.pick([1, 1, 2]),
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": labels["app"]}},
                **({"minDomains": 5} if w.p(0.3) else {}),
            }
        ]
        if key == ZONE and w.p(0.6):
            # A feasible node already runs pods with the labels of the pod.
            w.pod["spec"]["nodeSelector"] = {ZONE: "zone-a"}
            w.pod["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore"
            for pod in w.pods:
                here = next(
                    (
                        n["metadata"]["labels"].get(ZONE)
                        for n in w.nodes
                        if n["metadata"]["name"] == pod["spec"]["nodeName"]
                    ),
                    None,
                )
                pod["metadata"]["labels"]["app"] = labels["app"] if here == "zone-a" else "other"
                pod["metadata"]["namespace"] = "default"


def _surround(w: World, labels: dict[str, str]) -> None:
    """Add budgets, pods with nominated nodes, and a nomination of the pod."""
    r = w.r
    if w.p(0.55):
        for i in range(r.randint(1, 3)):
            sel = w.pick(
                [
                    {"matchLabels": {"app": w.pick(APPS)}},
                    {"matchLabels": {"app": labels["app"]}},
                    {"matchExpressions": [{"key": "tier", "operator": "In", "values": w.some(TIERS, 1, 2)}]},
                    {},
                ]
            )
            pdb(w, i, w.pick(w.namespaces)["metadata"]["name"], sel, w.pick([0, 0, 0, 1, 2]))
        if w.p(0.2) and w.pods:
            v = w.pick(w.pods)
            w.pdbs[0]["status"]["disruptedPods"] = {v["metadata"]["name"]: "2026-03-20T00:00:00Z"}
    if w.p(0.25):
        # These pods wait for the termination of their victims.
        for i in range(r.randint(1, 2)):
            nom = new_pod(
                w, f"waiting-{i}", c=w.pick([250, 500, 1000]), m=64, prio=w.pick(["normal", "high", "top", "batch"])
            )
            nom["status"].update({"phase": "Pending", "nominatedNodeName": w.pick(w.nodes)["metadata"]["name"]})
            w.pods.append(nom)
    if w.p(0.12):
        node = w.pick(w.nodes)["metadata"]["name"]
        w.pod["status"]["nominatedNodeName"] = node if w.p(0.9) else "gone"
        for pod in w.pods:
            if pod["spec"].get("nodeName") == node and w.p(0.3):
                pod["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
                pod["metadata"]["deletionGracePeriodSeconds"] = 30
                if w.p(0.5):
                    pod["status"]["conditions"] = [
                        {
                            "type": "DisruptionTarget",
                            "status": "True",
                            "reason": w.pick(["PreemptionByScheduler", "EvictionByEvictionAPI"]),
                            "lastTransitionTime": "2026-03-25T00:00:00Z",
                        }
                    ]


def gates(w: World) -> list[Json]:
    """Generate scheduling gates."""
    return [{"name": g} for g in w.some(["example.com/quota", "example.com/license", "warmup"], 1, 3)]


def fam_gates(w: World) -> None:
    """Generate a case of the family ``gates``."""
    cluster(w, 3, 10, tight=w.p(0.4))
    fill(w, 5, 40, level=1.0)
    target(w, c=w.pick([250, 1000, 2000, 3500]))
    if w.p(0.4):
        w.pod["spec"]["schedulingGates"] = gates(w)
    for i in range(w.pick([0, 1, 2])):
        pend = new_pod(w, f"pending-{i}", c=1000, m=256, prio=w.pick(["normal", "high"]))
        pend["status"]["phase"] = "Pending"
        if w.p(0.5):
            pend["spec"]["schedulingGates"] = gates(w)
        elif w.p(0.5):
            pend["status"]["nominatedNodeName"] = w.pick(w.nodes)["metadata"]["name"]
        w.pods.append(pend)
