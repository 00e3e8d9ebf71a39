"""Generates volumes, claims and storage classes of scenarios; some claims are only named by pods, not created."""

from __future__ import annotations

from hack.controlplane.volume_controller import PROVISIONER
from tests.scenarios.generation.scene import ABSENT, HOST, ZONES, Json, Scene

LATE, MADE, NOW = "late", "made", "now"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_KINDS = (
    *("bound", "bound", "bound", "local", "local", "made", "made"),
    *("one-pod", "now", "missing", "no-class", "disk", "shared", "ephemeral"),
)


def storage_class(name: str, provisioner: str, mode: str = "WaitForFirstConsumer") -> Json:
    """Return a StorageClass."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def storage_classes(scene: Scene) -> list[Json]:
    """Return the classes for local volumes, for dynamic provisioning, and with an unknown provisioner."""
    made = storage_class(MADE, PROVISIONER)
    if scene.p(0.2):
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}]
    return [storage_class(LATE, NO_PROVISIONER), made, storage_class(NOW, "nobody.example.com", "Immediate")]


def claim(scene: Scene, name: str, class_name: str) -> Json:
    """Generate a claim and add it to the scene."""
    scene.claims[name] = class_name
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": _claim_spec(scene, class_name)}


def _claim_spec(scene: Scene, class_name: str) -> Json:
    requests = {"storage": scene.pick(["1Gi", "1Gi", "3Gi"])}
    return {"storageClassName": class_name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}


def volume(scene: Scene, name: str, class_name: str, claimed_by: str | None = None) -> Json:
    """Generate a volume and add it to the scene.

    Args:
        class_name: Name of its StorageClass.
        claimed_by: Claim in its claimRef; None for no claimRef.
    """
    spec: Json = {"local": {"path": "/mnt"}, "nodeAffinity": _reachable_from(scene)}
    if claimed_by and scene.p(0.6):
        spec = {"csi": {"driver": PROVISIONER, "volumeHandle": name}}
        if scene.p(0.4):
            spec["nodeAffinity"] = _reachable_from(scene)
    spec |= {
        "capacity": {"storage": scene.pick(["1Gi", "2Gi", "5Gi"])},
        "accessModes": scene.pick([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]]),
        "storageClassName": class_name,
    }
    if claimed_by:
        claim_ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": scene.name, "name": claimed_by}
        spec["claimRef"] = claim_ref
    scene.volumes.append(name)
    labels = {"topology.kubernetes.io/zone": scene.pick(ZONES)} if scene.p(0.15) else {}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _reachable_from(scene: Scene) -> Json:
    expression = {"key": HOST, "operator": "In", "values": scene.some([*scene.nodes, ABSENT], 1, 2)}
    if scene.p(0.3):
        expression = {"key": "zone", "operator": "In", "values": [scene.pick(ZONES)]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def give_volume(scene: Scene, spec: Json) -> list[Json]:
    """Add a random volume to a pod.

    Args:
        spec: Spec of the pod, which is extended.

    Returns:
        Objects that the pod needs.
    """
    kind = scene.pick(_KINDS)
    name = f"data{scene.number()}"
    made: list[Json] = []
    source: Json = {"persistentVolumeClaim": {"claimName": name}}
    if kind == "disk":
        source = _disk(scene)
    elif kind == "ephemeral":
        source = {"ephemeral": {"volumeClaimTemplate": {"spec": _claim_spec(scene, MADE)}}}
    elif kind == "shared" and scene.claims:
        source = {"persistentVolumeClaim": {"claimName": scene.pick(scene.claims)}}
    elif kind in ("bound", "one-pod"):
        made = _bound(scene, name, one_pod=kind == "one-pod")
    elif kind == "missing":
        scene.claims[name] = LATE
    else:
        made = [claim(scene, name, {"no-class": ABSENT, MADE: MADE, NOW: NOW}.get(kind, LATE))]
        if kind == "local" and scene.p(0.6):
            made.append(volume(scene, f"{scene.name}-{name}", LATE))
    spec["volumes"] = [{"name": "v", **source}]
    return made


def _bound(scene: Scene, name: str, *, one_pod: bool) -> list[Json]:
    reserved = volume(scene, f"{scene.name}-{name}", LATE, name)
    if one_pod:
        reserved["spec"]["accessModes"] = ["ReadWriteOncePod"]
    bound = claim(scene, name, LATE)
    bound["spec"] |= {
        "accessModes": reserved["spec"]["accessModes"][:1],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": reserved["metadata"]["name"],
    }
    return [reserved, bound]


def _disk(scene: Scene) -> Json:
    read_only = scene.p(0.4)
    disks: list[Json] = [
        {"gcePersistentDisk": {"pdName": "one", "readOnly": read_only}},
        {"awsElasticBlockStore": {"volumeID": "one"}},
        {
            "iscsi": {
                "targetPortal": "10.0.0.1:3260",
                "iqn": "iqn.2001-04.com.example:s",
                "readOnly": read_only,
                "lun": 0,
            }
        },
    ]
    return scene.pick(disks)
