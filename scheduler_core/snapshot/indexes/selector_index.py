"""Objects with label selectors: the index of selectors, workloads, disruption budgets, and labels of namespaces.

Most selectors require one value of a label (``app=web``), so a pod's labels lead to them. A selector without such a
label is a candidate for every pod. A namespace may have hundreds of Services, and every pod without spread constraints
needs them; their results are cached until any selector changes, because replicas of one owner have the same.

A budget with an invalid selector is stored and matches nothing: the API server reports it to the owner, and preemption
must work without it.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/helper/spread.go`` (``DefaultSelector``) and
``framework/preemption`` (``FilterVictimsWithPDBViolation``): a budget with a missing or empty selector matches no pod,
and no budget matches a pod without labels.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from scheduler_core.errors import SelectorError
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    IN,
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    LabelMatcher,
    all_of,
    compile_label_selector,
    equality_matcher,
)
from scheduler_core.model.workloads import (
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    Workload,
)
from scheduler_core.snapshot.interning import DEFAULT_BOUNDS
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter


class NamespaceLabels:
    """Labels by namespace; every change increments ``version``."""

    __slots__ = ("_labels", "version")

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.version = 0

    def get(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, None if it is not known."""
        return self._labels.get(namespace)

    def selected(self, selector: LabelMatcher) -> frozenset[str]:
        if selector.nothing:
            return frozenset()
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))

    def assign(self, namespace: str, labels: Mapping[str, str]) -> None:
        if self._labels.get(namespace) != labels:
            self._labels[namespace] = labels
            self.version += 1

    def remove(self, namespace: str) -> None:
        if self._labels.pop(namespace, None) is not None:
            self.version += 1


T = TypeVar("T", bound=Hashable)

_FEW_NAMESPACES = 4


class LabelBuckets(Generic[T]):
    """Objects with a selector, by a label pair that the selector requires."""

    __slots__ = ("_any", "_by_pair")

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}
        self._any: dict[T, None] = {}

    def __bool__(self) -> bool:
        return bool(self._any or self._by_pair)

    def add(self, selector: LabelMatcher, thing: T) -> None:
        if selector.nothing:
            return
        pair = required_pair(selector)
        (self._any if pair is None else self._by_pair.setdefault(pair, {}))[thing] = None

    def remove(self, selector: LabelMatcher, thing: T) -> None:
        if selector.nothing:
            return
        pair = required_pair(selector)
        if pair is None:
            self._any.pop(thing, None)
            return
        bucket = self._by_pair.get(pair, {})
        bucket.pop(thing, None)
        if not bucket:
            self._by_pair.pop(pair, None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the objects whose selector may match ``labels``; the caller must evaluate the selector."""
        yield from self._any
        if self._by_pair:
            for pair in labels.items():
                bucket = self._by_pair.get(pair)
                if bucket:
                    yield from bucket


class NamespaceBuckets(Generic[T]):
    """Objects with a selector, by the namespaces that they apply to and then by label pair.

    A lookup costs as much as the pod's namespace has objects; objects of other namespaces are not visited.
    """

    __slots__ = ("_by_namespace", "_wide")

    def __init__(self) -> None:
        self._by_namespace: dict[str, LabelBuckets[T]] = {}
        self._wide: LabelBuckets[T] = LabelBuckets()

    def __len__(self) -> int:
        """Return the number of namespaces that have objects of their own."""
        return len(self._by_namespace)

    def add(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """Add an object.

        Args:
            namespaces: The namespaces that it applies to; None for any.
        """
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.add(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            self._by_namespace.setdefault(namespace, LabelBuckets()).add(selector, thing)

    def remove(self, namespaces: Collection[str] | None, selector: LabelMatcher, thing: T) -> None:
        """Remove an object that was added with the same namespaces and selector."""
        if namespaces is None or len(namespaces) > _FEW_NAMESPACES:
            self._wide.remove(selector, thing)
            return
        for namespace in () if selector.nothing else namespaces:
            buckets = self._by_namespace.get(namespace)
            if buckets is not None:
                buckets.remove(selector, thing)
                if not buckets:
                    del self._by_namespace[namespace]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the objects for a namespace whose selector may match ``labels``."""
        if self._wide:
            yield from self._wide.candidates(labels)
        buckets = self._by_namespace.get(namespace)
        if buckets is not None:
            yield from buckets.candidates(labels)


def required_pair(selector: LabelMatcher) -> tuple[str, str] | None:
    """Return a label and the only value that a selector allows for it; None if there is no such label."""
    for requirement in selector.requirements:
        if requirement.operator == IN and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None


_REPLICATION_CONTROLLER = ("v1", "ReplicationController")

_Key = tuple[type[Workload], str, str]
_ADDED_BY_OWNER: dict[tuple[str, str], type[Workload]] = {
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}
_LookupKey = tuple[str, frozenset[tuple[str, str]], OwnerReference | None]


class WorkloadIndex:
    """Selectors of the workloads.

    Attributes:
        version: Incremented when a selector is added, changed or removed.
    """

    __slots__ = ("_known", "_limit", "_selectors", "_service_buckets", "version")

    def __init__(self, limit: int = DEFAULT_BOUNDS.default_selectors) -> None:
        self.version = 0
        self._limit = limit
        self._selectors: dict[_Key, dict[str, str] | LabelSelector | None] = {}
        self._service_buckets: NamespaceBuckets[str] = NamespaceBuckets()
        self._known: dict[_LookupKey, LabelMatcher] = {}

    def assign(self, workload: Workload) -> None:
        key = _key(workload)
        selector = workload.spec.selector
        if key in self._selectors and self._selectors[key] == selector:
            return
        self._file_service(key, add=False)
        self._selectors[key] = selector
        try:
            self._file_service(key, add=True)
            self._touch()
        except Exception:
            # It is assigned again, and must not be skipped as unchanged then.
            del self._selectors[key]
            raise

    def remove(self, workload: Workload) -> None:
        key = _key(workload)
        if key in self._selectors:
            self._file_service(key, add=False)
            del self._selectors[key]
            self._touch()

    def default_selector(self, pod: Pod) -> LabelMatcher:
        """Return the combined selector of the pod's services and controlling owner; everything if there are none."""
        meta = pod.metadata
        owner = next((reference for reference in meta.owner_references if reference.controller), None)
        lookup = (meta.namespace, frozenset(meta.labels.items()), owner)
        known = self._known.get(lookup)
        if known is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            known = self._known[lookup] = self._compiled(pod, owner)
        return known

    def _compiled(self, pod: Pod, owner: OwnerReference | None) -> LabelMatcher:
        namespace = pod.metadata.namespace
        pairs = self._service_pairs(pod)
        if owner is None:
            return equality_matcher(pairs)
        kind = (owner.api_version, owner.kind)
        if kind == _REPLICATION_CONTROLLER:
            selector = self._selectors.get((ReplicationController, namespace, owner.name))
            return equality_matcher({**pairs, **selector} if isinstance(selector, dict) else pairs)
        owner_type = _ADDED_BY_OWNER.get(kind)
        added = MATCH_EVERYTHING
        if owner_type is not None:
            added = _readable(self._selectors.get((owner_type, namespace, owner.name)))
        return all_of((equality_matcher(pairs), added))

    def _service_pairs(self, pod: Pod) -> dict[str, str]:
        labels = pod.metadata.labels
        pairs: dict[str, str] = {}
        for name in self._service_buckets.candidates(pod.metadata.namespace, labels):
            selector = self._selectors.get((Service, pod.metadata.namespace, name))
            if isinstance(selector, dict) and selector.items() <= labels.items():
                pairs.update(selector)
        return pairs

    def _file_service(self, key: _Key, *, add: bool) -> None:
        kind, namespace, name = key
        selector = self._selectors.get(key)
        if kind is not Service or not isinstance(selector, dict) or not selector:
            return
        buckets = self._service_buckets
        (buckets.add if add else buckets.remove)((namespace,), equality_matcher(selector), name)

    def _touch(self) -> None:
        self.version += 1
        self._known.clear()


def _key(workload: Workload) -> _Key:
    return type(workload), workload.metadata.namespace, workload.metadata.name


def _readable(selector: dict[str, str] | LabelSelector | None) -> LabelMatcher:
    """Return the selector of an owner; everything if it is missing or invalid."""
    if not isinstance(selector, LabelSelector):
        return MATCH_EVERYTHING
    try:
        return compile_label_selector(selector)
    except SelectorError:
        return MATCH_EVERYTHING


_REQUIREMENTS_PER_STEP = 16

_Found = WeakKeyDictionary[PodInfo, "tuple[dict[str, str], tuple[DisruptionBudget, ...]]"]
"""The budgets of pods, and the labels for which they were found."""


class DisruptionBudget(Struct, frozen=True):
    """A compiled budget.

    Attributes:
        selector: Selects the pods that it protects.
        disruptions_allowed: Number of allowed disruptions.
        disrupted_pods: Names of pods whose disruption is included in that number already.
    """

    name: str
    selector: LabelMatcher
    disruptions_allowed: int
    disrupted_pods: frozenset[str]

    def protects(self, pod: Pod) -> bool:
        """Return whether disrupting ``pod``, in the budget's namespace, counts against the budget."""
        labels = pod.metadata.labels
        return bool(labels) and self.selector.matches(labels) and pod.metadata.name not in self.disrupted_pods


class DisruptionBudgets:
    """All budgets; every change increments ``version``."""

    __slots__ = ("_by_namespace", "_found", "_steps", "version")

    def __init__(self, steps: StepCounter) -> None:
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        self._found: dict[str, _Found] = {}
        self._steps = steps
        self.version = 0

    def __len__(self) -> int:
        return sum(len(budgets) for budgets in self._by_namespace.values())

    def protecting(self, info: PodInfo) -> tuple[DisruptionBudget, ...]:
        """Return the budgets against which the disruption of a pod counts; they are stored until one changes.

        A namespace may have hundreds of budgets of hundreds of requirements, and each attempt to preempt needs those of
        all pods that it may evict.
        """
        labels, namespace = info.pod.metadata.labels, info.pod.metadata.namespace
        budgets = self._by_namespace.get(namespace)
        if budgets is None:
            return ()
        stored = self._found.setdefault(namespace, WeakKeyDictionary())
        known = stored.get(info)
        if known is None or known[0] is not labels:
            found: list[DisruptionBudget] = []
            for budget in budgets.values():
                self._steps.upkeep(1 + len(budget.selector.requirements) // _REQUIREMENTS_PER_STEP)
                if budget.protects(info.pod):
                    found.append(budget)
            known = stored[info] = labels, tuple(found)
        return known[1]

    def by_namespace(self) -> dict[str, dict[str, DisruptionBudget]]:
        """Return all budgets by namespace and name, as they are now."""
        return {namespace: dict(budgets) for namespace, budgets in self._by_namespace.items()}

    def is_same(self, namespace: str, before: Mapping[str, Mapping[str, DisruptionBudget]]) -> bool:
        """Return whether the budgets of a namespace are those of :meth:`by_namespace` before."""
        return self._by_namespace.get(namespace, {}) == before.get(namespace, {})

    def assign(self, budget: PodDisruptionBudget) -> None:
        meta, status = budget.metadata, budget.status
        compiled = DisruptionBudget(
            meta.name, _selector(budget), status.disruptions_allowed, frozenset(status.disrupted_pods)
        )
        self._by_namespace.setdefault(meta.namespace, {})[meta.name] = compiled
        self._found.pop(meta.namespace, None)
        self.version += 1

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; no effect if it is not known."""
        budgets = self._by_namespace.get(namespace, {})
        if budgets.pop(name, None) is None:
            return
        self._found.pop(namespace, None)
        if not budgets:
            del self._by_namespace[namespace]
        self.version += 1


def _selector(budget: PodDisruptionBudget) -> LabelMatcher:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorError:
        return MATCH_NOTHING
    return MATCH_NOTHING if selector.is_everything else selector
