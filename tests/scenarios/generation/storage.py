"""Draws volumes, claims and classes of scenarios; for some claims only the name is used, so their pods wait."""

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
    """Make a class."""
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def storage_classes(scene: Scene) -> list[Json]:
    """Return the classes of a scenario: local volumes, volumes provisioned on demand, and one without a provisioner."""
    made = storage_class(MADE, PROVISIONER)
    if scene.p(0.2):
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}]
    return [storage_class(LATE, NO_PROVISIONER), made, storage_class(NOW, "nobody.example.com", "Immediate")]


def claim(scene: Scene, name: str, class_name: str) -> Json:
    """Draw a claim."""
    scene.claims[name] = class_name
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": _claim_spec(scene, class_name)}


def _claim_spec(scene: Scene, class_name: str) -> Json:
    requests = {"storage": scene.pick(["1Gi", "1Gi", "3Gi"])}
    return {"storageClassName": class_name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}


def volume(scene: Scene, name: str, class_name: str, claimed_by: str | None = None) -> Json:
    """Draw a volume.

    Args:
        scene: The scenario.
        name: Of the volume.
        class_name: Of its class.
        claimed_by: The claim that it is kept for; None for none.
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
        whose = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": scene.name, "name": claimed_by}
        spec["claimRef"] = whose
    scene.volumes.append(name)
    labels = {"topology.kubernetes.io/zone": scene.pick(ZONES)} if scene.p(0.15) else {}
    return {"kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _reachable_from(scene: Scene) -> Json:
    expression = {"key": HOST, "operator": "In", "values": scene.some([*scene.nodes, ABSENT], 1, 2)}
    if scene.p(0.3):
        expression = {"key": "zone", "operator": "In", "values": [scene.pick(ZONES)]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def give_volume(scene: Scene, spec: Json) -> list[Json]:
    """Give a pod a volume of some kind.

    Args:
        scene: The scenario.
        spec: The pod's, which is added to.

    Returns:
        What must exist before the pod does.
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
    kept = volume(scene, f"{scene.name}-{name}", LATE, name)
    if one_pod:
        kept["spec"]["accessModes"] = ["ReadWriteOncePod"]
    bound = claim(scene, name, LATE)
    bound["spec"] |= {
        "accessModes": kept["spec"]["accessModes"][:1],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": kept["metadata"]["name"],
    }
    return [kept, bound]


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
