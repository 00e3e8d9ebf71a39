"""Generation of nodes, running pods, the pod to schedule, and profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.parity.oracle.generation.world import (
    APPS,
    ARCH,
    HOST,
    PRIORITY_CLASSES,
    RACK,
    REGION,
    TEAMS,
    TIERS,
    ZONE,
    Decorate,
    Json,
    World,
    cpu,
    mem,
)


def cluster(
    w: World,
    lo: int = 3,
    hi: int = 16,
    *,
    extended: float = 0.0,
    tight: bool = False,
    odd_hosts: float = 0.05,
    zones: int | None = None,
    namespaces: int | None = None,
) -> None:
    """Add nodes and namespaces."""
    r = w.r
    n = r.randint(lo, hi)
    zones = zones if zones is not None else r.randint(1, 4)
    uniform = w.p(0.35)
    base = (w.pick([2000, 4000, 8000]), w.pick([4096, 8192, 16384]))
    gap_zone = 0.15 if w.p(0.25) else 0.0
    gap_rack = w.pick([0.0, 0.0, 0.3])
    for i in range(n):
        name = f"n{i:02d}" if w.p(0.8) else f"worker-{i}.example.com"
        if uniform:
            c, m = base
        else:
            c = w.pick([1000, 2000, 3920, 4000, 7910, 8000, 16000])
            m = w.pick([1024, 2048, 3500, 4096, 7900, 8192, 16384, 32768])
        pods = w.pick([3, 5, 8, 110]) if tight else w.pick([8, 20, 110, 110])
        labels = {"kubernetes.io/os": "linux", ARCH: "arm64" if w.p(0.2) else "amd64"}
        if w.p(odd_hosts):
            if w.p(0.7):
                labels[HOST] = f"host-{i}"
        else:
            labels[HOST] = name
        z = i % zones if w.p(0.7) else r.randrange(zones)
        if not w.p(gap_zone):
            labels[ZONE] = f"zone-{'abcd'[z]}"
            labels[REGION] = "east" if z < 2 else "west"
        if not w.p(gap_rack):
            labels[RACK] = f"r{r.randrange(5)}"
        labels["disk"] = w.pick(["ssd", "hdd", "nvme"])
        if w.p(0.7):
            labels["gen"] = w.pick(["1", "2", "3", "5", "10", "12", "x7", "007"])
        if w.p(0.5):
            labels["pool"] = w.pick(["general", "spot", "gpu"])
        alloc = {"cpu": cpu(w, c), "memory": mem(w, m), "pods": str(pods)}
        if w.p(0.85):
            alloc["ephemeral-storage"] = w.pick(["10Gi", "50Gi", "100Gi", "20000000000"])
        if w.p(extended):
            alloc["example.com/gpu"] = str(w.pick([0, 1, 2, 4, 8]))
        if w.p(extended * 0.6):
            alloc["vendor.io/fpga"] = str(w.pick([1, 2, 3]))
        if w.p(extended * 0.4):
            alloc["hugepages-2Mi"] = w.pick(["64Mi", "512Mi", "0"])
        cap = dict(alloc)
        if w.p(0.3):
            cap["cpu"] = cpu(w, c + 500)
        w.nodes.append(
            {
                "metadata": {"name": name, "uid": w.uid("node"), "labels": labels},
                "spec": {},
                "status": {"capacity": cap, "allocatable": alloc, "nodeInfo": node_info(labels[ARCH])},
            }
        )
        w.free[name] = [c, m, pods]
    _add_namespaces(w, namespaces)


def _add_namespaces(w: World, namespaces: int | None) -> None:
    count = namespaces or w.r.randint(1, 3)
    for i, ns in enumerate(["default", "shop", "lab", "ops"][:count]):
        labels = {"kubernetes.io/metadata.name": ns}
        if w.p(0.7):
            labels["team"] = TEAMS[i % 3]
        if w.p(0.4):
            labels["env"] = w.pick(["prod", "test"])
        w.namespaces.append({"metadata": {"name": ns, "labels": labels}})


def node_info(arch: str) -> Json:
    """Return the nodeInfo that a kubelet reports."""
    return {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": "6.8",
        "osImage": "linux",
        "containerRuntimeVersion": "containerd://2.1",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": arch,
    }


def new_pod(
    w: World,
    name: str,
    *,
    c: int | None = None,
    m: int | None = None,
    ns: str | None = None,
    labels: dict[str, str] | None = None,
    prio: str | None = None,
) -> Json:
    """Return a pod that requests up to ``c`` milli-CPUs and ``m`` mebibytes; None means no request."""
    req = {}
    if c is not None:
        req["cpu"] = cpu(w, c)
    if m is not None:
        req["memory"] = mem(w, m)
    ct = {"name": "main", "image": w.pick(["app:v1", "web:2", "db:16"])}
    if req:
        ct["resources"] = {"requests": req}
    if labels is None:
        labels = {"app": w.pick(APPS)}
        if w.p(0.6):
            labels["tier"] = w.pick(TIERS)
        if w.p(0.5):
            labels["version"] = w.pick(["v1", "v2", "v3"])
    cls = prio or ("normal" if w.p(0.8) else w.pick(["batch", "standard", "background"]))
    value, policy = next((v, p) for n, v, p in PRIORITY_CLASSES if n == cls)
    spec = {"containers": [ct], "priority": value}
    if cls != "normal" or w.p(0.3):
        spec["priorityClassName"] = cls
    if policy:
        spec["preemptionPolicy"] = policy
    return {
        "metadata": {
            "name": name,
            "namespace": ns or w.pick(w.namespaces)["metadata"]["name"],
            "uid": w.uid("pod"),
            "labels": labels,
            "creationTimestamp": "2026-02-20T00:00:00Z",
        },
        "spec": spec,
        "status": {},
    }


def run_on(w: World, pod: Json, node: str) -> None:
    """Add a pod that runs on a node."""
    pod["spec"]["nodeName"] = node
    pod["status"].update({"phase": "Running", "startTime": w.start()})
    w.pods.append(pod)


def milli(q: str) -> int:
    """Return the milli-CPUs of a quantity."""
    return int(q[:-1]) if q.endswith("m") else int(float(q) * 1000)


def mebi(q: str) -> int:
    """Return the mebibytes of a quantity, rounded up."""
    for suffix, f in (("Gi", 1024), ("Mi", 1), ("M", 0.954), ("k", 0.000954), ("e6", 0.954)):
        if q.endswith(suffix):
            return int(float(q[: -len(suffix)]) * f) + 1
    return int(q) >> 20


def fill(
    w: World,
    lo: int = 0,
    hi: int = 40,
    *,
    level: float | None = None,
    decorate: Decorate | None = None,
    overcommit: float = 0.03,
    prio: Callable[[], str] | None = None,
) -> None:
    """Add running pods, most of them to nodes with enough free resources."""
    r = w.r
    count = r.randint(lo, hi)
    level = level if level is not None else r.uniform(0.3, 1.0)
    keep = {n: [f[0] * (1 - level), f[1] * (1 - level), 0] for n, f in w.free.items()}
    names = [n["metadata"]["name"] for n in w.nodes]
    for i in range(count):
        best_effort = w.p(0.08)
        c = None if best_effort or w.p(0.05) else w.pick([50, 100, 250, 300, 500, 1000, 1500, 2000])
        m = None if best_effort or w.p(0.05) else w.pick([64, 128, 256, 500, 512, 1024, 2048])
        pod = new_pod(w, f"run-{i:02d}", c=c, m=m, prio=prio() if prio else None)
        if decorate:
            decorate(w, pod)
        node = None
        for _ in range(6):
            cand = w.pick(names)
            f, k = w.free[cand], keep[cand]
            if (f[0] - (c or 0) >= k[0] and f[1] - (m or 0) >= k[1] and f[2] >= 1) or w.p(overcommit):
                node = cand
                break
        if node is None:
            continue
        f = w.free[node]
        f[0] -= c or 0
        f[1] -= m or 0
        f[2] -= 1
        run_on(w, pod, node)
        mark_old(w, pod)


def mark_old(w: World, pod: Json) -> None:
    """Mark a pod as terminated or as being deleted."""
    if w.p(0.02):
        pod["status"]["phase"] = w.pick(["Succeeded", "Failed"])
    elif w.p(0.03):
        pod["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
        pod["metadata"]["deletionGracePeriodSeconds"] = 30


def target(w: World, **kw: Any) -> Json:
    """Create the pod to schedule."""
    small = kw.pop("small", False)
    c = kw.pop("c", w.pick([50, 100, 250, 500] if small else [100, 250, 500, 1000, 1500, 2000, 3000]))
    m = kw.pop("m", w.pick([64, 128, 256] if small else [128, 256, 512, 1024, 2048, 4096]))
    w.pod = new_pod(w, "incoming", c=c, m=m, **kw)
    if w.p(0.4):
        w.pod["spec"].setdefault("tolerations", []).extend(
            [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ]
        )
    return w.pod


def profile(
    w: World, *, args: Json | None = None, plugins: Json | None = None, name: str = "default-scheduler"
) -> Json:
    """Add a profile to the configuration of the case."""
    if w.profile is None:
        w.profile = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [],
        }
    prof = next((p for p in w.profile["profiles"] if p["schedulerName"] == name), None)
    if prof is None:
        prof = {"schedulerName": name}
        w.profile["profiles"].append(prof)
    for plugin, a in (args or {}).items():
        prof.setdefault("pluginConfig", []).append({"name": plugin, "args": a})
    for point, sets in (plugins or {}).items():
        at = prof.setdefault("plugins", {}).setdefault(point, {})
        for k, v in sets.items():
            have = at.setdefault(k, [])
            have.extend(x for x in v if x["name"] not in {h["name"] for h in have})
    return prof
