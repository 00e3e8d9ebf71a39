"""Generation of volumes, claims, classes and CSINodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.parity.oracle.generation.world import HOST, REGION, ZONE, Json, World

MIGRATED = ["kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk"]
DRIVERS = ["ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.example.com"]


def storage_class(w: World, name: str, provisioner: str, wait: bool, **kw: Any) -> Json:
    """Add a storage class."""
    sc = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if wait else "Immediate",
        **kw,
    }
    w.classes.append(sc)
    return sc


def claim(
    w: World,
    name: str,
    ns: str,
    sc: str | None,
    size: int,
    *,
    modes: Sequence[str] = ("ReadWriteOnce",),
    volume: str | None = None,
    bound: bool | None = None,
    **spec: Any,
) -> Json:
    """Add a claim."""
    pvc: Json = {
        "metadata": {"name": name, "namespace": ns, "uid": w.uid("pvc")},
        "spec": {"accessModes": list(modes), "resources": {"requests": {"storage": f"{size}Gi"}}, **spec},
        "status": {"phase": "Bound" if volume else "Pending"},
    }
    if sc is not None:
        pvc["spec"]["storageClassName"] = sc
    if volume:
        pvc["spec"]["volumeName"] = volume
        if bound is None or bound:
            pvc["metadata"]["annotations"] = {
                "pv.kubernetes.io/bind-completed": "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
            }
    w.pvcs.append(pvc)
    return pvc


def volume(
    w: World,
    name: str,
    sc: str | None,
    size: int,
    source: Json,
    *,
    modes: Sequence[str] = ("ReadWriteOnce",),
    pvc: Json | None = None,
    affinity: list[Json] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Add a volume."""
    pv: Json = {
        "metadata": {"name": name, "uid": w.uid("pv")},
        "spec": {
            "capacity": {"storage": f"{size}Gi"},
            "accessModes": list(modes),
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": sc or "",
            **source,
            **spec,
        },
        "status": {"phase": "Bound" if pvc else "Available"},
    }
    if labels:
        pv["metadata"]["labels"] = labels
    if affinity:
        pv["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": affinity}}
    if pvc:
        pv["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": pvc["metadata"]["namespace"],
            "name": pvc["metadata"]["name"],
            "uid": pvc["metadata"]["uid"],
        }
    w.pvs.append(pv)
    return pv


def csi(driver: str, handle: str) -> Json:
    """Return a CSI volume source."""
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def use_claim(pod: Json, name: str, claim_name: str, ro: bool = False) -> None:
    """Add a volume with a claim to a pod."""
    v: Json = {"name": name, "persistentVolumeClaim": {"claimName": claim_name}}
    if ro:
        v["persistentVolumeClaim"]["readOnly"] = True
    pod["spec"].setdefault("volumes", []).append(v)


def host_term(*nodes: str) -> list[Json]:
    """Return a node selector term for hosts."""
    return [{"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}]


def zone_term(*zones: str) -> list[Json]:
    """Return a node selector term for zones."""
    return [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}]


def bound_pair(
    w: World,
    ns: str,
    n: str,
    *,
    driver: str | None = None,
    where: float = 0.5,
    modes: Sequence[str] = ("ReadWriteOnce",),
    sc: str = "fast",
) -> Json:
    """Add a claim bound to a volume that may be restricted to zones or hosts."""
    vol = f"pv-{n}"
    pvc = claim(w, f"data-{n}", ns, sc, 10, modes=modes, volume=vol)
    aff = labels = None
    if w.p(where):
        kind = w.pick(["zone", "zone", "labels", "labels", "oldlabels", "host", "multi"])
        zs = w.some(["zone-a", "zone-b", "zone-c"], 1, 2)
        if kind == "zone":
            aff = zone_term(*zs)
        elif kind == "labels":
            labels = {ZONE: zs[0] if w.p(0.6) else "__".join(zs)}
            if w.p(0.4):
                labels[REGION] = w.pick(["east", "west"])
        elif kind == "oldlabels":
            labels = {"failure-domain.beta.kubernetes.io/zone": zs[0]}
        elif kind == "host":
            aff = host_term(*w.some([x["metadata"]["name"] for x in w.nodes], 1, 3))
        else:
            aff = [*zone_term(zs[0]), {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    src = csi(driver or w.pick(DRIVERS), f"handle-{n}")
    if driver is None and w.p(0.15):
        src = w.pick(
            [
                {"nfs": {"server": "nfs.example.com", "path": "/x"}},
                {"awsElasticBlockStore": {"volumeID": f"aws://zone-a/vol-{n}"}},
                {"gcePersistentDisk": {"pdName": f"disk-{n}"}},
            ]
        )
    volume(w, vol, sc, 10, src, modes=modes, pvc=pvc, affinity=aff, labels=labels)
    return pvc


def legacy_inline(w: World, disk: str) -> Json:
    """Generate an in-tree volume of a pod."""
    kind = w.pick(["gcePersistentDisk", "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"])
    ro = w.p(0.4)
    if kind == "gcePersistentDisk":
        src = {"pdName": disk, "readOnly": ro}
    elif kind == "awsElasticBlockStore":
        src = {"volumeID": disk, "readOnly": ro}
    elif kind == "iscsi":
        src = {"targetPortal": "10.0.0.9", "iqn": f"iqn.2026-01.com.example:{disk}", "lun": 0, "readOnly": ro}
    else:
        src = {
            "monitors": w.some(["10.1.0.1", "10.1.0.2", "10.1.0.3"], 1, 2),
            "pool": "rbd",
            "image": disk,
            "readOnly": ro,
        }
    return {"name": f"v-{disk}", kind: src}


def csi_nodes(w: World, limits: Sequence[int]) -> None:
    """Add CSINodes with volume limits."""
    for n in w.nodes:
        if w.p(0.06):
            continue
        drivers = []
        for d in DRIVERS:
            if w.p(0.85):
                e = {"name": d, "nodeID": n["metadata"]["name"], "topologyKeys": [ZONE]}
                if w.p(0.85):
                    e["allocatable"] = {"count": w.pick(limits)}
                drivers.append(e)
        cn = {"metadata": {"name": n["metadata"]["name"], "uid": w.uid("csinode")}, "spec": {"drivers": drivers}}
        if w.p(0.8):
            cn["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(MIGRATED)}
        w.csinodes.append(cn)
