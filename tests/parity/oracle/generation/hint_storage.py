"""Generation of changes of volumes, claims, classes and drivers."""

from __future__ import annotations

from tests.parity.oracle.generation.hint_scene import Scene
from tests.parity.oracle.generation.world import REGION, ZONE, Json

_DRIVERS = ["ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "disk.example.com"]
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def volume(scene: Scene) -> Json:
    """Change a volume."""
    made = {
        "metadata": {"name": "pv-made", "uid": "uid-of-pv-made"},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
        },
    }
    return scene.change("PersistentVolume", "pvs", made, _alter_volume)


def _alter_volume(scene: Scene, stored: Json) -> None:
    labels = stored["metadata"].setdefault("labels", {})
    how = scene.pick(["zone", "zone", "order", "blank", "other", "size", "phase", "class", "affinity"])
    if how == "zone":
        labels[scene.pick([ZONE, REGION, "failure-domain.beta.kubernetes.io/zone"])] = scene.pick(["zone-a", "zone-b"])
    elif how == "order":
        labels[ZONE] = scene.pick(["zone-a__zone-b", "zone-b__zone-a", "zone-a__ zone-b"])
    elif how == "blank":
        labels[ZONE] = scene.pick(["", "zone-a__"])
    elif how == "other":
        labels["quality"] = scene.pick(["gold", "tin"])
    elif how == "size":
        stored["spec"]["capacity"]["storage"] = scene.pick(["1Gi", "50Gi"])
    elif how == "phase":
        stored["status"] = {"phase": scene.pick(["Available", "Released"])}
    elif how == "class":
        stored["spec"]["storageClassName"] = scene.pick(["fast", "other"])
    else:
        stored["metadata"]["annotations"] = {"example.com/note": scene.pick(["a", "b"])}


def claim(scene: Scene) -> Json:
    """Change a claim, often a claim of the waiting pod."""
    if not scene.claim_names() and scene.p(0.6):
        made_for_it = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        source: Json = scene.pick(
            [
                {"persistentVolumeClaim": {"claimName": "own"}},
                {"ephemeral": {"volumeClaimTemplate": {"spec": made_for_it}}},
            ]
        )
        scene.pod["spec"].setdefault("volumes", []).append({"name": "own", **source})
    names = scene.claim_names()
    name = scene.pick(names) if names and scene.p(0.7) else "claim-made"
    known = next((each for each in scene.objects("pvcs") if each["metadata"]["name"] == name), None)
    namespace = scene.namespace if scene.p(0.85) else "elsewhere"
    made = known or {
        "metadata": {"name": name, "namespace": namespace, "uid": "uid-of-claim-made"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return scene.change("PersistentVolumeClaim", "pvcs", made, _alter_claim, existing=0.2)


def _alter_claim(scene: Scene, stored: Json) -> None:
    how = scene.pick(["volume", "bound", "phase", "node", "size"])
    if how == "volume":
        stored["spec"]["volumeName"] = scene.pick(["pv-made", "pv-b0"])
    elif how == "phase":
        stored["status"] = {"phase": scene.pick(["Pending", "Bound", "Lost"])}
    elif how == "size":
        stored["status"] = {"phase": "Bound", "capacity": {"storage": scene.pick(["1Gi", "2Gi"])}}
    else:
        key = "pv.kubernetes.io/bind-completed" if how == "bound" else "volume.kubernetes.io/selected-node"
        stored["metadata"].setdefault("annotations", {})[key] = scene.pick(["yes", "n-1"])


def storage_class(scene: Scene) -> Json:
    """Change a StorageClass."""
    made = {"metadata": {"name": "class-made"}, "provisioner": "disk.example.com"}
    if scene.p(0.8):
        made["volumeBindingMode"] = scene.pick(["WaitForFirstConsumer", "Immediate"])
    return scene.change("StorageClass", "storageclasses", made, _alter_class)


def _alter_class(scene: Scene, stored: Json) -> None:
    if scene.p(0.3):
        stored["allowVolumeExpansion"] = scene.p(0.5)
        return
    zones = scene.pick([["zone-a"], ["zone-b"], ["zone-a", "zone-b"]])
    stored["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    if scene.p(0.3):
        del stored["allowedTopologies"]


def csi_node(scene: Scene) -> Json:
    """Change a CSINode."""
    driver = {"name": "disk.example.com", "nodeID": "made", "allocatable": {"count": 3}}
    made = {"metadata": {"name": "csinode-made"}, "spec": {"drivers": [driver]}}
    return scene.change("CSINode", "csinodes", made, _alter_csi_node)


def _alter_csi_node(scene: Scene, stored: Json) -> None:
    drivers = stored["spec"]["drivers"]
    how = scene.pick(["limit", "limit", "limit", "unlimited", "driver", "gone", *["migrated"] * 3, "annotation"])
    if how == "migrated":
        plugins = scene.pick(["", "kubernetes.io/gce-pd", "kubernetes.io/gce-pd,kubernetes.io/aws-ebs"])
        stored["metadata"].setdefault("annotations", {})[_MIGRATED] = plugins
    elif how == "annotation":
        stored["metadata"].setdefault("annotations", {})["example.com/note"] = scene.pick(["a", "b"])
    elif how == "driver":
        name = scene.pick(_DRIVERS)
        if all(each["name"] != name for each in drivers):
            made: Json = {"name": name, "nodeID": "made"}
            if scene.p(0.7):
                made["allocatable"] = {"count": scene.pick([0, 5])}
            drivers.append(made)
    elif drivers:
        chosen = scene.pick(drivers)
        if how == "gone":
            drivers.remove(chosen)
        elif how == "unlimited":
            chosen.pop("allocatable", None)
        else:
            chosen["allocatable"] = {"count": scene.pick([0, 1, 3, 9, 40])}


def csi_driver(scene: Scene) -> Json:
    """Change a CSIDriver, often that of an inline volume of the waiting pod."""
    inline = [each["csi"]["driver"] for each in scene.pod["spec"].get("volumes", []) if "csi" in each]
    if not inline and scene.p(0.6):
        scene.pod["spec"].setdefault("volumes", []).append({"name": "inline", "csi": {"driver": "disk.example.com"}})
        inline = ["disk.example.com"]
    name = scene.pick(inline) if inline and scene.p(0.8) else scene.pick(_DRIVERS)
    known = next((each for each in scene.objects("csidrivers") if each["metadata"]["name"] == name), None)
    made = known or {"metadata": {"name": name}, "spec": {"attachRequired": True, "storageCapacity": True}}
    return scene.change("CSIDriver", "csidrivers", made, _alter_driver, existing=0.1)


def _alter_driver(scene: Scene, stored: Json) -> None:
    how = scene.pick([True, False, None])
    stored["spec"]["storageCapacity"] = how
    if how is None:
        del stored["spec"]["storageCapacity"]


def capacity(scene: Scene) -> Json:
    """Change a CSIStorageCapacity."""
    made = {"metadata": {"name": "room-made", "namespace": "default"}, "storageClassName": "fast"}
    if scene.p(0.7):
        made["capacity"] = "10Gi"
    return scene.change("CSIStorageCapacity", "csistoragecapacities", made, _alter_capacity)


def _alter_capacity(scene: Scene, stored: Json) -> None:
    key = scene.pick(["capacity", "capacity", "maximumVolumeSize"])
    stored[key] = scene.pick(["0", "1Gi", "1024Mi", "10Gi", "10240Mi", "1Ti", "1500m", "1600m"])
    if scene.p(0.2):
        del stored[key]


def attachment(scene: Scene) -> Json:
    """Change a VolumeAttachment."""
    if scene.p(0.4):
        source = scene.pick(
            [{"gcePersistentDisk": {"pdName": "disk-a"}}, {"persistentVolumeClaim": {"claimName": "own"}}]
        )
        scene.pod["spec"].setdefault("volumes", []).append({"name": "own", **source})
    driver = scene.pick(_DRIVERS)
    made = {
        "metadata": {"name": "attachment-made"},
        "spec": {"attacher": driver, "nodeName": "n-1", "source": {"persistentVolumeName": "pv-made"}},
        "status": {"attached": True},
    }
    return scene.change("VolumeAttachment", "volumeattachments", made, _alter_attachment)


def _alter_attachment(scene: Scene, stored: Json) -> None:
    stored["status"] = {"attached": scene.p(0.5)}
