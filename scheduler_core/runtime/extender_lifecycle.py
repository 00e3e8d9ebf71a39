"""Extender clients: created with a framework instance and closed with it.

Closing runs in a task, because an instance ends in a synchronous step, with its last pod, and closing connections takes
time.

    created with an instance ──the instance is closed──▶ closing ──▶ closed

Clients that are open when the scheduler stops are closed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import ExtenderClient
from scheduler_core.runtime.extenders import ExtenderRunner, OpenExtenders, in_calling_order

log = logging.getLogger(__name__)

MakeClient = Callable[[str, Extender], ExtenderClient]
"""Creates a client from the scheduler name of a profile and one of its extenders."""


class ExtenderClients:
    """All open clients.

    Args:
        make_client: Creates a client; None if no extender is called.
    """

    def __init__(self, make_client: MakeClient | None) -> None:
        self._make = make_client
        self._open: set[ExtenderClient] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, profile: ProfileConfig) -> OpenExtenders:
        """Create the clients of a new instance.

        Raises:
            ConfigError: A client cannot be created; those created before are closed.
        """
        if self._make is None:
            return OpenExtenders()
        runners: list[ExtenderRunner] = []
        problems: list[Problem] = []
        for index, config in enumerate(profile.extenders):
            try:
                client = self._make(profile.scheduler_name, config)
            except ConfigError as error:
                where = f"extenders[{index}]"
                problems += [
                    Problem(f"{where}.{each.path}" if each.path else where, each.message) for each in error.problems
                ]
                continue
            except Exception as fault:
                message = f"the extender cannot be called: {fault}; correct it or remove it"
                problems.append(Problem(f"extenders[{index}]", message))
                continue
            self._open.add(client)
            runners.append(ExtenderRunner(config, client))
        opened = OpenExtenders(in_calling_order(runners), lambda: self._release(runner.client for runner in runners))
        if problems:
            opened.close()
            raise ConfigError(problems)
        return opened

    async def close(self) -> None:
        """Close all open clients and wait until they are closed."""
        self._release(list(self._open))
        if self._closing:
            await asyncio.wait(self._closing)

    def _release(self, clients: Iterable[ExtenderClient]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without a running loop no client is connected; :meth:`close` closes the rest.
            return
        for client in clients:
            if client in self._open:
                self._open.discard(client)
                task = loop.create_task(_closed(client))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


async def _closed(client: ExtenderClient) -> None:
    try:
        await client.close()
    except Exception:
        log.exception("the client of an extender failed to close")
