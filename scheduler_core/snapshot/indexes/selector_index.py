"""Objects with label selectors: the index of selectors, workloads, disruption budgets, and labels of namespaces.

Most selectors require one value of a label (``app=web``), so a pod's labels lead to them. A selector without such a
label is a candidate for every pod. A namespace may have hundreds of Services, and every pod without spread constraints
needs them; their results are cached until any selector changes, because replicas of one owner have the same.

A budget with an invalid selector is stored and matches nothing: the API server reports it to the owner, and preemption
must work without it. The budgets that are evaluated for a pod are limited, far above those of real pods, because a user
who can create them could otherwise delay all preemptions; kube-scheduler has no limit.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/helper/spread.go`` (``DefaultSelector``) and
``framework/preemption`` (``FilterVictimsWithPDBViolation``): a budget with a missing or empty selector matches no pod,
and no budget matches a pod without labels.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import islice
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from scheduler_core.errors import SelectorError, SelectorTooLargeError
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
        bucket = self._any if pair is None else self._by_pair.get(pair, {})
        bucket.pop(thing, None)
        if pair is not None and not bucket:
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
        """Add an object that applies to these namespaces; None for any."""
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
    """Selectors of the workloads; *version* grows when one is added, changed or removed."""

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
        owner = meta.controller
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


MOST_EVALUATIONS = 1_000
"""Budgets and requirements that are evaluated for one pod; a pod with more is protected as by a budget of none."""
_REQUIREMENTS_PER_STEP = 16

_Found = WeakKeyDictionary[PodInfo, "tuple[dict[str, str], tuple[str, ...] | None]"]
"""What :meth:`_NamespaceBudgets.select` returned for a pod, and the labels for which it did."""


class DisruptionBudget(Struct, frozen=True):
    """A compiled budget.

    Attributes:
        disrupted_pods: Names of pods whose disruption is included in ``disruptions_allowed`` already.
    """

    name: str
    selector: LabelMatcher
    disruptions_allowed: int
    disrupted_pods: frozenset[str]

    def protects(self, pod: Pod) -> bool:
        """Return whether disrupting a pod that the budget selects counts against it."""
        return pod.metadata.name not in self.disrupted_pods


_UNEVALUATED = (DisruptionBudget("", MATCH_NOTHING, 0, frozenset()),)
"""Allows no disruption: a pod that it protects is a victim only if no other choice violates fewer budgets."""


class _NamespaceBudgets:
    """Budgets of a namespace by name, and which of them select its pods."""

    __slots__ = ("_buckets", "_ranks", "by_name", "selecting")

    def __init__(self) -> None:
        self.by_name: dict[str, DisruptionBudget] = {}
        self.selecting: _Found = WeakKeyDictionary()
        self._buckets: LabelBuckets[str] = LabelBuckets()
        self._ranks: dict[str, int] = {}

    def assign(self, budget: DisruptionBudget) -> None:
        name, old = budget.name, self.by_name.get(budget.name)
        if old is None or old.selector != budget.selector:
            if old is not None:
                self._buckets.remove(old.selector, name)
            self.selecting = WeakKeyDictionary()
            self._buckets.add(budget.selector, name)
            self._ranks.setdefault(name, 1 + next(reversed(self._ranks.values()), 0))
        # Most changes are of the number of allowed disruptions, after each change of a pod.
        self.by_name[name] = budget

    def remove(self, name: str) -> None:
        self._buckets.remove(self.by_name.pop(name).selector, name)
        del self._ranks[name]
        self.selecting = WeakKeyDictionary()

    def select(self, labels: Mapping[str, str], steps: StepCounter) -> tuple[str, ...] | None:
        """Return the names of the budgets that select a pod, in order; None above :data:`MOST_EVALUATIONS`."""
        if not labels:
            return ()
        candidates = list(islice(self._buckets.candidates(labels), MOST_EVALUATIONS + 1))
        evaluations = len(candidates)
        steps.pass_by(1 + evaluations // _REQUIREMENTS_PER_STEP)
        names: list[str] = []
        for name in sorted(candidates, key=self._ranks.__getitem__):
            selector = self.by_name[name].selector
            evaluations += len(selector.requirements)
            if evaluations > MOST_EVALUATIONS:
                return None
            # The search may continue elsewhere: nothing is stored before all budgets are evaluated.
            steps.pass_by(1 + len(selector.requirements) // _REQUIREMENTS_PER_STEP)
            if selector.matches(labels):
                names.append(name)
        return tuple(names)


class DisruptionBudgets:
    """All budgets; every change increments ``version``."""

    __slots__ = ("_by_namespace", "_steps", "version")

    def __init__(self, steps: StepCounter) -> None:
        self._by_namespace: dict[str, _NamespaceBudgets] = {}
        self._steps = steps
        self.version = 0

    def __len__(self) -> int:
        return sum(len(budgets.by_name) for budgets in self._by_namespace.values())

    def protecting(self, info: PodInfo) -> tuple[DisruptionBudget, ...]:
        """Return the budgets against which the disruption of a pod counts.

        A namespace may have hundreds of budgets of hundreds of requirements, and each attempt to preempt needs those of
        all pods that it may evict. Therefore those that select a pod are stored until a selector changes, and a pod
        with too many to evaluate is protected by :data:`_UNEVALUATED`.
        """
        pod = info.pod
        budgets = self._by_namespace.get(pod.metadata.namespace)
        if budgets is None:
            return ()
        labels = pod.metadata.labels
        known = budgets.selecting.get(info)
        if known is None or known[0] is not labels:
            known = labels, budgets.select(labels, self._steps)
            budgets.selecting[info] = known
        if known[1] is None:
            return _UNEVALUATED
        by_name = budgets.by_name
        return tuple([by_name[name] for name in known[1] if by_name[name].protects(pod)])

    def by_namespace(self) -> dict[str, dict[str, DisruptionBudget]]:
        """Return all budgets by namespace and name, as they are now."""
        return {namespace: dict(budgets.by_name) for namespace, budgets in self._by_namespace.items()}

    def is_same(self, namespace: str, before: Mapping[str, Mapping[str, DisruptionBudget]]) -> bool:
        """Return whether the budgets of a namespace are those of :meth:`by_namespace` before."""
        budgets = self._by_namespace.get(namespace)
        return ({} if budgets is None else budgets.by_name) == before.get(namespace, {})

    def assign(self, budget: PodDisruptionBudget) -> None:
        meta, status = budget.metadata, budget.status
        try:
            compiled = DisruptionBudget(
                meta.name, _selector(budget), status.disruptions_allowed, frozenset(status.disrupted_pods)
            )
        except SelectorTooLargeError:
            # Which pods it selects is not known: as if they were all, and none could be disrupted.
            compiled = DisruptionBudget(meta.name, MATCH_EVERYTHING, 0, frozenset())
        self._by_namespace.setdefault(meta.namespace, _NamespaceBudgets()).assign(compiled)
        self.version += 1

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; no effect if it is not known."""
        budgets = self._by_namespace.get(namespace)
        if budgets is None or name not in budgets.by_name:
            return
        budgets.remove(name)
        if not budgets.by_name:
            del self._by_namespace[namespace]
        self.version += 1


def _selector(budget: PodDisruptionBudget) -> LabelMatcher:
    try:
        selector = compile_label_selector(budget.spec.selector)
    except SelectorTooLargeError:
        raise
    except SelectorError:
        return MATCH_NOTHING
    return MATCH_NOTHING if selector.is_everything else selector
