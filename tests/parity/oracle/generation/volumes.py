"""Family ``volumes``: claims, volumes and their limits."""

from __future__ import annotations

from collections.abc import Callable

from tests.parity.oracle.generation.clusters import cluster, fill, target
from tests.parity.oracle.generation.storage import (
    DRIVERS,
    bound_pair,
    claim,
    csi,
    csi_nodes,
    host_term,
    legacy_inline,
    storage_class,
    use_claim,
    volume,
    zone_term,
)
from tests.parity.oracle.generation.world import ZONE, Json, World


def fam_volumes(w: World) -> None:
    """Generate a case of the family ``volumes``."""
    cluster(w, 3, 12, zones=w.r.randint(2, 3), odd_hosts=0.0, namespaces=w.r.randint(1, 2))
    kind = w.pick(
        ["bound"] * 5
        + ["static"] * 4
        + ["dynamic"] * 4
        + ["limits"] * 5
        + ["rwop"] * 2
        + ["legacy"] * 3
        + ["immediate", "ephemeral", "ephemeral", "broken"]
    )
    storage_class(w, "fast", w.pick(DRIVERS), False)
    fill(w, 0, 25, level=0.6)
    target(w, small=True, prio=w.pick(["normal", "normal", "high"]))
    volumes_of_kind(w, kind)
    if kind != "limits" and w.p(0.3):
        csi_nodes(w, [2, 5, 25])
    if w.p(0.2):
        volumes_of_kind(w, w.pick(["bound", "legacy", "static", "dynamic"]), tag="2")


def volumes_of_kind(w: World, kind: str, tag: str = "") -> None:
    """Add volumes of one kind to the pod."""
    _KINDS[kind](w, tag)


def _bound(w: World, tag: str) -> None:
    """Add bound claims."""
    ns = w.pod["metadata"]["namespace"]
    for i in range(w.r.randint(1, 3)):
        n = f"b{tag}{i}"
        pvc = bound_pair(w, ns, n, where=0.65)
        use_claim(w.pod, f"vol{tag}{i}", pvc["metadata"]["name"], ro=w.p(0.1))


def _immediate(w: World, tag: str) -> None:
    """Add an unbound claim of a class with immediate binding."""
    ns = w.pod["metadata"]["namespace"]
    n = f"u{tag}"
    vol = "pv-missing" if w.p(0.3) else None
    claim(w, f"data-{n}", ns, w.pick(["fast", "fast", None, ""]), 5, volume=vol, bound=False)
    use_claim(w.pod, f"vol{tag}", f"data-{n}")


def _static(w: World, tag: str) -> None:
    """Add local volumes that are bound when the pod is scheduled."""
    ns = w.pod["metadata"]["namespace"]
    names = [n["metadata"]["name"] for n in w.nodes]
    sc = f"local{tag}"
    storage_class(w, sc, "kubernetes.io/no-provisioner", True)
    count = w.r.randint(1, 2)
    for i in range(w.r.randint(0, 8)):
        node = w.pick(names)
        size = w.pick([5, 10, 20, 50])
        modes = w.pick([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteMany"]])
        kw: Json = {}
        if w.p(0.1):
            kw["volumeMode"] = "Block"
        if w.p(0.1):
            taken = claim(w, f"other-{tag}{i}", ns, sc, size, modes=modes, volume=f"lpv-{tag}{i}")
            volume(
                w,
                f"lpv-{tag}{i}",
                sc,
                size,
                {"local": {"path": "/mnt"}},
                modes=modes,
                pvc=taken,
                affinity=host_term(node),
            )
            continue
        volume(
            w,
            f"lpv-{tag}{i}",
            sc if w.p(0.9) else "fast",
            size,
            {"local": {"path": "/mnt"}},
            modes=modes,
            affinity=host_term(node),
            labels={"quality": w.pick(["gold", "tin"])} if w.p(0.4) else None,
            **kw,
        )
    for i in range(count):
        kw = {}
        if w.p(0.25):
            kw["selector"] = {"matchLabels": {"quality": "gold"}}
        claim(
            w,
            f"want-{tag}{i}",
            ns,
            sc,
            w.pick([1, 5, 8, 15]),
            modes=w.pick([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteMany"]]),
            **kw,
        )
        use_claim(w.pod, f"loc{tag}{i}", f"want-{tag}{i}")


def _dynamic(w: World, tag: str) -> None:
    """Add claims whose volumes are provisioned when the pod is scheduled."""
    ns = w.pod["metadata"]["namespace"]
    names = [n["metadata"]["name"] for n in w.nodes]
    sc, driver = f"wait{tag}", w.pick(DRIVERS)
    kw: Json = {}
    if w.p(0.5):
        kw["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": ZONE, "values": w.some(["zone-a", "zone-b", "zone-c", "zone-q"], 1, 2)}]}
            for _ in range(1 if w.p(0.8) else 2)
        ]
        if len(kw["allowedTopologies"]) == 2 and kw["allowedTopologies"][0] == kw["allowedTopologies"][1]:
            kw["allowedTopologies"].pop()
    storage_class(w, sc, driver if w.p(0.92) else "kubernetes.io/no-provisioner", True, **kw)
    for i in range(w.r.randint(1, 2)):
        pvc = claim(w, f"dyn-{tag}{i}", ns, sc, w.pick([5, 20, 100]))
        if w.p(0.1):
            pvc["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": w.pick(names)}
        use_claim(w.pod, f"dyn{tag}{i}", f"dyn-{tag}{i}")
    if w.p(0.6) and not any(d["metadata"]["name"] == driver for d in w.csidrivers):
        w.csidrivers.append(
            {"metadata": {"name": driver}, "spec": {"attachRequired": True, "storageCapacity": w.p(0.8)}}
        )
        for i, z in enumerate(["zone-a", "zone-b", "zone-c"]):
            if w.p(0.6):
                cap: Json = {
                    "metadata": {"name": f"cap-{tag}{i}", "namespace": "default"},
                    "storageClassName": sc if w.p(0.9) else "fast",
                    "nodeTopology": {"matchLabels": {ZONE: z}},
                }
                if w.p(0.9):
                    cap["capacity"] = w.pick(["1Gi", "10Gi", "50Gi", "1Ti"])
                if w.p(0.3):
                    cap["maximumVolumeSize"] = w.pick(["1Gi", "30Gi", "1Ti"])
                w.capacities.append(cap)


def _limits(w: World, tag: str) -> None:
    """Add volumes up to the volume limits of nodes."""
    ns = w.pod["metadata"]["namespace"]
    names = [n["metadata"]["name"] for n in w.nodes]
    driver = w.pick(DRIVERS)
    storage_class(w, f"lim{tag}", driver, w.p(0.5))
    csi_nodes(w, w.pick([[1, 2], [1, 2, 3], [2, 25]]))
    shared: list[Json] = []
    for i, pod in enumerate(w.pods):
        if w.p(0.6):
            pns = pod["metadata"]["namespace"]
            if shared and w.p(0.2) and shared[-1]["metadata"]["namespace"] == pns:
                use_claim(pod, "d", shared[-1]["metadata"]["name"])
            else:
                d = driver if w.p(0.8) else None
                pvc = bound_pair(w, pns, f"e{tag}{i}", driver=d, where=0.0, sc=f"lim{tag}", modes=["ReadWriteMany"])
                shared.append(pvc)
                use_claim(pod, "d", pvc["metadata"]["name"])
    for i in range(w.r.randint(1, 3)):
        mine = [p for p in shared if p["metadata"]["namespace"] == ns]
        if mine and w.p(0.25):
            use_claim(w.pod, f"lim{tag}{i}", mine[0]["metadata"]["name"])
        elif w.p(0.7):
            pvc = bound_pair(w, ns, f"l{tag}{i}", driver=driver, where=0.1, sc=f"lim{tag}")
            use_claim(w.pod, f"lim{tag}{i}", pvc["metadata"]["name"])
        else:
            claim(w, f"lw-{tag}{i}", ns, f"lim{tag}", 5)
            use_claim(w.pod, f"lim{tag}{i}", f"lw-{tag}{i}")
    if w.p(0.3):
        for i in range(w.r.randint(1, 4)):
            pv = w.pick(w.pvs)["metadata"]["name"] if w.pvs and w.p(0.7) else None
            src = {"persistentVolumeName": pv} if pv else {"persistentVolumeName": f"gone-{i}"}
            w.attachments.append(
                {
                    "metadata": {"name": f"va-{tag}{i}"},
                    "spec": {"attacher": driver, "nodeName": w.pick(names), "source": src},
                    "status": {"attached": True},
                }
            )


def _rwop(w: World, tag: str) -> None:
    """Add a claim with access mode ReadWriteOncePod."""
    ns = w.pod["metadata"]["namespace"]
    same_ns = [p for p in w.pods if p["metadata"]["namespace"] == ns]
    pvc = bound_pair(w, ns, f"x{tag}", where=0.2, modes=["ReadWriteOncePod"])
    use_claim(w.pod, f"only{tag}", pvc["metadata"]["name"])
    if same_ns and w.p(0.75):
        use_claim(w.pick(same_ns), "only", pvc["metadata"]["name"])


def _legacy(w: World, tag: str) -> None:
    """Add in-tree volumes without claims."""
    disks = [f"disk-{tag}{x}" for x in "abc"]
    for pod in w.pods:
        if w.p(0.6):
            pod["spec"].setdefault("volumes", []).append(legacy_inline(w, w.pick(disks)))
    for d in w.some(disks, 1, 2):
        w.pod["spec"].setdefault("volumes", []).append(legacy_inline(w, d))


def _ephemeral(w: World, tag: str) -> None:
    """Add a generic ephemeral volume."""
    ns = w.pod["metadata"]["namespace"]
    v = f"scratch{tag}"
    w.pod["spec"].setdefault("volumes", []).append(
        {
            "name": v,
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "fast",
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            },
        }
    )
    name = f"{w.pod['metadata']['name']}-{v}"
    fate = w.pick(["none", "foreign", "bound", "bound"])
    if fate != "none":
        vol = f"pv-{v}"
        pvc = claim(w, name, ns, "fast", 1, volume=vol)
        volume(
            w,
            vol,
            "fast",
            1,
            csi("disk.example.com", v),
            pvc=pvc,
            affinity=zone_term("zone-a", "zone-b") if w.p(0.4) else None,
        )
        if fate == "bound":
            pvc["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": w.pod["metadata"]["name"],
                    "uid": w.pod["metadata"]["uid"],
                    "controller": True,
                }
            ]


def _broken(w: World, tag: str) -> None:
    """Add a claim that cannot be used."""
    ns = w.pod["metadata"]["namespace"]
    how = w.pick(["missing", "lost", "deleting", "noclass", "nopv", "nopv"])
    n = f"data-k{tag}"
    if how == "missing":
        pass
    elif how == "lost":
        claim(w, n, ns, "fast", 1, volume="pv-gone")["status"]["phase"] = "Lost"
    elif how == "deleting":
        pvc = bound_pair(w, ns, f"k{tag}")
        pvc["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
        pvc["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    elif how == "noclass":
        claim(w, n, ns, "unknown-class", 1)
    else:
        claim(w, n, ns, "fast", 1, volume="pv-gone")
    use_claim(w.pod, f"bad{tag}", n)


_KINDS: dict[str, Callable[[World, str], None]] = {
    "bound": _bound,
    "immediate": _immediate,
    "static": _static,
    "dynamic": _dynamic,
    "limits": _limits,
    "rwop": _rwop,
    "legacy": _legacy,
    "ephemeral": _ephemeral,
    "broken": _broken,
}
