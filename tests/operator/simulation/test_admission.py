"""Tests of the admission of hand-written objects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from bayplan.simulation.admission import AdmittedCluster, admit, admitted_storage, merge_label_keys
from bayplan.simulation.cluster_files import ClusterFiles, Place, Placed

from scheduler_core.errors import ConfigError
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import (
    Container,
    ContainerPort,
    Pod,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from scheduler_core.model.storage import BETA_STORAGE_CLASS, PersistentVolumeClaim, StorageClass, default_class
from scheduler_core.model.taints import Toleration
from scheduler_core.model.workloads import PriorityClass
from tests.support.affinities import affinity_to, term
from tests.support.presence import present
from tests.support.storage import claim
from tests.support.tables import table

NOT_READY = Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute")
UNREACHABLE = Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute")


def files(*objects: Node | Pod, classes: tuple[PriorityClass, ...] = (), notices: tuple[str, ...] = ()) -> ClusterFiles:
    """Return decoded files with these objects, each in its own document."""
    read = ClusterFiles(notices=list(notices))
    for number, each in enumerate(objects, start=1):
        place = Place("f.yaml", number)
        if isinstance(each, Node):
            read.nodes.append(Placed(each, place))
        else:
            read.pods.append(Placed(each, place))
    read.priority_classes = [Placed(each, Place("c.yaml", number)) for number, each in enumerate(classes, start=1)]
    return read


def admitted_pod(spec: PodSpec, *classes: PriorityClass) -> Pod:
    """Return an admitted pod with this spec."""
    (pod,) = admit(files(Pod(ObjectMeta(name="p"), spec), classes=classes)).pods
    return pod


def problems_of(read: ClusterFiles) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        admit(read)
    return [str(problem) for problem in caught.value.problems]


def limit(cpu: str) -> ResourceRequirements:
    """Return a limit without a request."""
    return ResourceRequirements(limits={"cpu": cpu})


def test_a_pod_gets_namespace_and_uid() -> None:
    """A pod without a namespace is in default and gets a unique UID computed from its name."""
    read = files(*(Pod(ObjectMeta(name=name)) for name in ("p", "q")))
    first, second = admit(read).pods
    assert (first.metadata.namespace, first.spec.scheduler_name) == ("default", "default-scheduler")
    assert first.metadata.uid == admit(read).pods[0].metadata.uid != second.metadata.uid


def test_an_admitted_pod_is_unchanged() -> None:
    """A pod that was admitted by an API server is not changed."""
    pod = Pod(
        ObjectMeta(name="p", namespace="shop", uid="u"),
        PodSpec(
            containers=(Container(resources=ResourceRequirements({"cpu": "1"}, {"cpu": "2"})),),
            tolerations=(NOT_READY, UNREACHABLE),
            priority=7,
            priority_class_name="of-the-cluster",
            preemption_policy="Never",
        ),
    )
    assert admit(files(pod)).pods == (pod,)


def test_requests_default_to_limits() -> None:
    """A limit without a request becomes the request; an explicit request is not changed."""
    resources = ResourceRequirements({"cpu": "100m"}, {"cpu": "1", "memory": "1Gi"})
    pod = admitted_pod(
        PodSpec(containers=(Container(resources=resources),), init_containers=(Container(resources=limit("2")),))
    )
    assert pod.spec.containers[0].resources.requests == {"cpu": "100m", "memory": "1Gi"}
    assert pod.spec.init_containers[0].resources.requests == {"cpu": "2"}


@table(
    "limits, of_container, expected",
    ("limit", {"cpu": "4"}, {}, {"cpu": "4"}),
    ("sum of the containers", {"cpu": "4"}, {"cpu": "1500m"}, {"cpu": "1500m"}),
    ("sum and limit", {"cpu": "4"}, {"memory": "1Ki"}, {"cpu": "4", "memory": 1024}),
)
def test_pod_level_requests_default(
    limits: dict[str, str | int | float], of_container: dict[str, str | int | float], expected: dict[str, object]
) -> None:
    """A pod with pod-level limits gets pod-level requests."""
    container = Container(resources=ResourceRequirements(requests=of_container))
    spec = PodSpec(containers=(container,), resources=ResourceRequirements(limits=limits))
    resources = present(admitted_pod(spec).spec.resources)
    assert resources.requests == expected


@table(
    "given, expected",
    (
        "only requests",
        ResourceRequirements(requests={"cpu": "4"}),
        {"cpu": "4", "memory": 1024, "hugepages-2Mi": 2 << 20},
    ),
    (
        "limit of huge pages",
        ResourceRequirements(limits={"hugepages-2Mi": "4Mi"}),
        {"memory": 1024, "hugepages-2Mi": "4Mi"},
    ),
    ("neither requests nor limits", ResourceRequirements(), None),
)
def test_pod_level_requests_are_completed(given: ResourceRequirements, expected: dict[str, object] | None) -> None:
    """A pod with any pod-level resource gets requests for all resources that its containers request."""
    of_container = ResourceRequirements({"memory": "1Ki", "hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"})
    resources = present(
        admitted_pod(PodSpec(containers=(Container(resources=of_container),), resources=given)).spec.resources
    )
    assert resources.requests == (expected or {})


def test_ports_of_the_host_network_are_host_ports() -> None:
    """With hostNetwork every container port is a host port, and an explicit host port is not changed."""
    ports = (ContainerPort(container_port=80), ContainerPort(container_port=81, host_port=8081))
    pod = admitted_pod(PodSpec(host_network=True, containers=(Container(ports=ports),)))
    assert [port.host_port for port in pod.spec.containers[0].ports] == [80, 8081]


@table(
    "given, added",
    ("none", (), (NOT_READY, UNREACHABLE)),
    ("one of two", (NOT_READY,), (UNREACHABLE,)),
    ("all taints", (Toleration(operator="Exists"),), ()),
    (
        "other effect",
        (Toleration(key=NOT_READY.key, operator="Exists", effect="NoSchedule"),),
        (NOT_READY, UNREACHABLE),
    ),
)
def test_default_tolerations(given: tuple[Toleration, ...], added: tuple[Toleration, ...]) -> None:
    """The default tolerations are added unless the pod has its own."""
    assert admitted_pod(PodSpec(tolerations=given)).spec.tolerations == (*given, *added)


def priority_class(
    name: str, value: int, *, default: bool = False, policy: str = "PreemptLowerPriority"
) -> PriorityClass:
    return PriorityClass(ObjectMeta(name=name), value, default, policy)


@table(
    "spec, expected",
    ("default class", PodSpec(), (5, "usual", "Never")),
    ("class", PodSpec(priority_class_name="high"), (9, "high", "PreemptLowerPriority")),
    (
        "built-in class",
        PodSpec(priority_class_name="system-node-critical"),
        (2000001000, "system-node-critical", "PreemptLowerPriority"),
    ),
    ("explicit priority", PodSpec(priority=3), (3, "", "")),
)
def test_priorities_are_resolved(spec: PodSpec, expected: tuple[int, str, str]) -> None:
    """The priority of a pod is that of its class, or that of the default class."""
    found = admitted_pod(spec, priority_class("usual", 5, default=True, policy="Never"), priority_class("high", 9)).spec
    assert (found.priority, found.priority_class_name, found.preemption_policy) == expected


def test_the_default_priority_is_zero() -> None:
    """Without classes a pod has priority 0."""
    assert admitted_pod(PodSpec()).spec.priority == 0


def test_allocatable_defaults_to_capacity() -> None:
    """The allocatable resources of a node default to its capacity."""
    (node,) = admit(files(Node(ObjectMeta(name="n"), status=NodeStatus(capacity={"cpu": "4"})))).nodes
    assert node.status.allocatable == {"cpu": "4"}


def test_objects_are_sorted() -> None:
    """Nodes are sorted by name and pods by namespace and name, as by the API server."""
    cluster: AdmittedCluster = admit(
        files(
            Node(ObjectMeta(name="b")),
            Node(ObjectMeta(name="a")),
            Pod(ObjectMeta(name="a", namespace="z")),
            Pod(ObjectMeta(name="b", namespace="y")),
            Pod(ObjectMeta(name="a", namespace="y")),
        )
    )
    assert [node.metadata.name for node in cluster.nodes] == ["a", "b"]
    assert [pod.key for pod in cluster.pods] == ["y/a", "y/b", "z/a"]


@table(
    "read, problems",
    (
        "duplicate node",
        files(Node(ObjectMeta(name="n")), Node(ObjectMeta(name="n"))),
        [("f.yaml, document 2 (Node n): is already defined in f.yaml, document 1; remove one or give it another name")],
    ),
    (
        "duplicate pod, once without its namespace",
        files(Pod(ObjectMeta(name="p")), Pod(ObjectMeta(name="p", namespace="default"))),
        [
            (
                "f.yaml, document 2 (Pod default/p): is already defined in f.yaml, document 1; "
                "remove one or give it another name"
            )
        ],
    ),
    (
        "duplicate UID",
        files(Pod(ObjectMeta(name="p", uid="u")), Pod(ObjectMeta(name="q", uid="u"))),
        [
            (
                "f.yaml, document 2 (Pod default/q): metadata.uid: must be unique, but pod default/p "
                "(f.yaml, document 1) has the same UID; remove it"
            )
        ],
    ),
    (
        "missing class",
        files(Pod(ObjectMeta(name="p"), PodSpec(priority_class_name="none"))),
        [
            (
                'f.yaml, document 1 (Pod p): spec.priorityClassName: there is no PriorityClass "none"; '
                "add it to the files or correct the name"
            )
        ],
    ),
    (
        "priority that differs from the class",
        files(
            Pod(ObjectMeta(name="p"), PodSpec(priority_class_name="high", priority=3)),
            classes=(priority_class("high", 9),),
        ),
        [
            (
                'f.yaml, document 1 (Pod p): spec.priority: is 3, but the value of PriorityClass "high" is 9; '
                "remove it from the pod"
            )
        ],
    ),
    (
        "two defaults",
        files(classes=(priority_class("a", 1, default=True), priority_class("b", 2, default=True))),
        [
            (
                "c.yaml, document 2 (PriorityClass b): globalDefault: is already true in c.yaml, document 1; "
                "only one PriorityClass can be the default"
            )
        ],
    ),
    (
        "quantity of a node",
        files(Node(ObjectMeta(name="n"), status=NodeStatus(allocatable={"cpu": "1x"}))),
        [
            (
                'f.yaml, document 1 (Node n): status.allocatable[cpu]: "1x" is not a quantity: write a number '
                "with an optional suffix, as 500m, 2 or 1.5Gi"
            )
        ],
    ),
    (
        "quantity of a pod",
        files(Pod(ObjectMeta(name="p"), PodSpec(containers=(Container(resources=limit("one")),)))),
        [
            (
                'f.yaml, document 1 (Pod p): spec.containers[0].resources.limits[cpu]: "one" is not a quantity: '
                "write a number with an optional suffix, as 500m, 2 or 1.5Gi"
            )
        ],
    ),
)
def test_invalid_objects_are_rejected(read: ClusterFiles, problems: list[str]) -> None:
    """An object that an API server would reject is reported with its place, and with that of a second object."""
    assert problems_of(read) == problems


LABELS = {"app": "web", "pod-template-hash": "abc"}
APP = Requirement("app", "In", ("web",))
HASH = Requirement("pod-template-hash", "In", ("abc",))
NOT_HASH = Requirement("pod-template-hash", "NotIn", ("abc",))


@table(
    "selector, keys, expected",
    ("key", LabelSelector(), ("pod-template-hash",), LabelSelector({}, (HASH,))),
    ("key after other requirements", LabelSelector({}, (APP,)), ("pod-template-hash",), LabelSelector({}, (APP, HASH))),
    ("key that the pod does not have", LabelSelector(), ("missing",), LabelSelector()),
    ("no selector", None, ("pod-template-hash",), None),
    ("already merged", LabelSelector({}, (HASH,)), ("pod-template-hash",), LabelSelector({}, (HASH,))),
    ("no keys", LabelSelector(), (), LabelSelector()),
)
def test_spread_constraints(
    selector: LabelSelector | None, keys: tuple[str, ...], expected: LabelSelector | None
) -> None:
    """The label keys of a spread constraint restrict its selector to pods with the same values."""
    constraint = TopologySpreadConstraint(label_selector=selector, match_label_keys=keys)
    (merged,) = merge_label_keys(PodSpec(topology_spread_constraints=(constraint,)), LABELS).topology_spread_constraints
    assert merged.label_selector == expected


def test_affinity_terms() -> None:
    """Label keys are merged into required and preferred terms, mismatchLabelKeys with operator NotIn."""

    def terms(same: LabelSelector, other: LabelSelector) -> PodAffinity:
        required = PodAffinityTerm(label_selector=same, match_label_keys=("pod-template-hash",))
        preferred = PodAffinityTerm(label_selector=other, mismatch_label_keys=("pod-template-hash",))
        return present(affinity_to(required, preferred=[(1, preferred)]).pod_affinity)

    given = terms(LabelSelector(), LabelSelector())
    merged = merge_label_keys(PodSpec(affinity=Affinity(pod_affinity=given, pod_anti_affinity=given)), LABELS).affinity
    expected = terms(LabelSelector({}, (HASH,)), LabelSelector({}, (NOT_HASH,)))
    assert merged == Affinity(pod_affinity=expected, pod_anti_affinity=expected)


def test_a_pod_without_keys_is_unchanged() -> None:
    """A pod spec without label keys is returned as the same object."""
    spec = PodSpec(affinity=affinity_to(term(LabelSelector())))
    assert merge_label_keys(spec, LABELS) is spec


DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


def annotated_class(
    name: str, day: int | None = None, annotation: str = DEFAULT_ANNOTATION, value: str = "true"
) -> StorageClass:
    """Return a class with the annotation of a default class, created on this day of January."""
    created = None if day is None else datetime(2026, 1, day, tzinfo=UTC)
    return StorageClass(AnnotatedMeta(name, creation_timestamp=created, annotations={annotation: value}))


@table(
    "classes, name",
    ("no class", [], None),
    ("no default", [annotated_class("a", value="false")], None),
    ("one default", [annotated_class("a", value="false"), annotated_class("b")], "b"),
    ("beta annotation", [annotated_class("a", annotation="storageclass.beta.kubernetes.io/is-default-class")], "a"),
    ("newest", [annotated_class("a", 1), annotated_class("b", 3), annotated_class("c", 2)], "b"),
    ("first by name", [annotated_class("b", 1), annotated_class("a", 1)], "a"),
    ("class of a cluster before a hand-written class", [annotated_class("b"), annotated_class("a", 1)], "a"),
)
def test_the_default_class(classes: list[StorageClass], name: str | None) -> None:
    """Of several default classes the newest is used."""
    assert default_class(classes) == name


@table(
    "given, name",
    ("no class", claim(storage_class=None), "default"),
    ("empty name", claim(storage_class=""), ""),
    ("class", claim(storage_class="own"), "own"),
    ("class by beta annotation", claim(storage_class=None, annotations={BETA_STORAGE_CLASS: "old"}), "old"),
)
def test_a_claim_keeps_the_class_that_it_names(given: PersistentVolumeClaim, name: str) -> None:
    """Only a claim without a class gets the default class."""
    admitted = admitted_storage(given, "default")
    assert isinstance(admitted, PersistentVolumeClaim)
    assert admitted.class_name == name


def test_the_default_binding_mode_is_immediate() -> None:
    """The admitted class has binding mode Immediate and the type that the scheduler uses."""
    admitted = admitted_storage(annotated_class("a"), None)
    assert type(admitted) is StorageClass
    assert admitted.volume_binding_mode == "Immediate"
