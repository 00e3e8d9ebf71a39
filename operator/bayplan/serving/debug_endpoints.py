"""``/debug``: status, cache check, leader, tasks and, if enabled, a profile of the running operator.

Only callers on the same host are accepted, with the exceptions in ``authorization``; see ``local_callers``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web
from msgspec import Struct

from bayplan.introspection.cache_check_report import cache_report
from bayplan.introspection.profiler_and_tasks import (
    MAX_SECONDS,
    Profiler,
    ProfilerBusyError,
    profile_bytes,
    profile_text,
    tasks_text,
)
from bayplan.introspection.shadow_report import ShadowReport
from bayplan.introspection.status_building import DEFAULT_LIMIT
from bayplan.introspection.status_model import Status
from bayplan.kube.leader_election import LeaderState
from bayplan.serving.endpoint_paths import (
    CACHE_PATH,
    INDEX_PATH,
    LEADER_PATH,
    PROFILE_PATH,
    STATUS_PATH,
    TASKS_PATH,
)
from bayplan.serving.same_host_access import for_this_host, refusal
from scheduler_core.errors import ClusterWriteError
from scheduler_core.snapshot.cache_comparison import CacheDifference

_DEFAULT_PROFILE_SECONDS = 10.0


class DebugSources(Struct, frozen=True):
    """Sources of the endpoints' responses.

    Attributes:
        status: Returns the status, with at most the given number of pods for each place in the queue.
        check_cache: Compares the cache with the API server.
        shadow: Returns the report of a shadow profile by its name; None if it does not run here.
        is_profiling_enabled: Whether ``/debug/profile`` is enabled.
        documents: Returns the documents of the page for a report; there is no report without it.
    """

    status: Callable[[int], Status]
    check_cache: Callable[[], Awaitable[list[CacheDifference]]]
    leader: Callable[[], LeaderState]
    is_profiling_enabled: bool = False
    shadow: Callable[[str], ShadowReport | None] = lambda _: None
    documents: Callable[[], Awaitable[Struct]] | None = None


class DebugEndpoints:
    """Debug endpoints of the process."""

    def __init__(self, sources: DebugSources) -> None:
        self._sources = sources
        self._profiler = Profiler()

    @property
    def routes(self) -> list[web.RouteDef]:
        """Routes to add to a server."""
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
            f"{STATUS_PATH}?shadow=NAME       what a shadow profile decided differently: bayplan status --shadow\n"
            f"{CACHE_PATH}                    differences between the cache and the API server\n"
            f"{LEADER_PATH}                   the leader and its address\n"
            f"{TASKS_PATH}                    stacks of all tasks\n"
            f"{PROFILE_PATH}?seconds=N       profile of the event loop; &format=pstats for a file{profile}\n"
            "/debug/explain?namespace=NS&pod=NAME  why a pod is or is not scheduled: bayplan explain\n"
            "/debug/explain?namespace=NS&podgroup=NAME  why a gang waits: bayplan explain podgroup/NAME\n"
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
        documents = await self._documents(request.query.get("panels", "false"))
        status = self._sources.status(int(text))
        answer = status if documents is None else {"status": status, "documents": documents}
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _documents(self, requested: str) -> Struct | None:
        return await self._sources.documents() if requested == "true" and self._sources.documents else None

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
