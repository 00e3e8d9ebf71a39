"""Families ``resources`` and ``scoring``: requests of every kind, and scoring strategies."""

from __future__ import annotations

from collections.abc import Sequence

from tests.parity.oracle.generation.clusters import cluster, fill, mebi, milli, profile, target
from tests.parity.oracle.generation.world import Json, World, cpu, mem


def more_resources(w: World, pod: Json, *, incoming: bool) -> None:
    """Add everything that counts as a request of a pod."""
    r = w.r
    spec = pod["spec"]
    main = spec["containers"][0]
    if w.p(0.35):
        for i in range(r.randint(1, 3)):
            spec["containers"].append(side(w, f"c{i}"))
    if w.p(0.35):
        inits = []
        for i in range(r.randint(1, 4)):
            ct = side(w, f"init{i}", big=True)
            if w.p(0.45):
                ct["restartPolicy"] = "Always"
            inits.append(ct)
        spec["initContainers"] = inits
    if w.p(0.15):
        spec["overhead"] = {"cpu": cpu(w, w.pick([50, 100, 250])), "memory": mem(w, w.pick([32, 64, 120]))}
    if w.p(0.15):
        main.setdefault("resources", {})["limits"] = {"cpu": "4", "memory": "8Gi"}
        if w.p(0.4):
            main["resources"].pop("requests", None)  # The limit becomes the request.
    if w.p(0.2):
        main.setdefault("resources", {}).setdefault("requests", {})["ephemeral-storage"] = w.pick(
            ["1Gi", "9Gi", "30Gi", "5e9"]
        )
    if w.p(0.3 if incoming else 0.15):
        res = w.pick(["example.com/gpu", "example.com/gpu", "vendor.io/fpga"])
        amount = str(w.pick([1, 1, 2, 4]))
        ct = w.pick(spec["containers"] + spec.get("initContainers", []))
        rs = ct.setdefault("resources", {})
        rs.setdefault("limits", {})[res] = amount
        if w.p(0.5):
            rs.setdefault("requests", {})[res] = amount
    if w.p(0.08):
        rs = main.setdefault("resources", {})
        rs.setdefault("requests", {}).setdefault("cpu", "100m")
        rs["requests"]["hugepages-2Mi"] = rs.setdefault("limits", {})["hugepages-2Mi"] = w.pick(
            ["32Mi", "64Mi", "128Mi"]
        )
    if w.p(0.18):
        pod_level(w, spec)


def side(w: World, name: str, big: bool = False) -> Json:
    """Generate an additional container."""
    ct: Json = {"name": name, "image": "side:1"}
    req = {}
    if w.p(0.85):
        req["cpu"] = cpu(w, w.pick([10, 50, 100, 250, 500, 1000, 2500] if big else [10, 50, 100, 250]))
    if w.p(0.85):
        req["memory"] = mem(w, w.pick([16, 64, 128, 512, 1024, 3000] if big else [16, 64, 128, 256]))
    if req:
        ct["resources"] = {"requests": req}
    return ct


def pod_level(w: World, spec: Json) -> None:
    """Add pod-level resources, which replace those of the containers."""
    total_c = total_m = 0
    for ct in spec["containers"] + spec.get("initContainers", []):
        rs = ct.get("resources", {})
        c = rs.get("requests", {}).get("cpu") or rs.get("limits", {}).get("cpu") or "0"
        m = rs.get("requests", {}).get("memory") or rs.get("limits", {}).get("memory") or "0"
        total_c += milli(c)
        total_m += mebi(m) + 1
        if "limits" in rs:
            rs["limits"].pop("cpu", None)
            rs["limits"].pop("memory", None)
            if "requests" not in rs and not rs["limits"]:
                ct.pop("resources")
    req = {}
    if w.p(0.85):
        req["cpu"] = cpu(w, total_c + w.pick([0, 100, 500]))
    if w.p(0.85) or not req:
        req["memory"] = f"{total_m + w.pick([0, 64, 512])}Mi"
    spec_res = {"requests": req}
    if w.p(0.3):
        spec_res["limits"] = {k: ("64" if k == "cpu" else "256Gi") for k in req}
    spec["resources"] = spec_res


def resized(w: World, pod: Json) -> None:
    """Add the status of an in-place resize, whose allocated and actual resources differ from the spec."""
    sts = []
    for ct in pod["spec"]["containers"]:
        req = ct.get("resources", {}).get("requests")
        if not req or set(req) - {"cpu", "memory"}:
            return
        c, m = w.pick([50, 500, 1500, 2500]), w.pick([64, 512, 1500])
        st = {"name": ct["name"], "image": ct["image"], "imageID": "", "ready": True, "restartCount": 0}
        held = {k: (cpu(w, c) if k == "cpu" else f"{m}Mi") for k in req}
        if w.p(0.85):
            st["allocatedResources"] = held
        if w.p(0.75):
            live = {k: (cpu(w, w.pick([50, c, 3000])) if k == "cpu" else f"{w.pick([64, m, 2000])}Mi") for k in req}
            st["resources"] = {"requests": live}
        sts.append(st)
    pod["status"]["containerStatuses"] = sts
    if w.p(0.5):
        pod["status"]["conditions"] = [
            {
                "type": "PodResizePending",
                "status": "True",
                "reason": w.pick(["Infeasible", "Deferred"]),
                "lastTransitionTime": None,
            }
        ]
    elif w.p(0.5):
        pod["status"]["conditions"] = [{"type": "PodResizeInProgress", "status": "True", "lastTransitionTime": None}]


def fam_resources(w: World) -> None:
    """Generate a case of the family ``resources``."""
    cluster(w, 3, 14, extended=0.5, tight=w.p(0.3))

    def decorate(w: World, pod: Json) -> None:
        if w.p(0.3):
            more_resources(w, pod, incoming=False)

    fill(w, 0, 40, decorate=decorate)
    for pod in w.pods:
        if w.p(0.1):
            resized(w, pod)
    target(w)
    if w.p(0.1):
        w.pod["spec"]["containers"][0].pop("resources", None)
    if w.p(0.75):
        more_resources(w, w.pod, incoming=True)
    if w.p(0.12):
        args = {}
        if w.p(0.6):
            args["ignoredResources"] = w.some(["example.com/gpu", "vendor.io/fpga", "example.com/none"], 1, 2)
        if w.p(0.5) or not args:
            args["ignoredResourceGroups"] = w.some(["example.com", "vendor.io"], 1, 1)
        profile(w, args={"NodeResourcesFit": args})


EXTRA_RESOURCES = ["ephemeral-storage", "example.com/gpu", "vendor.io/fpga", "hugepages-2Mi"]


def fit_args(w: World) -> Json:
    """Generate args of NodeResourcesFit."""
    kind = w.pick(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"])
    names = ["cpu", "memory", *w.some(EXTRA_RESOURCES, 0, 2)]
    w.r.shuffle(names)
    res = [{"name": n, "weight": w.pick([1, 1, 2, 3, 5, 10, 50, 100])} for n in names[: w.r.randint(1, len(names))]]
    strat: Json = {"type": kind}
    if w.p(0.8):
        strat["resources"] = res
    if kind == "RequestedToCapacityRatio":
        xs = sorted(w.r.sample(range(101), w.r.randint(2, 5)))
        if w.p(0.6):
            xs[0], xs[-1] = 0, 100
        ys = sorted(w.r.sample(range(11), len(xs)), reverse=w.p(0.5)) if w.p(0.5) else [w.r.randint(0, 10) for _ in xs]
        shape = [{"utilization": x, "score": y} for x, y in zip(xs, ys, strict=True)]
        strat["requestedToCapacityRatio"] = {"shape": shape}
    return {"scoringStrategy": strat}


def balanced_args(w: World) -> Json:
    """Generate args of NodeResourcesBalancedAllocation."""
    names = w.some(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "vendor.io/fpga"], 1, 5)
    return {"resources": [{"name": n, "weight": 1} for n in names]}


def weights(w: World, names: Sequence[str], chance: float = 0.6) -> Json:
    """Return a plugin set that enables score plugins with other weights."""
    ps = [{"name": n, "weight": w.pick([1, 2, 3, 5, 10, 25, 100])} for n in names if w.p(chance)]
    return {"score": {"disabled": [{"name": p["name"]} for p in ps], "enabled": ps}} if ps else {}


def fam_scoring(w: World) -> None:
    """Generate a case of the family ``scoring``."""
    cluster(w, 3, 14, extended=0.6)

    def decorate(w: World, pod: Json) -> None:
        if w.p(0.3):
            more_resources(w, pod, incoming=False)

    fill(w, 0, 45, decorate=decorate, overcommit=0.05)
    target(w, small=w.p(0.6))
    spec = w.pod["spec"]
    if w.p(0.12):
        spec["containers"][0].pop("resources", None)
    elif w.p(0.3):
        more_resources(w, w.pod, incoming=True)
    if w.p(0.9):
        args = {}
        if w.p(0.85):
            args["NodeResourcesFit"] = fit_args(w)
        if w.p(0.4):
            args["NodeResourcesBalancedAllocation"] = balanced_args(w)
        pl = weights(w, ["NodeResourcesFit", "NodeResourcesBalancedAllocation"], 0.35)
        profile(w, args=args, plugins=pl)
    if w.p(0.1):
        for n in w.nodes:
            n["status"]["allocatable"].pop("memory" if w.p(0.5) else "cpu", None)
