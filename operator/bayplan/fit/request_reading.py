"""Reads a request from manifests: workloads become the pods of their controllers, which are admitted like written pods.

Of many equal pods of one workload the first is admitted and copied, because the validation of each takes longer than
its placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from bayplan.fit.workload_pods import MAX_PODS, WORKLOADS, expand, expands
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import Placed, read_objects
from bayplan.simulation.object_admission import with_claims_of_templates
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod

_UID = "fit"
"""First part of the UIDs of pods that do not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuestion:
    """What a user requests.

    Attributes:
        objects: Manifests with their places.
        namespace: Namespace of objects without one; "" for ``default``.
        profile: schedulerName of all pods; "" for their own.
        count: Number of copies or replicas of the only workload; None for that of the manifest.
        priority_classes: PriorityClasses of the cluster, as manifests.
        template: Manifest of a Node, or the name of a node; None for no new nodes.
        max_new: Maximum number of new nodes.
    """

    objects: Sequence[Placed[Any]]
    namespace: str = ""
    profile: str = ""
    count: int | None = None
    priority_classes: Sequence[Mapping[str, Any]] = ()
    template: NodeTemplate | None = None
    max_new: int = 0
    may_evict: bool = True


@dataclass(frozen=True, slots=True)
class _Copies:
    """Equal pods of one workload: the admitted body, and the metadata of each."""

    body: dict[str, Any]
    metas: list[Mapping[str, Any]]
    place: Any


def read_question(question: FitQuestion, decoded: DecodedTypes | None = None) -> tuple[FitRequest, tuple[str, ...]]:
    """Return the request, and notices about what is left out.

    Args:
        decoded: Types that pods are decoded to.

    Raises:
        ConfigError: With every problem of the manifests.
    """
    others, copies, notices, no_gangs = _expanded(question)
    admitted = _admitted(question, others, copies, decoded)
    by_key = {pod.key: pod for pod in admitted.pods}
    pods: list[Pod] = []
    for each in copies:
        meta = each.body["metadata"]
        first = by_key.get(f"{meta.get('namespace') or 'default'}/{meta.get('name')}")
        if first is None:
            raise ConfigError([Problem(f"{each.place}: metadata.name", "is required; add it")])
        pods += (_copy(first, own, question.profile) for own in each.metas)
    keys = {pod.key for pod in pods}
    if len(keys) != len(pods):
        raise ConfigError([Problem("metadata.name", "two pods of the request have the same name; rename one")])
    pods, claims = _with_claims(pods, admitted)
    notices += admitted.notices
    request = FitRequest(
        pods=tuple(pods),
        groups=admitted.groups,
        claims=tuple(claims),
        template=question.template,
        max_new=question.max_new,
        may_evict=question.may_evict,
        no_gangs=no_gangs,
    )
    problems = [Problem(f"{key.source.kind} {key}: {each.path}", each.message)
                for key, found in admitted.refused_groups for each in found]  # fmt: skip
    if problems:
        raise ConfigError(problems)
    return request, tuple(notices)


def read_template(placed: Placed[Any], decoded: DecodedTypes | None = None) -> NodeTemplate:
    """Return a template from the manifest of a Node.

    Raises:
        ConfigError: It is no valid Node.
    """
    body = placed.object
    if not isinstance(body, dict) or body.get("kind") != "Node":
        raise ConfigError([Problem(f"{placed.place}", "is not a Node; write its kind, labels and status.allocatable")])
    meta = body.get("metadata")
    named = {**body, "metadata": {**meta} if isinstance(meta, dict) else {}}
    named["metadata"].setdefault("name", "template")
    nodes: tuple[Node, ...] = admit(read_objects([Placed(named, placed.place)], decoded)).nodes
    if not nodes or not nodes[0].status.allocatable:
        raise ConfigError([Problem(f"{placed.place}: status.allocatable", "is required; add what a new node offers")])
    return NodeTemplate(nodes[0])


def _expanded(question: FitQuestion) -> tuple[list[Placed[Any]], list[_Copies], list[str], dict[str, str]]:
    others, copies, notices, no_gangs = list[Placed[Any]](), list[_Copies](), list[str](), dict[str, str]()
    workloads, total, generated = 0, 0, Counter[str]()
    for placed in question.objects:
        body = placed.object
        if not isinstance(body, dict) or not expands(body):
            others.append(_in_namespace(placed, question.namespace))
            continue
        workloads += 1
        if question.count is not None and workloads > 1:
            raise ConfigError([Problem("count", "requires exactly one workload; leave it out, or request one by one")])
        found = expand(_in_namespace(placed, question.namespace).object, str(placed.place), question.count)
        notices += found.notices
        no_gangs |= found.no_gangs
        total += len(found.pods)
        if total > MAX_PODS:
            raise ConfigError([Problem("count", f"the request has more than {MAX_PODS} pods; request fewer of them")])
        copies += _grouped((_with_name(pod, generated) for pod in found.pods), placed.place)
    if not total:
        kinds = ", ".join(dict.fromkeys(WORKLOADS))
        raise ConfigError([Problem("manifests", f"have no pods; supported kinds: {kinds}")])
    return others, copies, notices, no_gangs


def _with_name(pod: dict[str, Any], generated: Counter[str]) -> dict[str, Any]:
    """Return a pod with a name, which the API server generates from ``metadata.generateName``."""
    meta = pod["metadata"]
    prefix = meta.get("generateName")
    if meta.get("name") or not isinstance(prefix, str) or not prefix:
        return pod
    generated[prefix] += 1
    return {**pod, "metadata": {**meta, "name": f"{prefix}{generated[prefix]:05d}"}}


def _in_namespace(placed: Placed[Any], namespace: str) -> Placed[Any]:
    body = placed.object
    if not namespace or not isinstance(body, dict) or body.get("kind") in CLUSTER_SCOPED:
        return placed
    meta = body.get("metadata")
    if not isinstance(meta, dict) or meta.get("namespace"):
        return placed
    return Placed({**body, "metadata": {**meta, "namespace": namespace}}, placed.place)


CLUSTER_SCOPED = frozenset(("PriorityClass", "DeviceClass", "Node", "Namespace", "ResourceSlice"))
"""Kinds without a namespace that a request may contain."""


def _grouped(pods: Iterable[dict[str, Any]], place: Any) -> list[_Copies]:
    """Group pods that differ only in their metadata; pods whose labels decide on their constraints stay single."""
    found: list[_Copies] = []
    by_spec: dict[int, _Copies] = {}
    for pod in pods:
        spec = pod.get("spec")
        known = by_spec.get(id(spec))
        if known is not None and "matchLabelKeys" not in str(spec):
            known.metas.append(pod["metadata"])
            continue
        made = _Copies(pod, [pod.get("metadata") or {}], place)
        by_spec[id(spec)] = made
        found.append(made)
    return found


def _admitted(
    question: FitQuestion, others: list[Placed[Any]], copies: Iterable[_Copies], decoded: DecodedTypes | None
) -> AdmittedCluster:
    own = {
        meta.get("name")
        for each in others
        if isinstance(each.object, dict) and each.object.get("kind") == "PriorityClass"
        if isinstance(meta := each.object.get("metadata"), dict)
    }
    place = question.objects[0].place
    classes = [Placed(each, place) for each in question.priority_classes if each["metadata"]["name"] not in own]
    bodies = [Placed(each.body, each.place) for each in copies]
    return admit(read_objects([*classes, *others, *bodies], decoded))


def _copy(first: Pod, own: Mapping[str, Any], profile: str) -> Pod:
    name = str(own["name"])
    uid = f"{_UID}/{first.metadata.namespace}/{name}"
    labels = {str(key): str(value) for key, value in (own.get("labels") or {}).items()}
    meta = replace(first.metadata, name=name, uid=uid, labels=labels)
    if own.get("ownerReferences"):
        meta = replace(meta, owner_references=tuple(map(_owner, own["ownerReferences"])))
    spec = replace(first.spec, node_name="", **({"scheduler_name": profile} if profile else {}))
    return replace(first, metadata=meta, spec=spec, status=type(first.status)())


def _owner(body: Mapping[str, Any]) -> OwnerReference:
    return OwnerReference(
        str(body.get("kind")), str(body.get("name")), str(body.get("uid") or ""), str(body.get("apiVersion") or ""),
        controller=bool(body.get("controller")),
    )  # fmt: skip


def _with_claims(pods: list[Pod], admitted: AdmittedCluster) -> tuple[list[Pod], list[ResourceClaim]]:
    """Create own claims of templates for the copies; claims in the manifests stay as they are."""
    made_for = {owner.uid for pod in admitted.pods for owner in (pod.metadata,)}
    written = [
        each
        for each in admitted.devices
        if isinstance(each, ResourceClaim) and not any(o.uid in made_for for o in each.metadata.owner_references)
    ]
    with_claims, created = with_claims_of_templates(pods, written, admitted.claim_templates)
    return with_claims, [*written, *created]
