"""Tests of what the API server would have done to hand-written objects."""

import pytest
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import ClusterFiles, Place, Placed

from scheduler_core.errors import ConfigError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import Container, ContainerPort, Pod, PodSpec, ResourceRequirements
from scheduler_core.model.priority_class import PriorityClass
from scheduler_core.model.taints import Toleration

NOT_READY = Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute")
UNREACHABLE = Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute")


def files(*objects: Node | Pod, classes: tuple[PriorityClass, ...] = (), notices: tuple[str, ...] = ()) -> ClusterFiles:
    """Objects as read, each in a document of its own."""
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
    """A pod of that spec, admitted."""
    (pod,) = admit(files(Pod(ObjectMeta(name="p"), spec), classes=classes)).pods
    return pod


def problems_of(read: ClusterFiles) -> list[str]:
    """What is refused."""
    with pytest.raises(ConfigError) as caught:
        admit(read)
    return [str(problem) for problem in caught.value.problems]


def limit(cpu: str) -> ResourceRequirements:
    """A limit, and no requests."""
    return ResourceRequirements(limits={"cpu": cpu})


def test_fills_in_what_identifies_a_pod() -> None:
    """A pod without a namespace is in default; its UID follows from its name and differs from another's."""
    read = files(*(Pod(ObjectMeta(name=name)) for name in ("p", "q")))
    first, second = admit(read).pods
    assert (first.metadata.namespace, first.spec.scheduler_name) == ("default", "default-scheduler")
    assert first.metadata.uid == admit(read).pods[0].metadata.uid != second.metadata.uid


def test_leaves_what_an_api_server_has_admitted() -> None:
    """A pod that went through an API server comes out as it went in."""
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
    """A limit without a request is the request; a request stays."""
    resources = ResourceRequirements({"cpu": "100m"}, {"cpu": "1", "memory": "1Gi"})
    pod = admitted_pod(
        PodSpec(containers=(Container(resources=resources),), init_containers=(Container(resources=limit("2")),))
    )
    assert pod.spec.containers[0].resources.requests == {"cpu": "100m", "memory": "1Gi"}
    assert pod.spec.init_containers[0].resources.requests == {"cpu": "2"}


@pytest.mark.parametrize(
    ("limits", "of_container", "expected"),
    [
        pytest.param({"cpu": "4"}, {}, {"cpu": "4"}, id="the limit"),
        pytest.param({"cpu": "4"}, {"cpu": "1500m"}, {"cpu": "1500m"}, id="the containers' sum"),
        pytest.param({"cpu": "4"}, {"memory": "1Ki"}, {"cpu": "4", "memory": 1024}, id="both"),
    ],
)
def test_pod_level_requests_default(
    limits: dict[str, str | int | float], of_container: dict[str, str | int | float], expected: dict[str, object]
) -> None:
    """A pod with limits as a whole has requests as a whole."""
    container = Container(resources=ResourceRequirements(requests=of_container))
    spec = PodSpec(containers=(container,), resources=ResourceRequirements(limits=limits))
    resources = admitted_pod(spec).spec.resources
    assert resources is not None
    assert resources.requests == expected


def test_ports_of_the_host_network_are_host_ports() -> None:
    """With hostNetwork every port is taken of the node; one that is given stays."""
    ports = (ContainerPort(container_port=80), ContainerPort(container_port=81, host_port=8081))
    pod = admitted_pod(PodSpec(host_network=True, containers=(Container(ports=ports),)))
    assert [port.host_port for port in pod.spec.containers[0].ports] == [80, 8081]


@pytest.mark.parametrize(
    ("given", "added"),
    [
        pytest.param((), (NOT_READY, UNREACHABLE), id="none"),
        pytest.param((NOT_READY,), (UNREACHABLE,), id="one"),
        pytest.param((Toleration(operator="Exists"),), (), id="everything"),
        pytest.param(
            (Toleration(key=NOT_READY.key, operator="Exists", effect="NoSchedule"),),
            (NOT_READY, UNREACHABLE),
            id="another effect",
        ),
    ],
)
def test_tolerates_for_a_while(given: tuple[Toleration, ...], added: tuple[Toleration, ...]) -> None:
    """The default tolerations are added where the pod says nothing of them."""
    assert admitted_pod(PodSpec(tolerations=given)).spec.tolerations == (*given, *added)


def priority_class(
    name: str, value: int, *, default: bool = False, policy: str = "PreemptLowerPriority"
) -> PriorityClass:
    return PriorityClass(ObjectMeta(name=name), value, default, policy)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(PodSpec(), (5, "usual", "Never"), id="the default class"),
        pytest.param(PodSpec(priority_class_name="high"), (9, "high", "PreemptLowerPriority"), id="a class"),
        pytest.param(
            PodSpec(priority_class_name="system-node-critical"),
            (2000001000, "system-node-critical", "PreemptLowerPriority"),
            id="a built-in class",
        ),
        pytest.param(PodSpec(priority=3), (3, "", ""), id="as given"),
    ],
)
def test_resolves_priorities(spec: PodSpec, expected: tuple[int, str, str]) -> None:
    """A pod's priority is its class's, else the default class's."""
    found = admitted_pod(spec, priority_class("usual", 5, default=True, policy="Never"), priority_class("high", 9)).spec
    assert (found.priority, found.priority_class_name, found.preemption_policy) == expected


def test_no_class_is_priority_zero() -> None:
    """Without classes a pod has priority 0."""
    assert admitted_pod(PodSpec()).spec.priority == 0


def test_allocatable_defaults_to_capacity() -> None:
    """A node with capacity only offers all of it."""
    (node,) = admit(files(Node(ObjectMeta(name="n"), status=NodeStatus(capacity={"cpu": "4"})))).nodes
    assert node.status.allocatable == {"cpu": "4"}


def test_lists_as_the_api_server_does() -> None:
    """Nodes come by name, pods by namespace and name."""
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


@pytest.mark.parametrize(
    ("read", "problems"),
    [
        pytest.param(
            files(Node(ObjectMeta(name="n")), Node(ObjectMeta(name="n"))),
            ["f.yaml, document 2 (Node n): stands in f.yaml, document 1 already; remove one or give it another name"],
            id="a node twice",
        ),
        pytest.param(
            files(Pod(ObjectMeta(name="p")), Pod(ObjectMeta(name="p", namespace="default"))),
            [
                (
                    "f.yaml, document 2 (Pod default/p): stands in f.yaml, document 1 already; "
                    "remove one or give it another name"
                )
            ],
            id="a pod twice, once without its namespace",
        ),
        pytest.param(
            files(Pod(ObjectMeta(name="p", uid="u")), Pod(ObjectMeta(name="q", uid="u"))),
            [
                (
                    "f.yaml, document 2 (Pod default/q): metadata.uid: is that of pod default/p (f.yaml, document 1); "
                    "remove it, each pod has its own"
                )
            ],
            id="a UID twice",
        ),
        pytest.param(
            files(Pod(ObjectMeta(name="p"), PodSpec(priority_class_name="none"))),
            [
                (
                    'f.yaml, document 1 (Pod p): spec.priorityClassName: there is no PriorityClass "none"; '
                    "add it to the files or correct the name"
                )
            ],
            id="no such class",
        ),
        pytest.param(
            files(
                Pod(ObjectMeta(name="p"), PodSpec(priority_class_name="high", priority=3)),
                classes=(priority_class("high", 9),),
            ),
            [
                (
                    'f.yaml, document 1 (Pod p): spec.priority: is 3, but PriorityClass "high" says 9; '
                    "remove it from the pod"
                )
            ],
            id="another priority than the class's",
        ),
        pytest.param(
            files(classes=(priority_class("a", 1, default=True), priority_class("b", 2, default=True))),
            [
                (
                    "c.yaml, document 2 (PriorityClass b): globalDefault: is true in c.yaml, document 1 already; "
                    "only one PriorityClass can be the default"
                )
            ],
            id="two defaults",
        ),
        pytest.param(
            files(Node(ObjectMeta(name="n"), status=NodeStatus(allocatable={"cpu": "1x"}))),
            [
                (
                    'f.yaml, document 1 (Node n): status.allocatable[cpu]: "1x" is not a quantity: write a number '
                    "with an optional suffix, as 500m, 2 or 1.5Gi"
                )
            ],
            id="a node's quantity",
        ),
        pytest.param(
            files(Pod(ObjectMeta(name="p"), PodSpec(containers=(Container(resources=limit("one")),)))),
            [
                (
                    'f.yaml, document 1 (Pod p): spec.containers[0].resources.limits[cpu]: "one" is not a quantity: '
                    "write a number with an optional suffix, as 500m, 2 or 1.5Gi"
                )
            ],
            id="a pod's quantity",
        ),
    ],
)
def test_refuses_what_the_api_server_would(read: ClusterFiles, problems: list[str]) -> None:
    """What cannot be in one cluster is refused, with both places where there are two."""
    assert problems_of(read) == problems
