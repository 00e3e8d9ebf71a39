"""Additions of rare notations, operators, pod states and features of other families to a case.

The result may be invalid; the oracle then rejects it like the API server, and the case is omitted.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.parity.oracle.generation.clusters import new_pod, run_on
from tests.parity.oracle.generation.node_rules import (
    add_tolerations,
    declared_features,
    node_affinity,
    put_ports,
    put_taints,
)
from tests.parity.oracle.generation.pod_rules import label_selector, pod_affinity
from tests.parity.oracle.generation.preemption import pdb
from tests.parity.oracle.generation.profiles import any_profile
from tests.parity.oracle.generation.requests import more_resources, resized
from tests.parity.oracle.generation.spreading import spread_constraints, workload_of
from tests.parity.oracle.generation.storage import DRIVERS, csi_nodes, storage_class
from tests.parity.oracle.generation.volumes import volumes_of_kind
from tests.parity.oracle.generation.world import ARCH, HOST, RACK, REGION, TEAMS, ZONE, Json, World

ODD_CPU = ["0", "1n", "100u", "0.5", "1.5", "1500000n", "2e0", "12e-1", "0.0015", "1m", "999999999n", "3.1415", "+1"]
ODD_MEMORY = [
    "0",
    "1",
    "1Ki",
    "0.1Gi",
    "1.5Mi",
    "128974848000m",
    "123Mi",
    "1e8",
    "129e6",
    "1E3",
    "0.001Gi",
    "100M",
    "7k",
]
ODD_LIMITS = ["0", "1", "1.5", "3920m", "7.91", "15.5Gi", "16e9", "4Gi", "1Ti", "8589934591", "100000", "1e3"]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def bend(w: World) -> None:
    """Change a generated case in one to five ways."""
    for change in w.some(CHANGES, 1, 5):
        change(w)
    if w.p(0.05):
        _few_nodes(w)
    if w.p(0.2):
        # This change is last, because the other changes cannot read such notations.
        _odd_requests(w)


def _odd_requests(w: World) -> None:
    for pod in [w.pod, *w.some(w.pods, 0, 4)]:
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            requests = container.setdefault("resources", {}).setdefault("requests", {})
            if w.p(0.6):
                requests["cpu"] = w.pick(ODD_CPU)
            if w.p(0.6):
                requests["memory"] = w.pick(ODD_MEMORY)
            if w.p(0.2):
                requests["ephemeral-storage"] = w.pick(ODD_MEMORY)


def _odd_nodes(w: World) -> None:
    for node in w.some(w.nodes, 1, 4):
        allocatable = node["status"]["allocatable"]
        name = w.pick(["cpu", "memory", "pods", "ephemeral-storage", "example.com/gpu"])
        if w.p(0.2):
            allocatable.pop(name, None)
        elif name in {"pods", "example.com/gpu"}:
            allocatable[name] = w.pick(["0", "1", "3", "1e1", "100000"])
        else:
            allocatable[name] = w.pick(ODD_LIMITS)


def _requests_of_all_kinds(w: World) -> None:
    for pod in [w.pod, *w.some(w.pods, 0, 6)]:
        _more_resources(w, pod)


def _more_resources(w: World, pod: Json) -> None:
    """Add resources once a pod, because names of containers must be unique."""
    if len(pod["spec"]["containers"]) == 1 and "initContainers" not in pod["spec"]:
        more_resources(w, pod, incoming=pod is w.pod)


def _many_resources(w: World) -> None:
    names = [f"vendor-{letter}.io/unit" for letter in "abcdef"]
    for node in w.nodes:
        for name in w.some(names, 2, 6):
            node["status"]["allocatable"][name] = str(w.pick([0, 1, 3, 8]))
    for pod in [w.pod, *w.some(w.pods, 0, 5)]:
        limits = pod["spec"]["containers"][0].setdefault("resources", {}).setdefault("limits", {})
        limits.update({name: str(w.pick([1, 2, 4])) for name in w.some(names, 1, 3)})


def _resizes(w: World) -> None:
    for pod in w.some(w.pods, 1, 6):
        resized(w, pod)


def _unlabelled_nodes(w: World) -> None:
    for node in w.some(w.nodes, 1, 4):
        for key in w.some([HOST, ZONE, REGION, ARCH, RACK], 1, 3):
            node["metadata"]["labels"].pop(key, None)
        if w.p(0.3):
            node["metadata"]["labels"][w.pick([ZONE, HOST, RACK])] = ""
        if w.p(0.2):
            node["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"] = "zone-a"


def _few_nodes(w: World) -> None:
    del w.nodes[w.pick([0, 1, 1, 2]) :]


def _states_of_pods(w: World) -> None:
    for pod in w.some(w.pods, 1, 8):
        kind = w.pick(["terminating", "ended", "pending", "unknown", "astray", "condemned"])
        if kind in {"terminating", "condemned"}:
            pod["metadata"]["deletionTimestamp"] = "2026-03-25T00:00:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = 30
        if kind == "condemned":
            pod["status"]["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "lastTransitionTime": "2026-03-25T00:00:00Z",
                }
            ]
        elif kind == "ended":
            pod["status"]["phase"] = w.pick(["Succeeded", "Failed"])
        elif kind == "pending":
            pod["status"]["phase"] = "Pending"
        elif kind == "unknown":
            pod["status"]["phase"] = "Unknown"
        elif kind == "astray" and pod["spec"].get("nodeName"):
            pod["spec"]["nodeName"] = "node-that-left"


def _nominations(w: World) -> None:
    for number in range(w.r.randint(1, 4)):
        pod = new_pod(
            w,
            f"hopeful-{number}",
            c=w.pick([100, 500, 1500]),
            m=w.pick([64, 512]),
            prio=w.pick(["background", "normal", "high", "top"]),
        )
        _any_feature(w, pod)
        nominated = w.pick(w.nodes)["metadata"]["name"] if w.nodes and w.p(0.9) else "gone"
        pod["status"].update({"phase": "Pending", "nominatedNodeName": nominated})
        w.pods.append(pod)
    if w.nodes and w.p(0.3):
        w.pod["status"]["nominatedNodeName"] = w.pick(w.nodes)["metadata"]["name"]


def _any_feature(w: World, pod: Json) -> None:
    """Add features that a pod in any state can have."""
    if w.p(0.4):
        pod_affinity(w, pod, w.pod["metadata"]["labels"])
    if w.p(0.3) and len(pod["spec"]["containers"]) == 1 and "initContainers" not in pod["spec"]:
        put_ports(w, pod, incoming=True)
    if w.p(0.3):
        _more_resources(w, pod)


def _namespace_selectors(w: World) -> None:
    for pod in [w.pod, *w.some(w.pods, 0, 8)]:
        pod_affinity(w, pod, w.pod["metadata"]["labels"], req_aff=0.3, pref_aff=0.5, req_anti=0.5, pref_anti=0.5)
        for terms in pod["spec"].get("affinity", {}).values():
            for group in terms.values() if isinstance(terms, dict) else ():
                for term in group if isinstance(group, list) else ():
                    _select_namespaces(w, term.get("podAffinityTerm", term))


def _select_namespaces(w: World, term: Json) -> None:
    if "topologyKey" not in term:
        return
    selectors: list[Json] = [
        {},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": w.some(TEAMS, 1, 2)}]},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "env", "operator": "Exists"}, {"key": "team", "operator": "Exists"}]},
        {"matchLabels": {"team": "absent"}},
        {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    ]
    if w.p(0.7):
        term["namespaceSelector"] = w.pick(selectors)
    if w.p(0.2):
        term["labelSelector"] = w.pick([{}, label_selector(w)])
    elif w.p(0.1):
        for key in ("labelSelector", "matchLabelKeys", "mismatchLabelKeys"):
            term.pop(key, None)


def _node_operators(w: World) -> None:
    node_affinity(w, w.pod, required=0.8, preferred=0.8, selector=0.2)
    affinity = w.pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    terms += [entry["preference"] for entry in affinity.get(PREFERRED, [])]
    for term in terms:
        for requirement in term.get("matchExpressions", []):
            if w.p(0.4):
                operator = w.pick(["Gt", "Lt"])
                requirement.update(key="gen", operator=operator, values=[w.pick(["0", "5", "007", "9", "12"])])
        if w.p(0.15):
            names = [node["metadata"]["name"] for node in w.some(w.nodes, 1, 1)] or ["ghost"]
            field = {"key": "metadata.name", "operator": w.pick(["In", "NotIn"]), "values": names}
            term.setdefault("matchFields", []).append(field)


def _spread(w: World) -> None:
    labels = w.pod["metadata"]["labels"]
    constraints = spread_constraints(w, labels, hard=w.pick([0.0, 0.5, 1.0]))
    for constraint in constraints:
        if w.p(0.15):
            constraint["labelSelector"] = {}
        if w.p(0.15):
            constraint["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
        if w.p(0.2):
            constraint["topologyKey"] = w.pick(["disk", "pool", "absent", ARCH])
    kept = {(each["topologyKey"], each["whenUnsatisfiable"]): each for each in constraints}
    w.pod["spec"]["topologySpreadConstraints"] = list(kept.values())


def _default_spread(w: World) -> None:
    w.pod["spec"].pop("topologySpreadConstraints", None)
    if not (w.services or w.rss or w.rcs or w.stss):
        w.pod["metadata"]["labels"].setdefault("app", "web")
        workload_of(w, w.pod)
    for pod in w.some(w.pods, 1, 10):
        pod["metadata"]["labels"]["app"] = w.pod["metadata"]["labels"].get("app", "web")
        pod["metadata"]["namespace"] = w.pod["metadata"]["namespace"]


def _volumes(w: World) -> None:
    if not any(each["metadata"]["name"] == "fast" for each in w.classes):
        storage_class(w, "fast", w.pick(DRIVERS), w.p(0.3))
    kinds = ["bound", "static", "dynamic", "limits", "rwop", "legacy", "ephemeral", "immediate"]
    for number, kind in enumerate(w.some(kinds, 1, 2)):
        volumes_of_kind(w, kind, tag=f"-more{number}")
    if not w.csinodes and w.p(0.5):
        csi_nodes(w, [0, 1, 2])


def _budgets(w: World) -> None:
    for number in range(w.r.randint(1, 3)):
        selector = w.pick([{}, None, label_selector(w), label_selector(w)])
        pdb(w, 50 + number, w.pick(w.namespaces)["metadata"]["name"], selector or {}, w.pick([0, 0, 1, 2]))
        if selector is None:
            w.pdbs[-1]["spec"].pop("selector")


def _urgency(w: World) -> None:
    values = {"high": 1000, "top": 100000, "standard": 100}
    name = w.pick(list(values))
    w.pod["spec"].update(priority=values[name], priorityClassName=name)
    for pod in w.pods:
        if pod["spec"].get("nodeName") and w.p(0.3):
            pod["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {})["cpu"] = "2"


def _images(w: World) -> None:
    refs = ["app:v1", "web:2", "db:16", "side:1"]
    for node in w.nodes:
        sizes = w.some(refs, 0, 4)
        node["status"]["images"] = [
            {"names": [ref], "sizeBytes": w.pick([20, 90, 400, 3000]) * 1_000_000} for ref in sizes
        ]


def _other_profile(w: World) -> None:
    if w.profile is None:
        any_profile(w)


def _crowd(w: World) -> None:
    if not w.nodes:
        return
    for number in range(w.r.randint(3, 12)):
        pod = new_pod(w, f"crowd-{number}", c=w.pick([None, 100, 700]), m=w.pick([None, 100, 700]))
        _any_feature(w, pod)
        run_on(w, pod, w.pick(w.nodes)["metadata"]["name"])


CHANGES: list[Callable[[World], None]] = [
    _odd_nodes,
    _requests_of_all_kinds,
    _many_resources,
    _resizes,
    _unlabelled_nodes,
    _states_of_pods,
    _nominations,
    _namespace_selectors,
    _node_operators,
    _spread,
    _default_spread,
    _volumes,
    _budgets,
    _urgency,
    _images,
    _other_profile,
    _crowd,
    lambda w: _any_feature(w, w.pod),
    lambda w: put_taints(w, 0.5),
    lambda w: add_tolerations(w, w.pod, 4),
    declared_features,
]
