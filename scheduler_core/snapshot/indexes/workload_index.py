"""Default selectors of pods: the combined selectors of a pod's services and its owner.

Indexes the selectors of Services, ReplicationControllers, ReplicaSets and StatefulSets by namespace. Services are
indexed by a required label, because a namespace may have hundreds of them and every pod without spread constraints
needs them; results are cached until any selector changes, because replicas of one owner have the same.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/helper/spread.go`` (``DefaultSelector``).
"""

from __future__ import annotations

from scheduler_core.errors import SelectorError
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    LabelMatcher,
    all_of,
    compile_label_selector,
    equality_matcher,
)
from scheduler_core.model.workloads import ReplicaSet, ReplicationController, Service, StatefulSet, Workload
from scheduler_core.snapshot.indexes.selector_index import NamespaceBuckets
from scheduler_core.snapshot.table_bounds import DEFAULT_BOUNDS

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
        """Add or replace a workload."""
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
        """Remove a workload."""
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
