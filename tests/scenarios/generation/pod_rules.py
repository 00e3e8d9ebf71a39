"""Generates scheduling constraints of pods: affinities, topology spread constraints, tolerations."""

from __future__ import annotations

from tests.scenarios.generation.scene import APPS, HOST, MOST_NODES, RANK, ZONES, Json, Scene

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_CORDON = "node.kubernetes.io/unschedulable"


def affinity(scene: Scene) -> Json:
    """Generate node and pod affinities; empty for none."""
    found: Json = {}
    if scene.on("node-affinity", 0.6):
        found["nodeAffinity"] = _node_affinity(scene)
    for kind in ("podAffinity", "podAntiAffinity"):
        if scene.on("affinity", 0.4):
            found[kind] = _pod_affinity(scene)
    return found


def _node_affinity(scene: Scene) -> Json:
    found: Json = {}
    if scene.p(0.7):
        found[_REQUIRED] = {"nodeSelectorTerms": _node_terms(scene)}
    if scene.p(0.5):
        terms = [term for term in _node_terms(scene) if "matchFields" not in term]
        found[_PREFERRED] = [{"weight": scene.r.randint(1, 100), "preference": term} for term in terms]
    return found


def _pod_affinity(scene: Scene) -> Json:
    found: Json = {}
    if scene.p(0.75):
        found[_REQUIRED] = [_pod_term(scene) for _ in range(scene.pick([1, 1, 2]))]
    if scene.p(0.4):
        found[_PREFERRED] = [{"weight": scene.r.randint(1, 100), "podAffinityTerm": _pod_term(scene)}]
    return found


def _node_terms(scene: Scene) -> list[Json]:
    terms = []
    for _ in range(scene.pick([1, 1, 2])):
        term: Json = {}
        if scene.p(0.8):
            term["matchExpressions"] = [_node_expression(scene) for _ in range(scene.pick([1, 1, 2]))]
        if not term or scene.p(0.35):
            # The DaemonSet controller binds its pods to nodes with such terms.
            operator = scene.pick(["In", "In", "In", "NotIn"])
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [scene.some_node()]}]
        terms.append(term)
    return terms


def _node_expression(scene: Scene) -> Json:
    variants: list[Json] = [
        {"key": "zone", "operator": "In", "values": scene.some(ZONES, 1, 2)},
        {"key": "zone", "operator": "NotIn", "values": scene.some(ZONES, 1, 2)},
        {"key": "disk", "operator": "Exists"},
        {"key": "disk", "operator": "DoesNotExist"},
        {"key": RANK, "operator": scene.pick(["Gt", "Lt"]), "values": [str(scene.r.randint(0, 4))]},
    ]
    return scene.pick(variants)


def _pod_term(scene: Scene) -> Json:
    term: Json = {"topologyKey": scene.pick(["zone", "zone", HOST, "disk"]), "labelSelector": _selector(scene)}
    if scene.p(0.1):
        own = {"matchLabels": {"kubernetes.io/metadata.name": scene.name}}
        term["namespaceSelector"] = scene.pick([{}, own, {"matchLabels": {"none": "such"}}])
    if scene.p(0.1):
        term[scene.pick(["matchLabelKeys", "mismatchLabelKeys"])] = ["version"]
    return term


def _selector(scene: Scene) -> Json:
    if scene.p(0.8):
        return {"matchLabels": {"app": scene.pick(APPS)}}
    variants: list[Json] = [
        {"operator": "In", "values": scene.some(APPS, 1, 2)},
        {"operator": "NotIn", "values": [scene.pick(APPS)]},
        {"operator": "Exists"},
        {"operator": "DoesNotExist"},
    ]
    return {"matchExpressions": [{"key": "app", **scene.pick(variants)}]}


def prefer_low_ranks(rules: Json) -> None:
    """Add a different preference for each node, unless the pod has preferences, so that no two nodes score equally.

    Args:
        rules: The pod's affinity, which is extended.
    """
    terms = [
        {
            "weight": 100 - 13 * rank,
            "preference": {"matchExpressions": [{"key": RANK, "operator": "In", "values": [str(rank)]}]},
        }
        for rank in range(MOST_NODES)
    ]
    rules.setdefault("nodeAffinity", {}).setdefault(_PREFERRED, terms)


def spread_constraints(scene: Scene) -> list[Json]:
    """Generate one or two topology spread constraints."""
    found = []
    for key in scene.some(["zone", HOST, "disk"], 1, 2):
        hard = scene.p(0.67)
        constraint: Json = {
            "maxSkew": scene.pick([1, 1, 2]),
            "topologyKey": key,
            "labelSelector": _selector(scene),
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        }
        if hard and scene.p(0.2):
            constraint["minDomains"] = scene.r.randint(1, 3)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if scene.p(0.2):
                constraint[policy] = scene.pick(["Honor", "Ignore"])
        if scene.p(0.15):
            constraint["matchLabelKeys"] = ["version"]
        found.append(constraint)
    return found


def toleration(scene: Scene) -> Json:
    """Generate a toleration."""
    if scene.p(0.2):
        return {"operator": "Exists", **({"effect": "NoSchedule"} if scene.p(0.5) else {})}
    key = scene.pick(["dedicated", "other", _CORDON])
    if scene.p(0.5):
        return {"key": key, "operator": "Equal", "value": scene.pick(["a", "b"])}
    return {"key": key, "operator": "Exists"}
