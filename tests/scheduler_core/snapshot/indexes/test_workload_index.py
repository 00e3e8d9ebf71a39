"""Default selector of a pod: the combined selectors of its Services and its owner."""

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import LabelMatcher, compile_label_selector
from scheduler_core.model.workloads import (
    LabelPairsSpec,
    LabelSelectorSpec,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    Workload,
)
from scheduler_core.snapshot.indexes.selector_index import WorkloadIndex
from tests.support.builders import pod
from tests.support.tables import table


def service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> Service:
    return Service(ObjectMeta(name, namespace), LabelPairsSpec(selector))


def controller(selector: dict[str, str] | None) -> ReplicationController:
    return ReplicationController(ObjectMeta("o", "default"), LabelPairsSpec(selector))


def replicas(selector: LabelSelector | None) -> ReplicaSet:
    return ReplicaSet(ObjectMeta("o", "default"), LabelSelectorSpec(selector))


def stateful(selector: LabelSelector | None) -> StatefulSet:
    return StatefulSet(ObjectMeta("o", "default"), LabelSelectorSpec(selector))


def owned(kind: str, api_version: str = "apps/v1", *, controls: bool = True) -> Pod:
    """Return a pod with labels app=web and tier=front, and with the owner ``o``."""
    owner = OwnerReference(kind, "o", api_version=api_version, controller=controls)
    return pod(labels={"app": "web", "tier": "front"}, owners=[OwnerReference("Other", "x"), owner])


def matcher(*expressions: Requirement, **labels: str) -> LabelMatcher:
    return compile_label_selector(LabelSelector(labels, expressions))


PLAIN = pod(labels={"app": "web", "tier": "front"})
WEB = LabelSelector({"app": "web"})
HAS_TIER = LabelSelector({}, (Requirement("tier", "Exists"),))
BROKEN = LabelSelector({}, (Requirement("tier", "Near"),))


@table(
    "subject, workloads, selector",
    ("no-workloads", PLAIN, [], matcher()),
    ("a-service", PLAIN, [service("s", {"app": "web"})], matcher(app="web")),
    (
        "two-services",
        PLAIN,
        [service("s", {"app": "web"}), service("t", {"tier": "front"})],
        matcher(app="web", tier="front"),
    ),
    ("a-service-of-other-pods", PLAIN, [service("s", {"app": "db"})], matcher()),
    ("a-service-that-matches-partly", PLAIN, [service("s", {"app": "web", "x": "y"})], matcher()),
    ("another-namespace", PLAIN, [service("s", {"app": "web"}, "other")], matcher()),
    ("a-service-without-a-selector", PLAIN, [service("s", None)], matcher()),
    ("a-service-with-an-empty-selector", PLAIN, [service("s", {})], matcher()),
    ("not-its-owner", PLAIN, [replicas(WEB)], matcher()),
    ("a-replica-set", owned("ReplicaSet"), [replicas(WEB)], matcher(app="web")),
    ("a-stateful-set", owned("StatefulSet"), [stateful(WEB)], matcher(app="web")),
    ("a-controller", owned("ReplicationController", "v1"), [controller({"app": "web"})], matcher(app="web")),
    (
        "a-controller-overrides-a-service",
        owned("ReplicationController", "v1"),
        [controller({"app": "db"}), service("s", {"app": "web"})],
        matcher(app="db"),
    ),
    (
        "services-and-owner",
        owned("ReplicaSet"),
        [replicas(HAS_TIER), service("s", {"app": "web"})],
        matcher(Requirement("tier", "Exists"), app="web"),
    ),
    ("an-owner-of-another-kind", owned("ReplicaSet"), [stateful(WEB)], matcher()),
    ("another-api-group", owned("ReplicaSet", "v1"), [replicas(WEB)], matcher()),
    ("an-owner-that-is-not-the-controller", owned("ReplicaSet", controls=False), [replicas(WEB)], matcher()),
    ("an-unknown-owner", owned("ReplicaSet"), [service("s", {"app": "web"})], matcher(app="web")),
    ("an-owner-without-a-selector", owned("ReplicaSet"), [replicas(None)], matcher()),
    ("an-invalid-selector", owned("ReplicaSet"), [replicas(BROKEN)], matcher()),
    ("a-controller-without-a-selector", owned("ReplicationController", "v1"), [controller(None)], matcher()),
)
def test_default_selector(subject: Pod, workloads: list[Workload], selector: LabelMatcher) -> None:
    """The default selector combines the services that select the pod and the owner that controls it."""
    index = WorkloadIndex()
    for workload in workloads:
        index.assign(workload)
    assert index.default_selector(subject) == selector
    assert index.default_selector(subject) is index.default_selector(subject)


def test_the_default_selector_follows_changes() -> None:
    """Changed services and owners change the default selector."""
    index, subject = WorkloadIndex(), owned("ReplicaSet")
    found = []
    index.assign(service("s", {"app": "web"}))
    found.append(index.default_selector(subject))
    index.assign(service("s", {"tier": "front"}))
    found.append(index.default_selector(subject))
    index.assign(replicas(WEB))
    found.append(index.default_selector(subject))
    index.remove(service("s", {"tier": "front"}))
    found.append(index.default_selector(subject))
    index.remove(replicas(WEB))
    found.append(index.default_selector(subject))
    expected = [{"app": "web"}, {"tier": "front"}, {"app": "web", "tier": "front"}, {"app": "web"}, {}]
    assert found == [matcher(**labels) for labels in expected]


def test_the_version_changes_with_selectors_only() -> None:
    """Updates that do not change a selector do not increase the version."""
    index = WorkloadIndex()
    index.assign(replicas(WEB))
    version = index.version
    index.assign(replicas(WEB))
    index.remove(stateful(WEB))
    assert index.version == version
    index.assign(replicas(HAS_TIER))
    assert index.version == version + 1
