"""Tests of simulations with volumes, disruption budgets, services and namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import SimulationResult, simulate

from scheduler_core.errors import ConfigError
from tests.support.presence import present
from tests.support.tables import table

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str = "a", cpu: str = "4") -> str:
    return (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{HOST}: {name}, {ZONE}: {zone}}}}}\n"
        f'status: {{allocatable: {{cpu: "{cpu}", memory: 8Gi, pods: "110"}}}}\n'
    )


def pod(name: str, spec: str = "", labels: str = "", cpu: str = "1") -> str:
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        f'spec:\n  containers: [{{name: c, image: x, resources: {{requests: {{cpu: "{cpu}"}}}}}}]\n{spec}'
    )


def pod_with_claim(name: str, claim: str = "data") -> str:
    return pod(name, f"  volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]\n")


def claim(name: str = "data", fields: str = "storageClassName: local, ") -> str:
    return (
        f"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n"
        f"spec: {{{fields}accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 5Gi}}}}}}\n"
    )


def volume(name: str, on: str, fields: str = "storageClassName: local, ", size: str = "5Gi") -> str:
    terms = f"[{{matchExpressions: [{{key: {HOST}, operator: In, values: [{on}]}}]}}]"
    return (
        f"apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n"
        f"spec: {{{fields}local: {{path: /a}}, accessModes: [ReadWriteOnce], capacity: {{storage: {size}}}, "
        f"nodeAffinity: {{required: {{nodeSelectorTerms: {terms}}}}}}}\n"
    )


def storage_class(fields: str, name: str = "local", annotations: str = "") -> str:
    return (
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\n"
        f"metadata: {{name: {name}, annotations: {{{annotations}}}}}\n{fields}\n"
    )


NO_PROVISIONER = "provisioner: kubernetes.io/no-provisioner"
WAITS = f"{NO_PROVISIONER}\nvolumeBindingMode: WaitForFirstConsumer"
CSI = "provisioner: csi.example.com"
CSI_WAITS = f"{CSI}\nvolumeBindingMode: WaitForFirstConsumer"
IN_ZONE_B = f"allowedTopologies: [{{matchLabelExpressions: [{{key: {ZONE}, values: [b]}}]}}]"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


def simulate_documents(path: Path, *documents: str) -> SimulationResult:
    file = path / "cluster.yaml"
    file.write_text("---\n".join(documents), encoding="utf-8")
    return simulate(admit(read_cluster_files([str(file)])))


def nodes_of(result: SimulationResult) -> dict[str, str]:
    return {placement.name: placement.node or "" for placement in result.pods}


@table(
    "documents, expected",
    ("WaitForFirstConsumer, existing volume", (storage_class(WAITS), claim(), volume("pv", "n2")), "n2"),
    ("WaitForFirstConsumer, new volume", (storage_class(CSI_WAITS), claim()), "any"),
    ("WaitForFirstConsumer, new volume in one zone", (storage_class(f"{CSI_WAITS}\n{IN_ZONE_B}"), claim()), "n2"),
    ("Immediate, new volume", (storage_class(f"{CSI}\n{IN_ZONE_B}"), claim()), "n2"),
    ("Immediate, existing volume", (storage_class(NO_PROVISIONER), claim(), volume("pv", "n2")), "n2"),
    ("missing class, smallest volume", (claim(), volume("a", "n1", size="9Gi"), volume("b", "n2")), "n2"),
    ("claim with volumeName", (claim(fields="volumeName: pv, "), volume("pv", "n2", "")), "n2"),
    (
        "volume with claimRef",
        (
            storage_class(WAITS),
            claim(),
            volume("pv", "n2", "storageClassName: local, claimRef: {namespace: default, name: data}, "),
            volume("free", "n1"),
        ),
        "n2",
    ),
    (
        "default class",
        (
            storage_class(
                f"{CSI_WAITS}\n{IN_ZONE_B}", annotations="storageclass.kubernetes.io/is-default-class: 'true'"
            ),
            storage_class(WAITS, "other"),
            claim(fields=""),
        ),
        "n2",
    ),
)
def test_a_claim_determines_the_node_of_its_pod(tmp_path: Path, documents: tuple[str, ...], expected: str) -> None:
    """A pod is scheduled to a node from which the volume of its claim is accessible."""
    result = simulate_documents(tmp_path, node("n1", "a"), node("n2", "b"), pod_with_claim("p"), *documents)
    (placement,) = result.pods
    assert placement.reason is None
    assert placement.node in ({"n1", "n2"} if expected == "any" else {expected})


@table(
    "documents, reason",
    ("missing claim", (), 'persistentvolumeclaim "data" not found'),
    ("no class and no volume", (claim(),), UNBOUND),
    ("too small volume", (storage_class(NO_PROVISIONER), claim(), volume("pv", "n1", size="4Gi")), UNBOUND),
    ("missing volume", (claim(fields="volumeName: gone, "),), UNBOUND),
    ("no volume", (storage_class(WAITS), claim()), "didn't find available persistent volumes to bind"),
    ("volume of another node", (storage_class(WAITS), claim(), volume("pv", "n9")), "didn't find available"),
)
def test_a_pod_with_an_unbindable_claim_is_unschedulable(
    tmp_path: Path, documents: tuple[str, ...], reason: str
) -> None:
    """A pod whose claim cannot be bound is unschedulable, with the scheduler's message."""
    (placement,) = simulate_documents(tmp_path, node("n1"), pod_with_claim("p"), *documents).pods
    assert placement.node is None
    assert reason in present(placement.reason)


def test_a_volume_serves_one_claim(tmp_path: Path) -> None:
    """If two claims match one volume, the second pod is unschedulable."""
    documents = (claim("a"), claim("b"), pod_with_claim("pa", "a"), pod_with_claim("pb", "b"))
    result = simulate_documents(tmp_path, node("n1"), storage_class(WAITS), volume("pv", "n1"), *documents)
    assert sorted(nodes_of(result).values()) == ["", "n1"]


BUDGET = (
    "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: keep}\n"
    "spec: {selector: {matchLabels: {app: kept}}}\nstatus: {disruptionsAllowed: 0}\n"
)


@table(
    "documents, node_name",
    ("no disruption allowed", (BUDGET,), "n2"),
    ("one disruption allowed", (BUDGET.replace("Allowed: 0", "Allowed: 1"),), "n1"),
    ("no budget", (), "n1"),
)
def test_a_budget_redirects_preemption(tmp_path: Path, documents: tuple[str, ...], node_name: str) -> None:
    """Pods of a budget that allows no disruption are not evicted if other victims suffice."""
    kept = pod("kept", "  nodeName: n1\n  priority: 1\n", "app: kept", cpu="4")
    other = pod("other", "  nodeName: n2\n  priority: 2\n", "app: other", cpu="4")
    wants = pod("wants", "  priority: 9\n", cpu="3")
    result = simulate_documents(tmp_path, node("n1"), node("n2"), kept, other, wants, *documents)
    assert nodes_of(result) == {"wants": node_name}
    victim = {"n1": "kept", "n2": "other"}[node_name]
    assert result.notices == (f"1 running pod is preempted, such as default/{victim} on {node_name}",)


@table(
    "selector, zones", ("selected", "app: web", {"a": 2, "b": 2}), ("another service", "app: other", {"a": 0, "b": 4})
)
def test_a_service_spreads_its_pods(tmp_path: Path, selector: str, zones: dict[str, int]) -> None:
    """Pods without spread constraints are spread if a service selects them, even onto a fuller node."""
    spec = f"{{ports: [{{port: 80}}], selector: {{{selector}}}}}"
    service = f"apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {spec}\n"
    profile = (
        "apiVersion: bayplan.dev/v1alpha1\nkind: SchedulerProfile\nmetadata: {name: default-scheduler}\n"
        "spec:\n  pluginConfig:\n  - name: NodeResourcesFit\n"
        "    args: {scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 1}]}}\n"
        "  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}\n"
    )
    pods = [pod(f"p{number}", labels="app: web", cpu="100m") for number in range(4)]
    result = simulate_documents(tmp_path, node("n1", "a"), node("n2", "b", cpu="400"), service, profile, *pods)
    names = list(nodes_of(result).values())
    assert {"a": names.count("n1"), "b": names.count("n2")} == zones


@table(
    "selector, node_name",
    ("every namespace", "{}", "n1"),
    ("by name", "{matchLabels: {kubernetes.io/metadata.name: default}}", "n1"),
    ("by label", "{matchLabels: {team: a}}", "n1"),
    ("other label", "{matchLabels: {team: b}}", ""),
)
def test_namespaces_are_selected(tmp_path: Path, selector: str, node_name: str) -> None:
    """A namespace has its labels and a label with its name."""
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: a}}\n"
    term = f"{{topologyKey: {HOST}, labelSelector: {{matchLabels: {{app: db}}}}, namespaceSelector: {selector}}}"
    required = f"  affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}\n"
    near = pod("near", required).replace("name: near", "name: near, namespace: shop")
    database = pod("db", "  nodeName: n1\n", "app: db")
    result = simulate_documents(tmp_path, node("n1"), node("n2"), namespace, database, near)
    assert nodes_of(result) == {"near": node_name}


def test_owners_without_pods_are_reported(tmp_path: Path) -> None:
    """A notice reports a hand-written owner, of which only the selector is used."""
    template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}"
    spec = f"spec: {{selector: {{matchLabels: {{a: b}}}}, template: {template}}}\n"
    kind = f"apiVersion: apps/v1\nkind: StatefulSet\n{spec}"
    written = f"{kind}metadata: {{name: a}}\n"
    from_cluster = f"{kind}metadata: {{name: b, uid: b}}\n"
    assert simulate_documents(tmp_path, written, from_cluster).notices == (
        "1 StatefulSet is used only for its pod selector; add the pods to the files",
    )


@table(
    "documents, problem",
    (
        "size of a volume",
        (volume("pv", "n", size="plenty"),),
        "cluster.yaml, document 1 (PersistentVolume pv): spec.capacity[storage]: must be",
    ),
    (
        "size of a claim",
        (claim().replace("5Gi", "plenty"),),
        "cluster.yaml, document 1 (PersistentVolumeClaim data): spec.resources.requests[storage]: must be",
    ),
    (
        "duplicate claim",
        (claim(), claim().replace("{name: data}", "{name: data, namespace: default}")),
        ("cluster.yaml, document 2 (PersistentVolumeClaim default/data): is already defined in "),
    ),
    (
        "duplicate class",
        (storage_class(CSI), storage_class(WAITS)),
        "cluster.yaml, document 2 (StorageClass local): is already defined in ",
    ),
    (
        "selector of a claim",
        (claim(fields="selector: {matchExpressions: [{key: a, operator: Near}]}, "),),
        "cluster.yaml, document 1 (PersistentVolumeClaim data): spec.selector.matchExpressions[0].operator: ",
    ),
)
def test_invalid_objects_are_rejected(tmp_path: Path, documents: tuple[str, ...], problem: str) -> None:
    """An object that an API server would reject is reported with its place."""
    with pytest.raises(ConfigError) as caught:
        simulate_documents(tmp_path, *documents)
    (found,) = caught.value.problems
    assert str(found).replace(f"{tmp_path}/", "").startswith(problem)
