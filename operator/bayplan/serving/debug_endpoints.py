"""The endpoints /debug/* and the explanations of pods and gangs.

The profile of the event loop uses cProfile and not a sampling thread, because the event loop runs in one thread, and
counts of calls are as useful as times. While it runs Python code takes about half as much time again.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import marshal
import pstats
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import web
from msgspec import Struct

from bayplan.explanation.documents import Explanation, GangExplanation, only_namespace
from bayplan.introspection.reports import ShadowReport, cache_report
from bayplan.introspection.status_building import DEFAULT_LIMIT
from bayplan.introspection.status_model import Status
from bayplan.kube.leader_election import LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.serving import CACHE_PATH, EXPLAIN_PATH, INDEX_PATH, LEADER_PATH, PROFILE_PATH, STATUS_PATH, TASKS_PATH
from bayplan.serving.authorization import for_this_host, refusal
from scheduler_core.errors import ClusterWriteError, NotFoundError, SchedulerCoreError
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource
from scheduler_core.snapshot.cluster_cache import CacheDifference

_DEFAULT_PROFILE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DebugSources:
    """Sources of the endpoints' responses.

    Attributes:
        status: Returns the status, with at most the given number of pods for each place in the queue, of a namespace
            unless that is "".
        shadow: Returns the report of a shadow profile by its name; None if it does not run here.
        is_profiling_enabled: Whether ``/debug/profile`` is enabled.
        documents: Returns the documents of the page for a report; there is no report without it.
    """

    status: Callable[[int, str], Status]
    check_cache: Callable[[], Awaitable[list[CacheDifference]]]
    leader: Callable[[], LeaderState]
    is_profiling_enabled: bool = False
    shadow: Callable[[str], ShadowReport | None] = lambda _: None
    documents: Callable[[], Awaitable[Struct]] | None = None


class DebugEndpoints:
    def __init__(self, sources: DebugSources) -> None:
        self._sources = sources
        self._profiler = Profiler()

    @property
    def routes(self) -> list[web.RouteDef]:
        answers = {
            INDEX_PATH: self._index,
            STATUS_PATH: self._status,
            CACHE_PATH: self._cache,
            LEADER_PATH: self._leader,
            TASKS_PATH: self._tasks,
            PROFILE_PATH: self._profile,
        }
        return [web.get(path, for_this_host(answer)) for path, answer in answers.items()]

    async def _index(self, _: web.Request) -> web.Response:
        profile = "" if self._sources.is_profiling_enabled else "  (off; start with --enable-profiling)"
        return web.Response(
            text=f"{STATUS_PATH}?limit=N           queue, waiting pods, nominations, cache, profiles: bayplan status\n"
            f"{STATUS_PATH}?panels=true       the same with the documents of the page: bayplan status -o html\n"
            f"{STATUS_PATH}?namespace=NS      the same with the pods and gangs of one namespace: bayplan status -n\n"
            f"{STATUS_PATH}?shadow=NAME       what a shadow profile decided differently: bayplan status --shadow\n"
            f"{CACHE_PATH}                    differences between the cache and the API server\n"
            f"{LEADER_PATH}                   the leader and its address\n"
            f"{TASKS_PATH}                    stacks of all tasks\n"
            f"{PROFILE_PATH}?seconds=N       profile of the event loop; &format=pstats for a file{profile}\n"
            "/debug/explain?namespace=NS&pod=NAME  why a pod is or is not scheduled: bayplan explain\n"
            "/debug/explain?namespace=NS&podgroup=NAME  why a gang waits: bayplan explain podgroup/NAME\n"
            "/debug/explain?allNamespaces=true&pod=NAME  the same for the one pod of this name: bayplan explain -A\n"
        )

    async def _status(self, request: web.Request) -> web.Response:
        name = request.query.get("shadow")
        if name is not None:
            report = self._sources.shadow(name)
            if report is None:
                return refusal(404, f'no shadow profile "{name}" runs here; see: kubectl get schedulerprofiles -o wide')
            return web.Response(body=msgspec.json.encode(report), content_type="application/json")
        text = request.query.get("limit", str(DEFAULT_LIMIT))
        if not text.isdigit():
            return refusal(400, f"limit must be a number of pods, 0 for all, not {text!r}")
        documents = None
        if request.query.get("panels") == "true" and self._sources.documents is not None:
            documents = await self._sources.documents()
        status = self._sources.status(int(text), request.query.get("namespace", ""))
        answer = status if documents is None else {"status": status, "documents": documents}
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _cache(self, _: web.Request) -> web.Response:
        try:
            found = await self._sources.check_cache()
        except ClusterWriteError as error:
            return refusal(503, f"nodes or pods cannot be listed: {error}; retry")
        return web.Response(body=msgspec.json.encode(cache_report(found)), content_type="application/json")

    async def _leader(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self._sources.leader()), content_type="application/json")

    async def _tasks(self, _: web.Request) -> web.Response:
        return web.Response(text=tasks_text())

    async def _profile(self, request: web.Request) -> web.Response:
        if not self._sources.is_profiling_enabled:
            return refusal(403, "profiling is off; start the operator with --enable-profiling")
        seconds = _seconds(request.query.get("seconds", str(_DEFAULT_PROFILE_SECONDS)))
        if seconds is None:
            return refusal(400, f"seconds must be above 0 and at most {MAX_SECONDS:g}")
        kind = request.query.get("format", "text")
        if kind not in ("text", "pstats"):
            return refusal(400, f"format must be text or pstats, not {kind!r}")
        try:
            profile = await self._profiler.run(seconds)
        except ProfilerBusyError:
            return refusal(409, "another profile is in progress; retry when it has finished")
        if kind == "pstats":
            return web.Response(body=profile_bytes(profile), content_type="application/octet-stream")
        return web.Response(text=profile_text(profile, seconds))


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 < seconds <= MAX_SECONDS else None


SOURCES = {source.value: source for source in POD_GROUP_SOURCES}
SUSPENDED = "a scheduling cycle is suspended, because it waits for an extender or takes long; retry"


async def is_still_suspended(is_suspended: Callable[[], bool]) -> bool:
    """Return whether a cycle is suspended for longer than this turn of the loop, so that no dry run may be made."""
    if is_suspended():
        # Shadow profiles decide within this turn of the loop; an extender, or a long search, takes longer.
        await asyncio.sleep(0)
    return is_suspended()


def work_problem(query: Mapping[str, str], *, is_everywhere: bool = False) -> str:
    """Return what is wrong with the names in a request for the explanation of a pod or gang; "" if nothing is."""
    if bool(query.get("namespace")) == is_everywhere or bool(query.get("pod")) == bool(query.get("podgroup")):
        usage = "?namespace=NAMESPACE&pod=NAME, or &podgroup=NAME instead of the pod"
        return f"specify a pod or a PodGroup: {usage}"
    api = query.get("api", "")
    if api and api not in SOURCES:
        return f'api: unsupported value "{api}": supported values: {", ".join(SOURCES)}'
    return ""


def work_document(what: str, explain: Callable[[], Struct | None]) -> Document:
    """Return the explanation of a pod or gang, or why there is none."""
    try:
        found = explain()
    except SchedulerCoreError as error:
        return Document(HTTPStatus.UNPROCESSABLE_ENTITY, f"{what} cannot be explained: {error}".encode())
    if found is None:
        return Document(HTTPStatus.NOT_FOUND, f"{what} not found; check the namespace and the name".encode())
    return Document(HTTPStatus.OK, msgspec.json.encode(found))


Explainer = Callable[[str, str], Explanation | None]
"""Explains the pod with a namespace and name; None if it does not exist."""
GangExplainer = Callable[[str, str, GroupSource | None], GangExplanation | None]
"""Explains the gang with a namespace and name, and an API unless that is None; None if it does not exist."""
NamespacesOf = Callable[[str, bool], Sequence[str]]
"""Returns the namespaces in which a pod, or with True a gang, has this name."""


@dataclass(frozen=True, slots=True)
class ExplainCalls:
    """What the explain endpoint calls; ``namespaces_of`` finds a name in all namespaces."""

    pod: Explainer
    gang: GangExplainer = lambda *_: None
    namespaces_of: NamespacesOf = lambda *_: ()


class ExplainEndpoint:
    """Endpoint that explains pods and gangs.

    Args:
        readiness: Readiness of the process; before that an explanation would be based on an incomplete cluster.
        documents: Builds explanations in a copy of the process; None to build them at once.
    """

    def __init__(
        self,
        explainers: ExplainCalls,
        readiness: Readiness,
        is_suspended: Callable[[], bool] = lambda: False,
        documents: BackgroundDocuments | None = None,
    ) -> None:
        self._explainers = explainers
        self._documents = documents
        self._readiness = readiness
        self._is_suspended = is_suspended

    @property
    def routes(self) -> list[web.RouteDef]:
        return [web.get(EXPLAIN_PATH, for_this_host(self._respond))]

    async def _respond(self, request: web.Request) -> web.Response:
        missing = self._readiness.missing
        if missing:
            return refusal(503, f"not ready: {'; '.join(missing)}; retry")
        if self._readiness.role:
            return refusal(503, f"{self._readiness.role}; send the request to the leader, or use --offline")
        if await is_still_suspended(self._is_suspended):
            return refusal(503, SUSPENDED)
        query = request.query
        namespace, name, group, api = (query.get(each, "") for each in ("namespace", "pod", "podgroup", "api"))
        is_everywhere = query.get("allNamespaces") == "true"
        problem = work_problem(query, is_everywhere=is_everywhere)
        if problem:
            return refusal(400, problem)
        if is_everywhere:
            found = self._explainers.namespaces_of(name or group, bool(group))
            try:
                namespace = only_namespace("PodGroup" if group else "pod", name or group, found)
            except NotFoundError as error:
                return refusal(404, str(error))
        what = f"PodGroup {namespace}/{group}" if group else f"pod {namespace}/{name}"

        def explain() -> Explanation | GangExplanation | None:
            if group:
                return self._explainers.gang(namespace, group, SOURCES.get(api))
            return self._explainers.pod(namespace, name)

        make = partial(work_document, what, explain)
        built = make() if self._documents is None else await self._documents.build(make)
        if built.status != HTTPStatus.OK:
            return refusal(built.status, built.body.decode())
        return web.Response(body=built.body, content_type="application/json")


MAX_SECONDS = 60.0
_SHOWN_FUNCTIONS = 60


class ProfilerBusyError(Exception):
    """Another profile is in progress."""


class Profiler:
    """Profiler of the event loop, one profile at a time."""

    def __init__(self) -> None:
        self._is_running = False

    async def run(self, seconds: float) -> cProfile.Profile:
        """Profile everything that the event loop runs; raises ProfilerBusyError if another profile is in progress."""
        if self._is_running:
            raise ProfilerBusyError
        self._is_running = True
        profile = cProfile.Profile()
        try:
            profile.enable()
            await asyncio.sleep(min(seconds, MAX_SECONDS))
        finally:
            profile.disable()
            self._is_running = False
        return profile


def profile_text(profile: cProfile.Profile, seconds: float) -> str:
    """Return the functions with the highest total time and those with the highest cumulative time."""
    out = io.StringIO()
    out.write(f"{seconds:g} seconds of the event loop; the profiler itself makes Python code slower.\n")
    stats = pstats.Stats(profile, stream=out)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(_SHOWN_FUNCTIONS)
    return out.getvalue()


def profile_bytes(profile: cProfile.Profile) -> bytes:
    """Return the profile in the file format of ``pstats`` and ``snakeviz``."""
    stats = pstats.Stats(profile, stream=io.StringIO())
    table: dict[object, object] = stats.stats  # type: ignore[attr-defined]  # documented, and missing in typeshed
    return marshal.dumps(table)


def tasks_text() -> str:
    """Return every task except the running one with its stack."""
    out = io.StringIO()
    tasks = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=asyncio.Task.get_name)
    out.write(f"{len(tasks)} tasks\n")
    for task in tasks:
        out.write(f"\n{task.get_name()}\n")
        task.print_stack(file=out)
    return out.getvalue()
