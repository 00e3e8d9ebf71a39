"""Reads a request from manifests: workloads become the pods of their controllers, which are admitted like written pods.

Of many equal pods of one workload the first is admitted and copied, because the validation of each takes longer than
its placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from bayplan.fit.workload_pods import MAX_PODS, WORKLOADS, claim_of, expand, expands
from bayplan.simulation.admission import AdmittedCluster, admit, with_claims_of_templates
from bayplan.simulation.cluster_files import DEFAULT_NAMESPACE, Placed, read_objects
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.model.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ClaimVolumeSource, Pod
from scheduler_core.model.storage import PersistentVolumeClaim, StorageObject
from scheduler_core.snapshot.indexes.storage_index import object_key

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
        claim_templates: Admitted templates of resource claims of the cluster, as far as they are known.
        known_from: What templates of resource claims are known from.
        template: Manifest of a Node, or the name of a node; None for no new nodes.
        max_new: Maximum number of new nodes.
    """

    objects: Sequence[Placed[Any]]
    namespace: str = ""
    profile: str = ""
    count: int | None = None
    priority_classes: Sequence[Mapping[str, Any]] = ()
    claim_templates: Sequence[ResourceClaimTemplate] = ()
    known_from: str = "the manifests"
    template: NodeTemplate | None = None
    max_new: int = 0
    may_evict: bool = True


@dataclass(frozen=True, slots=True)
class _Copies:
    """Equal pods of one workload: the body that is admitted, and the metadata of each.

    Attributes:
        own_claims: Templates of the claims that each pod has of its own, by the names of their volumes.
    """

    body: dict[str, Any]
    metas: list[Mapping[str, Any]]
    place: Any
    own_claims: Mapping[str, Mapping[str, Any]]


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
    by_claim = {claim.key: claim for claim in admitted.storage if isinstance(claim, PersistentVolumeClaim)}
    pods, storage = list[Pod](), list[StorageObject](admitted.storage)
    for each in copies:
        meta = each.body["metadata"]
        first = by_key.get(f"{meta.get('namespace') or 'default'}/{meta.get('name')}")
        if first is None:
            raise ConfigError([Problem(f"{each.place}: metadata.name", "is required; add it")])
        profile = {"scheduler_name": question.profile} if question.profile else {}
        first = replace(first, spec=replace(first.spec, node_name="", **profile), status=type(first.status)())
        made = [_copy(first, own, each.own_claims) for own in each.metas]
        storage += _claims_of_copies(first, made, each.own_claims, by_claim)
        pods += made
    keys = {pod.key for pod in pods}
    if len(keys) != len(pods):
        raise ConfigError([Problem("metadata.name", "two pods of the request have the same name; rename one")])
    templates = (*admitted.claim_templates, *question.claim_templates)
    notices += _missing_templates(pods, templates, question.known_from)
    pods, claims = _with_claims(pods, admitted, templates)
    notices += admitted.notices
    if any(isinstance(each, ResourceSlice) for each in admitted.devices):
        notices.append(
            "ResourceSlices of the manifests are left out; write those of new nodes beside the Node of the template"
        )
    request = FitRequest(
        pods=tuple(pods),
        groups=admitted.groups,
        claims=tuple(claims),
        classes=tuple(each for each in admitted.devices if isinstance(each, DeviceClass)),
        storage=_once(storage),
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


def read_template(placed: Sequence[Placed[Any]], decoded: DecodedTypes | None = None) -> NodeTemplate:
    """Return a template from the manifests of a Node and of its ResourceSlices.

    Raises:
        ConfigError: The first object is no valid Node, or another one is no ResourceSlice of that node.
    """
    first, *others = placed
    body = first.object
    if not isinstance(body, dict) or body.get("kind") != "Node":
        raise ConfigError([Problem(f"{first.place}", "is not a Node; write its kind, labels and status.allocatable")])
    meta = body.get("metadata")
    named = {**body, "metadata": {**meta} if isinstance(meta, dict) else {}}
    name = named["metadata"].setdefault("name", "template")
    problems = list(_problems_of_slices(others, name))
    if problems:
        raise ConfigError(problems)
    admitted = admit(read_objects([Placed(named, first.place), *others], decoded))
    nodes: tuple[Node, ...] = admitted.nodes
    if not nodes or not nodes[0].status.allocatable:
        raise ConfigError([Problem(f"{first.place}: status.allocatable", "is required; add what a new node offers")])
    return NodeTemplate(nodes[0], slices=tuple(each for each in admitted.devices if isinstance(each, ResourceSlice)))


def _problems_of_slices(placed: Iterable[Placed[Any]], node_name: str) -> Iterator[Problem]:
    for each in placed:
        body = each.object if isinstance(each.object, dict) else {}
        if body.get("kind") != "ResourceSlice":
            yield Problem(f"{each.place}", "is neither a Node nor a ResourceSlice; write only these into the file")
            continue
        spec = body.get("spec")
        of_node = spec.get("nodeName") if isinstance(spec, dict) else None
        if of_node != node_name:
            yield Problem(
                f"{each.place}: spec.nodeName",
                f'must be "{node_name}", the name of the Node; slices of others are not copied',
            )


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
        copies += _grouped((_with_name(pod, generated) for pod in found.pods), placed.place, found.own_claims)
        others += (Placed(claim, placed.place) for claim in found.shared_claims)
    if not total and workloads:
        text = "have no pods, because the replicas or the parallelism are 0; correct them, or request a count"
        raise ConfigError([Problem("manifests", text)])
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
    if not namespace or not isinstance(body, dict) or str(body.get("kind")) in CLUSTER_SCOPED:
        return placed
    meta = body.get("metadata")
    if not isinstance(meta, dict) or meta.get("namespace"):
        return placed
    return Placed({**body, "metadata": {**meta, "namespace": namespace}}, placed.place)


CLUSTER_SCOPED = frozenset(
    ("PriorityClass", "DeviceClass", "Node", "Namespace", "ResourceSlice", "StorageClass", "PersistentVolume")
)
"""Kinds without a namespace that a request may contain."""


def _grouped(pods: Iterable[dict[str, Any]], place: Any, own_claims: Mapping[str, Mapping[str, Any]]) -> list[_Copies]:
    """Group pods that differ only in their metadata; pods whose labels decide on their constraints stay single."""
    found: list[_Copies] = []
    by_spec: dict[int, _Copies | None] = {}
    for pod in pods:
        spec = pod.get("spec")
        known = by_spec.get(id(spec))
        if known is not None:
            known.metas.append(pod["metadata"])
            continue
        made = _Copies(_with_claim_names(pod, own_claims), [pod.get("metadata") or {}], place, own_claims)
        if id(spec) not in by_spec:
            by_spec[id(spec)] = None if "matchLabelKeys" in str(spec) else made
        found.append(made)
    return found


def _admitted(
    question: FitQuestion, others: list[Placed[Any]], copies: Iterable[_Copies], decoded: DecodedTypes | None
) -> AdmittedCluster:
    own = {
        str(meta.get("name"))
        for each in others
        if isinstance(each.object, dict) and each.object.get("kind") == "PriorityClass"
        if isinstance(meta := each.object.get("metadata"), dict)
    }
    place = question.objects[0].place
    classes = [Placed(each, place) for each in question.priority_classes if each["metadata"]["name"] not in own]
    bodies = [Placed(each.body, each.place) for each in copies]
    claims = [Placed(claim, each.place) for each in copies for claim in _first_claims(each, others)]
    return admit(read_objects([*classes, *others, *claims, *bodies], decoded))


def _with_claim_names(pod: dict[str, Any], own_claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod whose volumes name its own claims."""
    if not own_claims:
        return pod
    volumes = [
        {**each, "persistentVolumeClaim": {"claimName": _claim_name(each["name"], pod["metadata"]["name"])}}
        if isinstance(each, dict) and str(each.get("name")) in own_claims
        else each
        for each in pod["spec"]["volumes"]
    ]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def _claim_name(volume: str, pod: object) -> str:
    return f"{volume}-{pod}"


def _first_claims(copies: _Copies, others: Iterable[Placed[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the own claims of the first pod, unless the manifests have them."""
    meta = copies.body["metadata"]
    namespace = str(meta.get("namespace") or DEFAULT_NAMESPACE)
    written = {
        (str(own.get("namespace") or DEFAULT_NAMESPACE), str(own.get("name")))
        for each in others
        if copies.own_claims and isinstance(each.object, dict) and each.object.get("kind") == "PersistentVolumeClaim"
        if isinstance(own := each.object.get("metadata"), dict)
    }
    for volume, template in copies.own_claims.items():
        name = _claim_name(volume, meta["name"])
        if (namespace, name) not in written:
            yield claim_of(template, name, namespace)


def _claims_of_copies(
    first: Pod, pods: Sequence[Pod], own_claims: Iterable[str], by_key: Mapping[str, PersistentVolumeClaim]
) -> Iterator[StorageObject]:
    """Yield the claims of the pods after the first, and of all pods those of their ephemeral volumes."""
    namespace, name = first.metadata.namespace, first.metadata.name
    own = [by_key.get(f"{namespace}/{_claim_name(volume, name)}") for volume in own_claims]
    ephemeral = [claim for claim in by_key.values() if claim.metadata.is_controlled_by(first.metadata.uid)]
    for pod in pods:
        for claim in own:
            if claim is not None and pod.metadata.name != name:
                volume = claim.metadata.name.removesuffix(f"-{name}")
                yield _renamed(claim, _claim_name(volume, pod.metadata.name), ())
        for claim in ephemeral:
            owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", controller=True)
            volume = claim.metadata.name.removeprefix(f"{name}-")
            yield _renamed(claim, f"{pod.metadata.name}-{volume}", (owner,))


def _renamed(claim: PersistentVolumeClaim, name: str, owners: tuple[OwnerReference, ...]) -> PersistentVolumeClaim:
    uid = f"{_UID}/{claim.metadata.namespace}/{name}"
    return replace(claim, metadata=replace(claim.metadata, name=name, uid=uid, owner_references=owners))


def _once(storage: Iterable[StorageObject]) -> tuple[StorageObject, ...]:
    """Return storage objects, of those with the same name the last one, which is owned by a copy of its pod."""
    return tuple({(type(each), object_key(each.metadata)): each for each in storage}.values())


def _copy(first: Pod, own: Mapping[str, Any], own_claims: Collection[str]) -> Pod:
    name = str(own["name"])
    uid = f"{_UID}/{first.metadata.namespace}/{name}"
    labels = {str(key): str(value) for key, value in (own.get("labels") or {}).items()}
    meta = replace(first.metadata, name=name, uid=uid, labels=labels)
    if own.get("ownerReferences"):
        meta = replace(meta, owner_references=tuple(map(_owner, own["ownerReferences"])))
    if not own_claims:
        return replace(first, metadata=meta)
    volumes = (
        replace(each, claim=ClaimVolumeSource(_claim_name(each.name, name))) if each.name in own_claims else each
        for each in first.spec.volumes
    )
    return replace(first, metadata=meta, spec=replace(first.spec, volumes=tuple(volumes)))


def _owner(body: Mapping[str, Any]) -> OwnerReference:
    return OwnerReference(
        str(body.get("kind")), str(body.get("name")), str(body.get("uid") or ""), str(body.get("apiVersion") or ""),
        controller=bool(body.get("controller")),
    )  # fmt: skip


def _missing_templates(
    pods: Iterable[Pod], templates: Iterable[ResourceClaimTemplate], known_from: str
) -> Iterator[str]:
    named = {
        (pod.metadata.namespace, each.resource_claim_template_name)
        for pod in pods
        for each in pod.spec.resource_claims
        if each.resource_claim_template_name is not None
    }
    missing = named - {(each.metadata.namespace, each.metadata.name) for each in templates}
    for namespace, name in sorted(missing):
        yield f"ResourceClaimTemplate {namespace}/{name} is not in {known_from}; add it, or its pods do not fit"


def _with_claims(
    pods: list[Pod], admitted: AdmittedCluster, templates: Iterable[ResourceClaimTemplate]
) -> tuple[list[Pod], list[ResourceClaim]]:
    """Create own claims of templates for the copies; claims in the manifests stay as they are."""
    made_for = {owner.uid for pod in admitted.pods for owner in (pod.metadata,)}
    written = [
        each
        for each in admitted.devices
        if isinstance(each, ResourceClaim) and not any(o.uid in made_for for o in each.metadata.owner_references)
    ]
    with_claims, created = with_claims_of_templates(pods, written, templates)
    return with_claims, [*written, *created]
