"""Answers of the running operator; its module is imported with the first request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from bayplan.fit.building import fit_document
from bayplan.fit.documents import FitDocument
from bayplan.fit.request_reading import FitQuestion, read_question, read_template
from bayplan.fit.workload_pods import expands, is_one_pod
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.texts.document_formats import read_answer
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.fit.answers import FitVerdict
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.scheduler import Scheduler


class FitQuery(Protocol):
    """The fields of a request that decide on the answer."""

    objects: list[dict[str, Any]]
    namespace: str
    profile: str
    count: int | None
    node_template: dict[str, Any] | None
    node: str
    max_new: int
    evictions: bool


class OperatorAnswer:
    """The answer to one request, which is read with the first document: in a copy of the process if it is long.

    Args:
        namespaces: Namespaces in which the request may have pods and groups.

    Attributes:
        is_single: Whether one pod is requested, and no new nodes.
        was_given_up: Whether the last document was given up.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        query: FitQuery,
        priority_classes: Sequence[dict[str, Any]],
        namespaces: AbstractSet[str],
    ) -> None:
        self._scheduler = scheduler
        self._query = query
        self._priority_classes = priority_classes
        self._namespaces = namespaces
        workloads = [each for each in query.objects if expands(each)]
        has_template = query.node_template is not None or bool(query.node)
        self.is_single = len(workloads) == 1 and is_one_pod(workloads[0], query.count) and not has_template
        self.was_given_up = False
        self._read: tuple[FitRequest, tuple[str, ...]] | None = None

    def _request(self) -> tuple[FitRequest, tuple[str, ...]]:
        """Return the request, with notices.

        Raises:
            ConfigError: With every problem of the manifests.
        """
        if self._read is not None:
            return self._read
        scheduler, query = self._scheduler, self._query
        template = _template(scheduler, query)
        question = FitQuestion(
            objects=[Placed(each, Place("objects", 0, number)) for number, each in enumerate(query.objects, 1)],
            namespace=query.namespace,
            profile=query.profile,
            count=query.count,
            priority_classes=self._priority_classes,
            template=template,
            max_new=query.max_new if template is not None else 0,
            may_evict=query.evictions,
        )
        request, notices = read_question(question, scheduler.decoded)
        found = {each.metadata.namespace for each in request.pods} | {each.key.namespace for each in request.groups}
        if not found <= self._namespaces:
            others = ", ".join(sorted(found - self._namespaces))
            raise ConfigError([Problem("objects", f"have pods in namespaces that no metadata.namespace has: {others}")])
        self._read = request, notices
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
    """Build the decoders and validators that are built with their first use, by reading a pod."""
    containers = [{"name": "main", "image": "example.com/image"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": {"containers": containers}}
    read_question(FitQuestion(objects=[Placed(pod, Place("objects", 0, 1))]))


def _template(scheduler: Scheduler, query: FitQuery) -> NodeTemplate | None:
    if query.node_template is not None:
        return read_template(Placed(query.node_template, Place("nodeTemplate", 0)), scheduler.decoded)
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
    found = read_answer(document, FitDocument, "an answer to a fit request")
    evictions = found.evictions
    if evictions is None or not evictions.victims:
        return document
    namespaces = await readable({each.namespace for each in evictions.victims})
    victims = tuple(each for each in evictions.victims if each.namespace in namespaces)
    return msgspec.json.encode(replace(found, evictions=replace(evictions, victims=victims)))
