"""The kopf part of the operator: event handlers, settings, credentials and kopf's lifetime.

Only ``on.event`` handlers: they add no finalizer or annotation and see every change at once. kopf does not retry them,
so the controller retries. All are coroutines although none awaits: kopf runs plain functions in threads, where an
object could change in the middle of a reconcile.

kopf runs by ``spawn_tasks`` and not by ``kopf.operator``: it shares the scheduler's event loop, and ``kopf.operator``
cancels tasks that are not its own when it ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import aiohttp
import kopf

from bayplan.kube.http.deep_json import shallow
from bayplan.kube.kubeconfig_access import ConfiguredAccess
from bayplan.kube.timing import Backoff, delay_of_try
from bayplan.kube.watches.watch_stream import LineSplitter
from bayplan.resources.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 8.0
_STOP_SECONDS = 2.0
_CANCEL_AGAIN_SECONDS = 0.1
_SETTLED_SECONDS = 60.0


class Watcher(Protocol):
    """Receiver of watch events.

    Implemented by :class:`bayplan.profiles.profile_controller.ProfileController` and, for PodGroups, by
    :class:`bayplan.gangs.bayplan_group_source.BayplanGroups`.
    """

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """Store an object that was added, updated or listed again."""

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        """Remove a deleted object."""


Watchers = Mapping[type[CustomResource], Watcher]
"""The receiver of each kind's events."""


class EndlessBackoff:
    """Endless sequence of delays between kopf's attempts, in seconds: an unreachable server must not end a watch."""

    def __iter__(self) -> Iterator[float]:
        tries = 0
        while True:
            tries += 1
            yield delay_of_try(tries, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)


def operator_settings() -> kopf.OperatorSettings:
    """Return kopf's settings for a process that also schedules."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = EndlessBackoff()
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 10.0
    settings.queueing.worker_limit = None  # idle workers count too
    settings.process.ultimate_exiting_timeout = None  # it would kill the process some time after kopf ends
    return settings


def handler_registry(access: ConfiguredAccess) -> kopf.OperatorRegistry:
    """Return a registry with all handlers.

    Args:
        access: Credentials; kopf opens its own connection with them.

    Returns:
        The registry.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf_session(access, await access.authorization())

    @kopf.on.event(GROUP, VERSION, SchedulerProfile.definition.plural, registry=registry)
    async def profile_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
        _deliver(memo.watchers, SchedulerProfile, event)

    @kopf.on.event(GROUP, VERSION, PluginConfig.definition.plural, registry=registry)
    async def plugin_config_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
        _deliver(memo.watchers, PluginConfig, event)

    @kopf.on.event(GROUP, VERSION, PodGroup.definition.plural, registry=registry)
    async def pod_group_event(event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> None:
        _deliver(memo.watchers, PodGroup, event)

    return registry


def kopf_session(access: ConfiguredAccess, authorization: str | None) -> kopf.AiohttpSession:
    """Open a session for kopf, with a bound on the nesting depth of responses.

    Args:
        access: Address of the API server, and its TLS context.
        authorization: The current Authorization header; None for none.

    Returns:
        The session; kopf closes it.
    """
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=access.ssl_context or True),
        headers={"Authorization": authorization} if authorization else None,
        proxy=access.proxy,
        response_class=ShallowResponse,
    )
    return kopf.AiohttpSession(server=access.base_url, aiohttp_session=session)


async def watch_custom_resources(
    access: ConfiguredAccess, watchers: Watchers, clock: Clock, spawned: Callable[[], None]
) -> None:
    """Run kopf until cancelled; restart it when it ends.

    Args:
        access: Credentials.
        watchers: Receivers of the events.
        clock: Clock.
        spawned: Called after each start of kopf, which has then replaced the process's signal handlers and may have
            missed deletions.
    """
    backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
    while True:
        began = clock.now()
        tasks = await kopf.spawn_tasks(
            registry=handler_registry(access),
            settings=operator_settings(),
            memo=kopf.Memo(watchers=watchers),
            standalone=True,
            clusterwide=True,
        )
        spawned()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _stop(tasks)
        for task in ended:
            fault = None if task.cancelled() else task.exception()
            log.warning("kopf's task %r ended (%s); restarting the watch of custom resources", task.get_name(), fault)
        if clock.now() - began >= _SETTLED_SECONDS:
            backoff.reset()
        await clock.sleep(backoff.next_delay())


async def _stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel kopf's tasks and the tasks that they leave behind, until none is left.

    Cancelling once is not enough: a watcher of kopf 1.45.2 that waits for a response takes a cancellation as its own
    stopper's and continues to watch.
    """
    left = {*tasks, *_tasks_of_kopf()}
    deadline = asyncio.get_running_loop().time() + _STOP_SECONDS
    while left and asyncio.get_running_loop().time() < deadline:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)
        left = _tasks_of_kopf()
    if left:
        log.warning("%d of kopf's tasks do not stop and are abandoned", len(left))


def _tasks_of_kopf() -> set[asyncio.Task[Any]]:
    """Return the tasks of this loop that run kopf's code, whatever started them."""
    found = set()
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        if frame is not None and str(frame.f_globals.get("__name__", "")).startswith("kopf."):
            found.add(task)
    return found


def _deliver(watchers: Watchers, kind: type[CustomResource], event: kopf.RawEvent) -> None:
    watcher = watchers[kind]
    body: Body = event["object"]
    if event["type"] == "DELETED":
        watcher.gone(kind, body)
    else:
        watcher.seen(kind, body)


class ShallowResponse(aiohttp.ClientResponse):
    """HTTP response for kopf whose JSON, as a whole or line by line, has a bounded nesting depth.

    kopf 1.45.2 parses each line of a watch with the standard library's decoder, whose RecursionError ends the watch,
    and copies each object recursively, which fails at a few hundred levels. So depth is cut before kopf reads the
    response.
    """

    async def start(self, connection: Any) -> ShallowResponse:
        """Start, and deliver the body by lines."""
        await super().start(connection)
        self.content: Any = _ShallowLines(self.content)
        return self

    async def json(self, **_: Any) -> Any:
        """Return the body."""
        return json.loads(shallow(await self.read()))


class _ShallowLines:
    """Body whose :meth:`iter_chunked` yields whole lines; other attributes are those of the wrapped body."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield each complete line."""
        splitter = LineSplitter()
        async for chunk in self._content.iter_chunked(size):
            for line in splitter.feed(chunk):
                yield shallow(line) + b"\n"
