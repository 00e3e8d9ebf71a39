"""Family ``spread``: topology spread constraints."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, profile, target
from tests.parity.oracle.generation.node_rules import add_tolerations, node_affinity, put_taints
from tests.parity.oracle.generation.pod_rules import keys_of, label_selector
from tests.parity.oracle.generation.requests import weights
from tests.parity.oracle.generation.world import APPS, HOST, RACK, TIERS, ZONE, Json, World


def spread_constraints(w: World, labels: dict[str, str], count: int | None = None, hard: float = 0.55) -> list[Json]:
    """Generate topology spread constraints."""
    out, seen = [], set()
    for _ in range(count or w.pick([1, 1, 2, 3])):
        key = w.pick([ZONE, ZONE, HOST, HOST, RACK])
        how = "DoNotSchedule" if w.p(hard) else "ScheduleAnyway"
        if (key, how) in seen:
            continue
        seen.add((key, how))
        c = {"maxSkew": w.pick([1, 1, 1, 2, 3, 5]), "topologyKey": key, "whenUnsatisfiable": how}
        if w.p(0.95):
            c["labelSelector"] = label_selector(w, labels, empty=0.05)
        if how == "DoNotSchedule" and w.p(0.3):
            c["minDomains"] = w.pick([1, 2, 3, 4, 5, 8])
        if w.p(0.3):
            c["nodeAffinityPolicy"] = w.pick(["Honor", "Ignore"])
        if w.p(0.35):
            c["nodeTaintsPolicy"] = w.pick(["Honor", "Ignore"])
        if "labelSelector" in c and w.p(0.25):
            spare = [k for k in ("version", "tier", "nokey") if k not in keys_of(c["labelSelector"])]
            if spare:
                c["matchLabelKeys"] = w.some(spare, 1, 2)
        out.append(c)
    return out


def owner(pod: Json, kind: str, name: str, uid: str, api: str) -> None:
    """Add a controller as owner of a pod."""
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}
    ]


def workload_of(w: World, pod: Json) -> None:
    """Add services and a controller of the pod, which determine default spread constraints."""
    ns, labels = pod["metadata"]["namespace"], pod["metadata"]["labels"]
    app = labels["app"]
    template = {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "containers": [
                {
                    "name": "main",
                    "image": "app:v1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePolicy": "File",
                }
            ],
        },
    }
    for i in range(w.pick([0, 1, 1, 2])):
        sel = {"app": app}
        if "tier" in labels and w.p(0.3):
            sel["tier"] = labels["tier"] if w.p(0.8) else w.pick(TIERS)
        w.services.append(
            {
                "metadata": {
                    "name": f"svc-{i}",
                    "namespace": ns if w.p(0.85) else w.pick(w.namespaces)["metadata"]["name"],
                },
                "spec": {"selector": sel, "ports": [{"port": 80, "targetPort": 80}]},
            }
        )
    kind = w.pick([None, "ReplicaSet", "ReplicaSet", "StatefulSet", "ReplicationController"])
    if kind is None:
        return
    name, uid = f"own-{app}", w.uid("own")
    ls = {"matchLabels": {"app": app}}
    if "version" in labels and w.p(0.5):
        ls["matchLabels"]["version"] = labels["version"]
    meta = {"name": name, "namespace": ns, "uid": uid}
    exists = w.p(0.9)
    if kind == "ReplicaSet":
        owner(pod, kind, name, uid, "apps/v1")
        if exists:
            w.rss.append({"metadata": meta, "spec": {"replicas": 3, "selector": ls, "template": template}})
    elif kind == "StatefulSet":
        owner(pod, kind, name, uid, "apps/v1")
        if exists:
            w.stss.append(
                {
                    "metadata": meta,
                    "spec": {"replicas": 3, "serviceName": "svc-0", "selector": ls, "template": template},
                }
            )
    else:
        owner(pod, kind, name, uid, "v1")
        if exists:
            w.rcs.append(
                {"metadata": meta, "spec": {"replicas": 3, "selector": dict(ls["matchLabels"]), "template": template}}
            )


def fam_spread(w: World) -> None:
    """Generate a case of the family ``spread``."""
    cluster(w, 4, 16, odd_hosts=0.08)
    labels = {"app": w.pick(APPS), "tier": w.pick(TIERS)}
    if w.p(0.8):
        labels["version"] = w.pick(["v1", "v2"])
    fill(w, 0, 50, level=0.7)
    crowd = w.pick(["none", "some", "zone", "zone", "zone", "nodes", "nodes"])
    crowded = (
        {n["metadata"]["name"] for n in w.nodes if n["metadata"]["labels"].get(ZONE) == "zone-a"}
        if crowd == "zone"
        else {n["metadata"]["name"] for n in w.some(w.nodes, 1, 4)}
    )
    for pod in w.pods:
        # Some of the pods get the labels of the incoming pod, on all nodes or on a few.
        if w.p({"none": 0, "some": 0.5}.get(crowd, 0.9 if pod["spec"]["nodeName"] in crowded else 0.1)):
            pod["metadata"]["labels"].update(labels if w.p(0.7) else {"app": labels["app"]})
            if w.p(0.8):
                pod["metadata"]["namespace"] = "default"
    target(w, small=True, labels=labels, ns="default" if w.p(0.7) else None)
    if w.p(0.4):
        put_taints(w, 0.3)
        add_tolerations(w, w.pod, 3)
    if w.p(0.3):
        node_affinity(w, w.pod, required=0.6, preferred=0, selector=0.4)
    mode = w.pick(["own", "own", "own", "own", "system", "list", "list"])
    if mode == "own":
        w.pod["spec"]["topologySpreadConstraints"] = spread_constraints(w, labels, hard=0.7)
        if crowd != "none" and w.p(0.6):
            w.pod["spec"]["topologySpreadConstraints"][0].update(
                {"maxSkew": 1, "labelSelector": {"matchLabels": {"app": labels["app"]}}}
            )
            w.pod["spec"]["topologySpreadConstraints"][0].pop("matchLabelKeys", None)
        if w.p(0.35):
            w.pod["spec"]["nodeSelector"] = {ZONE: "zone-a"} if w.p(0.7) else {"disk": w.pick(["ssd", "hdd"])}
        if w.p(0.2):
            workload_of(w, w.pod)
    else:
        workload_of(w, w.pod)
        if mode == "list":
            cs = []
            for c in spread_constraints(w, labels, count=w.r.randint(1, 3)):
                c.pop("labelSelector", None)
                c.pop("matchLabelKeys", None)
                cs.append(c)
            profile(w, args={"PodTopologySpread": {"defaultConstraints": cs, "defaultingType": "List"}})
        elif w.p(0.5):
            profile(
                w,
                args={"PodTopologySpread": {"defaultingType": "System"}},
                plugins=weights(w, ["PodTopologySpread"], 0.5),
            )
        elif w.p(0.3):
            profile(w, args={"PodTopologySpread": {"defaultConstraints": [], "defaultingType": "List"}})
