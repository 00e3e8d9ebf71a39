"""Queueing hints of InterPodAffinity: which events may help a pod that it rejected.

A hint is called for every unschedulable pod and decides from the objects alone, so it errs towards requeueing.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/interpodaffinity/plugin.go``. As there, namespace
selectors are matched without labels: a pod in a namespace that is selected only by label is not recognized.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import AffinityTerm
from scheduler_core.snapshot.pod_info import terms_of

_NO_LABELS: dict[str, str] = {}


def after_pod_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a scheduled pod starts to match the pod's affinity, or stops to match an anti-affinity."""
    if not isinstance(old, Pod | None) or not isinstance(new, Pod | None):
        return Hint.QUEUE
    if old is not None and new is not None and new.metadata.uid == pod.metadata.uid:
        return Hint.QUEUE
    if _is_nowhere(old) or _is_nowhere(new):
        return Hint.SKIP
    terms = terms_of(pod)
    if terms.problem:
        return Hint.QUEUE
    if old is not None and new is not None:
        begins = not _matches_all(terms.required, old) and _matches_all(terms.required, new)
        ceases = _matches_any(terms.required_anti, old) and not _matches_any(terms.required_anti, new)
        return _queue_if(begins or ceases)
    if new is not None:
        return _queue_if(_matches_all(terms.required, new))
    if old is None or _matches_any(terms.required_anti, old):
        return Hint.QUEUE
    return _queue_if(_matches_any(terms_of(old).required_anti, pod))


def after_node_change(pod: Pod, old: object | None, new: object | None) -> Hint:
    """Queue if a suitable node was added, or a node changed a label that the pod uses as topology key."""
    if not isinstance(new, Node) or not isinstance(old, Node | None):
        return Hint.QUEUE
    terms = terms_of(pod)
    if terms.problem:
        return Hint.QUEUE
    now = new.metadata.labels
    if old is None:
        return _queue_if(bool(terms.required_anti) or any(term.topology_key in now for term in terms.required))
    before = old.metadata.labels
    for term in terms.required:
        key = term.topology_key
        if key in now and before.get(key) != now[key]:
            return Hint.QUEUE
    for term in terms.required_anti:
        key = term.topology_key
        if key in before and now.get(key) != before[key]:
            return Hint.QUEUE
    return Hint.SKIP


def _is_nowhere(pod: Pod | None) -> bool:
    return pod is not None and not pod.spec.node_name and not pod.status.nominated_node_name


def _matches_all(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return bool(terms) and all(_matches(term, pod) for term in terms)


def _matches_any(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return any(_matches(term, pod) for term in terms)


def _matches(term: AffinityTerm, pod: Pod) -> bool:
    return term.query.matches(pod.metadata.namespace, pod.metadata.labels, _NO_LABELS)


def _queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP
