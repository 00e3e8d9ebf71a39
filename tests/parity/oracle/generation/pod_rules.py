"""Family ``podaffinity``: affinity and anti-affinity between pods."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, profile, target
from tests.parity.oracle.generation.requests import weights
from tests.parity.oracle.generation.world import APPS, HOST, RACK, REGION, TEAMS, TIERS, ZONE, Json, World


def label_selector(w: World, labels: dict[str, str] | None = None, empty: float = 0.04) -> Json:
    """Generate a selector that matches some pods with a fair probability."""
    if w.p(empty):
        return {}
    s: Json = {}
    if w.p(0.7):
        if labels and w.p(0.7):
            k = w.pick(labels)
            s["matchLabels"] = {k: labels[k]}
        else:
            s["matchLabels"] = {"app": w.pick(APPS)}
    if w.p(0.35) or not s:
        key = w.pick(["app", "tier", "version", "absent"])
        vals = {"app": APPS, "tier": TIERS, "version": ["v1", "v2", "v3"], "absent": ["x"]}[key]
        op = w.pick(["In", "In", "NotIn", "Exists", "DoesNotExist"])
        e: Json = {"key": key, "operator": op}
        if op in ("In", "NotIn"):
            e["values"] = w.some(vals, 1, 3)
        s["matchExpressions"] = [e]
    return s


def keys_of(selector: Json) -> set[str]:
    """Return the label keys of a selector."""
    return set(selector.get("matchLabels", {})) | {e["key"] for e in selector.get("matchExpressions", [])}


def affinity_term(w: World, about: dict[str, str] | None) -> Json:
    """Generate a pod affinity term, usually one that matches the labels ``about``."""
    t = {"topologyKey": w.pick([ZONE, ZONE, HOST, HOST, HOST, REGION, RACK])}
    if w.p(0.96):
        t["labelSelector"] = label_selector(w, about)
    names = [n["metadata"]["name"] for n in w.namespaces]
    if w.p(0.2):
        t["namespaces"] = w.some([*names, "nowhere"], 1, 2)
    if w.p(0.25):
        t["namespaceSelector"] = w.pick(
            [
                {},
                {},
                {"matchLabels": {"team": w.pick(TEAMS)}},
                {"matchExpressions": [{"key": "env", "operator": w.pick(["Exists", "DoesNotExist"])}]},
                {"matchExpressions": [{"key": "team", "operator": "In", "values": w.some(TEAMS, 1, 2)}]},
            ]
        )
    if "labelSelector" in t:
        spare = [k for k in ("version", "tier") if k not in keys_of(t["labelSelector"])]
        if spare and w.p(0.18):
            t["matchLabelKeys"] = [w.pick(spare)]
            spare = [k for k in spare if k not in t["matchLabelKeys"]]
        if spare and w.p(0.12):
            t["mismatchLabelKeys"] = [w.pick(spare)]
    return t


def pod_affinity(
    w: World,
    pod: Json,
    about: dict[str, str] | None,
    *,
    req_aff: float = 0.3,
    pref_aff: float = 0.3,
    req_anti: float = 0.3,
    pref_anti: float = 0.3,
) -> None:
    """Add affinity or anti-affinity to a pod."""
    a = {}
    for kind, rq, pf in (("podAffinity", req_aff, pref_aff), ("podAntiAffinity", req_anti, pref_anti)):
        d = {}
        if w.p(rq):
            d["requiredDuringSchedulingIgnoredDuringExecution"] = [
                affinity_term(w, about) for _ in range(1 if w.p(0.75) else 2)
            ]
        if w.p(pf):
            d["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": w.r.randint(1, 100), "podAffinityTerm": affinity_term(w, about)}
                for _ in range(w.r.randint(1, 3))
            ]
        if d:
            a[kind] = d
    if a:
        pod["spec"].setdefault("affinity", {}).update(a)


def fam_podaffinity(w: World) -> None:
    """Generate a case of the family ``podaffinity``."""
    cluster(w, 4, 16, odd_hosts=0.08, namespaces=w.r.randint(1, 4))
    labels = {"app": w.pick(APPS), "tier": w.pick(TIERS), "version": w.pick(["v1", "v2"])}
    if w.p(0.2):
        labels.pop("version")
    rate = w.pick([0.0, 0.15, 0.5])

    def decorate(w: World, pod: Json) -> None:
        if w.p(rate):
            pod_affinity(w, pod, labels, req_aff=0.2, pref_aff=0.35, req_anti=0.15, pref_anti=0.35)

    fill(w, 0, 40, level=0.7, decorate=decorate)
    target(w, small=True, labels=labels)
    mode = w.pick(["aff", "anti", "both", "pref", "none"])
    if mode == "aff":
        pod_affinity(w, w.pod, None, req_aff=1, pref_aff=0.3, req_anti=0, pref_anti=0.2)
    elif mode == "anti":
        pod_affinity(w, w.pod, None, req_aff=0, pref_aff=0.2, req_anti=1, pref_anti=0.3)
    elif mode == "both":
        pod_affinity(w, w.pod, None, req_aff=0.7, pref_aff=0.4, req_anti=0.7, pref_anti=0.4)
    elif mode == "pref":
        pod_affinity(w, w.pod, None, req_aff=0, pref_aff=0.9, req_anti=0, pref_anti=0.9)
    if mode in ("aff", "both") and w.p(0.3):
        # The pod has affinity to pods with its own labels, of which none may exist.
        ra = (
            w.pod["spec"]
            .get("affinity", {})
            .get("podAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution")
        )
        if ra:
            ra[0]["labelSelector"] = {"matchLabels": {"app": labels["app"]}}
            for k in ("matchLabelKeys", "mismatchLabelKeys", "namespaces", "namespaceSelector"):
                ra[0].pop(k, None)
    if w.p(0.3):
        args = {}
        if w.p(0.7):
            args["hardPodAffinityWeight"] = w.pick([0, 1, 5, 50, 100])
        if w.p(0.5) or not args:
            args["ignorePreferredTermsOfExistingPods"] = w.p(0.7)
        profile(w, args={"InterPodAffinity": args}, plugins=weights(w, ["InterPodAffinity"], 0.3))
