"""The answer to "would it fit?" as a document, and its building on the state of a scheduler.

The fields of the document are those of the JSON and YAML, in camel case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.fit import FitBody
from bayplan.fit.request_reading import FitQuestion, read_question, read_template
from bayplan.fit.workload_pods import expands, is_one_pod
from bayplan.resources.pod_group import POD_GROUP_LABEL
from bayplan.resources.resource_model import API_VERSION
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.texts.document_formats import counted, read_answer
from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.explain.findings import Victim, victims_of
from scheduler_core.fit.claim_binding import storage_notices
from scheduler_core.fit.fit_search import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.fit.trial import TrialResult, Unplaced
from scheduler_core.scheduler import Scheduler


class PlacedPod(Struct, frozen=True, rename="camel"):
    """Node of a pod, ``namespace/name``, to most of whose names controllers append a random suffix."""

    pod: str
    node: str


class UnplacedItem(Struct, frozen=True, rename="camel"):
    """A pod or group without nodes, and why.

    Attributes:
        name: ``namespace/name`` of a pod, or of a PodGroup.
        kind: Pod, PodGroup or CompositePodGroup.
    """

    name: str
    kind: str
    message: str


class FitGroup(Struct, frozen=True, rename="camel"):
    """Topology domain of a gang."""

    name: str
    domain: str


class FitEvictions(Struct, frozen=True, rename="camel"):
    """Evictions after which all pods fit.

    Attributes:
        pods: Number of pods that are evicted.
        victims: Those of them that the reader may see, lowest priority first.
        awaited: Number of pods that terminate already and must end.
        pdb_violations: Number of victims whose eviction violates a PodDisruptionBudget.
    """

    pods: int
    victims: tuple[Victim, ...]
    awaited: int
    pdb_violations: int


class FitNewNodes(Struct, frozen=True, rename="camel"):
    """New nodes of the template with which all pods fit, without evictions.

    Attributes:
        count: The least number; None if the allowed number is too small, or if no number helps.
        at_least: With fewer new nodes the pods are proved not to fit; None if no number helps.
        tried: Maximum number that was allowed.
    """

    count: int | None
    at_least: int | None
    tried: int


class FitDocument(Struct, frozen=True, rename="camel", kw_only=True):
    """Answer to "would it fit?".

    Attributes:
        headline: The verdict in a sentence.
        pods: Number of pods of the request.
        placed: Nodes of the pods in the case that the verdict is about; with less than all pods what fits now.
        nodes: Number of different nodes among them.
        groups: Topology domains of gangs.
        evictions: Evictions after which all pods fit; None if there are none.
        new_nodes: Result for the node template; None without a template, or if all pods fit now.
        unplaced: What has no node now, and why.
        reason: Proof that the pods never fit, or why the search was given up; None otherwise.
        steps: Steps that the search took.
        notices: Limitations of the answer.
    """

    verdict: FitVerdict
    headline: str
    pods: int
    placed: tuple[PlacedPod, ...] = ()
    nodes: int = 0
    groups: tuple[FitGroup, ...] = ()
    evictions: FitEvictions | None = None
    new_nodes: FitNewNodes | None = None
    unplaced: tuple[UnplacedItem, ...] = ()
    reason: str | None = None
    steps: int = 0
    notices: tuple[str, ...] = ()


read_fit = partial(read_answer, kind=FitDocument, what="an answer to a fit request")
"""Decodes an answer of the operator."""

EXIT_CODES = {
    FitVerdict.FITS_NOW: 0,
    FitVerdict.FITS_AFTER_EVICTIONS: 10,
    FitVerdict.FITS_WITH_NEW_NODES: 11,
    FitVerdict.DOES_NOT_FIT: 12,
    FitVerdict.IMPOSSIBLE: 13,
    FitVerdict.GAVE_UP: 14,
}
"""Exit code of the command by verdict; 1 and 2 are those of errors and of bad input."""


def fit_document(
    scheduler: Scheduler, request: FitRequest, steps: int | None = None, notices: tuple[str, ...] = ()
) -> FitDocument:
    """Answer a request between two cycles; nothing is changed.

    Args:
        steps: Maximum number of steps; None for that of dry runs.

    Raises:
        SchedulerCoreError: A pod or the node template cannot be compiled.
    """
    answer = fit_search(scheduler.context, scheduler.reservations).answer(request, steps)
    names = {info.uid: info.key for info in answer.infos}
    chosen = answer.chosen or TrialResult()
    placed = tuple(PlacedPod(names[uid], node) for uid, node in chosen.nodes.items() if uid in names)
    others = len(chosen.nodes) - len(placed)
    evicting = answer.after_evictions
    notices = (*notices, *_notices(scheduler, request, others))
    if len(chosen.evicting_gangs) > 1:
        gangs = ", ".join(map(str, sorted(chosen.evicting_gangs)))
        notices += (f"gangs {gangs} evict pods; if the victims of one end first, nodes and victims may differ",)
    return FitDocument(
        verdict=answer.verdict,
        headline=_headline(answer, request, len(placed)),
        pods=len(answer.infos),
        placed=placed,
        nodes=len({each.node for each in placed}),
        groups=tuple(FitGroup(str(key), domain) for key, domain in chosen.domains.items()),
        evictions=None if evicting is None else _evictions(evicting),
        new_nodes=_new_nodes(answer, request),
        unplaced=() if answer.now is None else tuple(map(_unplaced, answer.now.unplaced)),
        reason=answer.reason or None,
        steps=answer.steps,
        notices=notices,
    )


def _evictions(found: TrialResult) -> FitEvictions:
    return FitEvictions(len(found.victims), victims_of(found.victims), len(found.awaited), found.pdb_violations)


def _new_nodes(answer: FitAnswer, request: FitRequest) -> FitNewNodes | None:
    if request.template is None or request.max_new <= 0 or answer.verdict is FitVerdict.FITS_NOW:
        return None
    found, least = answer.with_new_nodes, answer.least_new_nodes
    return FitNewNodes(
        None if found is None else len(found.new_nodes), least if least < _NO_NUMBER else None, request.max_new
    )


_NO_NUMBER = 1 << 40
"""Bound of new nodes if no number of them helps."""


def _unplaced(item: Unplaced) -> UnplacedItem:
    return UnplacedItem(item.name, "Pod" if item.group is None else item.group.source.kind, item.message)


def _notices(scheduler: Scheduler, request: FitRequest, others: int) -> list[str]:
    profiles = scheduler.context.profiles
    found = []
    for name in sorted({pod.spec.scheduler_name for pod in request.pods}):
        instance = profiles.get(name)
        if instance is None:
            continue
        skipped = extenders_skipped_notice(instance.config.extenders)
        found += [f"profile {name}: {skipped}"] if skipped else []
        if request.groups and not instance.places_gangs:
            found.append(f"profile {name} schedules gangs by Permit; the pods are evaluated one by one")
    found += storage_notices(scheduler.context.cache.columns.storage, request.storage)
    if request.template is not None and request.max_new > 0:
        found += _template_notices(request)
    if others:
        found.append(f"{others} waiting members of the same groups are placed with the pods of the request")
    return found


def _template_notices(request: FitRequest) -> list[str]:
    """Return what new nodes lack of what the pods need."""
    assert request.template is not None
    found, specs = [], [pod.spec for pod in request.pods]
    if not request.template.has_devices and any(spec.resource_claims for spec in specs):
        found.append(
            "new nodes have no devices of ResourceSlices; add these to the manifest of the Node, or name a node to copy"
        )
    if any(volume.claim is not None or volume.ephemeral is not None for spec in specs for volume in spec.volumes):
        found.append("new nodes have no limits of CSINodes")
    return found


def _headline(answer: FitAnswer, request: FitRequest, placed: int) -> str:
    count = len(answer.infos)
    pods = "the pod" if count == 1 else f"all {count} pods"
    match answer.verdict:
        case FitVerdict.FITS_NOW:
            return f"{pods} would be scheduled now"
        case FitVerdict.FITS_AFTER_EVICTIONS:
            assert answer.after_evictions is not None
            victims, awaited = len(answer.after_evictions.victims), len(answer.after_evictions.awaited)
            parts = [f"the eviction of {counted(victims, 'pod')}"] if victims else []
            parts += [f"the end of {counted(awaited, 'terminating pod')}"] if awaited else []
            return f"{pods} would be scheduled after {' and '.join(parts)}"
        case FitVerdict.FITS_WITH_NEW_NODES:
            assert answer.with_new_nodes is not None
            nodes = counted(len(answer.with_new_nodes.new_nodes), "new node")
            return f"{pods} would be scheduled with {nodes} of the template"
        case FitVerdict.IMPOSSIBLE:
            where = "and on nodes of the template " if request.template is not None and request.max_new else ""
            return f"impossible on the present nodes {where}whatever else runs there: {answer.reason}"
        case FitVerdict.GAVE_UP:
            return f"no answer: {answer.reason}"
        case _:
            return f"does not fit now: {placed} of {counted(count, 'pod')} would be scheduled"


class OperatorAnswer:
    """The answer to one request, which is read with the first document: in a copy of the process if it is long.

    Args:
        namespaces: Namespaces in which the request may have pods and groups.
        templates: ResourceClaimTemplates of the cluster, and notices about those that are not read; None if none is.

    Attributes:
        is_single: Whether one pod is requested, and no new nodes.
        was_given_up: Whether the last document was given up.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        query: FitBody,
        priority_classes: Sequence[dict[str, Any]],
        namespaces: AbstractSet[str],
        templates: tuple[Sequence[dict[str, Any]], Sequence[str]] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._query = query
        self._priority_classes = priority_classes
        self._namespaces = namespaces
        self._templates = templates
        workloads = [each for each in query.objects if expands(each)]
        has_template = query.node_template is not None or bool(query.node)
        self.is_single = len(workloads) == 1 and is_one_pod(workloads[0], query.count) and not has_template
        self.was_given_up = False
        self._read: tuple[FitRequest, tuple[str, ...]] | None = None

    def _request(self) -> tuple[FitRequest, tuple[str, ...]]:
        """Return the request, with notices; raises ConfigError with every problem of the manifests."""
        if self._read is not None:
            return self._read
        scheduler, query = self._scheduler, self._query
        template = _template(scheduler, query)
        templates, not_read = self._templates or ((), ())
        objects = enumerate([*query.objects, *templates], 1)
        question = FitQuestion(
            objects=[Placed(each, Place("objects", 0, number)) for number, each in objects],
            namespace=query.namespace,
            profile=query.profile,
            count=query.count,
            priority_classes=self._priority_classes,
            known_from="the manifests" if self._templates is None or not_read else "the manifests or the cluster",
            template=template,
            max_new=query.max_new if template is not None else 0,
            may_evict=query.evictions,
        )
        request, notices = read_question(question, scheduler.decoded)
        found = {each.metadata.namespace for each in request.pods} | {each.key.namespace for each in request.groups}
        if not found <= self._namespaces:
            others = ", ".join(sorted(found - self._namespaces))
            raise ConfigError([Problem("objects", f"have pods in namespaces that no metadata.namespace has: {others}")])
        self._read = request, (*not_read, *notices)
        return self._read

    def document(self, steps: int | None) -> FitDocument:
        """Return the answer.

        Args:
            steps: Maximum number of steps; None for that of dry runs.

        Raises:
            ConfigError: With every problem of the manifests.
            SchedulerCoreError: A pod or the node template cannot be compiled.
        """
        request, notices = self._request()
        found = fit_document(self._scheduler, request, steps, notices)
        self.was_given_up = found.verdict is FitVerdict.GAVE_UP
        return found


def build_decoders() -> None:
    """Build the decoders and validators that are built with their first use, by reading a gang and a node."""
    meta, containers = {"name": "first"}, [{"name": "main", "image": "example.com/image"}]
    template = {"metadata": {"labels": {POD_GROUP_LABEL: meta["name"]}}, "spec": {"containers": containers}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}
    group = {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 1}}
    read_question(FitQuestion(objects=[Placed(each, Place("objects", 0, 1)) for each in (job, group)]))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": {"cpu": "1"}}}
    read_template([Placed(node, Place("nodeTemplate", 0))])


def _template(scheduler: Scheduler, query: FitBody) -> NodeTemplate | None:
    if query.node_template is not None:
        slices = [
            Placed(each, Place("nodeTemplateSlices", 0, number))
            for number, each in enumerate(query.node_template_slices, 1)
        ]
        return read_template([Placed(query.node_template, Place("nodeTemplate", 0)), *slices], scheduler.decoded)
    if not query.node:
        return None
    found = NodeTemplate.of_node(scheduler.context.cache.columns, query.node)
    if found is None:
        raise ConfigError([Problem("node", f'there is no node "{query.node}"; correct the name')])
    return found


async def for_reader(document: bytes, readable: Callable[[set[str]], Awaitable[AbstractSet[str]]]) -> bytes:
    """Return a document without the names of victims that its reader may not read; their number stays.

    Args:
        readable: Returns those of some namespaces in which the reader may list pods.
    """
    found = read_fit(document)
    evictions = found.evictions
    if evictions is None or not evictions.victims:
        return document
    namespaces = await readable({each.namespace for each in evictions.victims})
    victims = tuple(each for each in evictions.victims if each.namespace in namespaces)
    return msgspec.json.encode(replace(found, evictions=replace(evictions, victims=victims)))
