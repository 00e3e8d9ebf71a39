"""Documents of dry runs that are built in a copy of the process, so that the scheduling loop runs meanwhile.

In the copy, a dry run may take as many steps as an attempt. One copy builds a document at a time; further requests wait
for its end. In a small cluster a dry run takes less time than a fork, and is made at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import msgspec
from msgspec import Struct

from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.ports import SearchProcesses

log = logging.getLogger(__name__)

_FEWEST_NODES = 100


class Document(Struct, frozen=True):
    """A response: its HTTP status, and a JSON document or the text of a refusal."""

    status: int
    body: bytes


_decode = msgspec.msgpack.Decoder(Document).decode


class BackgroundDocuments:
    """Builds documents.

    Args:
        processes: Starts copies of this process; None to build every document at once.
        fewest_nodes: Number of nodes from which a document is built in a copy.

    Attributes:
        count: Number of documents that a copy has built.
    """

    def __init__(
        self, context: CycleContext, processes: SearchProcesses | None, fewest_nodes: int = _FEWEST_NODES
    ) -> None:
        self.count = 0
        self._context = context
        self._processes = processes
        self._fewest_nodes = fewest_nodes
        self._turn = asyncio.Lock()

    async def build(self, make: Callable[[], Document], charge: Callable[[float], None] = lambda _: None) -> Document:
        """Return what a function returns that reads the scheduler's state.

        If the copy ends without a document, the function is called in this process, with the limits of dry runs there.

        Args:
            charge: Called with the seconds in which the event loop did not run: those of a fork, or of the function.
        """
        processes, context = self._processes, self._context
        if processes is None or context.cache.columns.count < self._fewest_nodes:
            with _charged(charge):
                return make()
        async with self._turn:
            await context.suspension.over()
            done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

            def ended(result: bytes | None) -> None:
                if not done.done():
                    done.set_result(result)

            try:
                with _charged(charge):
                    send = processes.fork(ended)
            except OSError as error:
                log.warning("no process can be started for a document: %s", error)
                with _charged(charge):
                    return make()
            if send is not None:
                try:
                    context.background.become_copy(send)
                    context.steps.dry_run_steps = context.steps.attempt_steps
                    result = msgspec.msgpack.encode(make())
                except BaseException:  # noqa: BLE001 - the copy must not continue as the process that it copies
                    send(None)
                send(result)
            try:
                found = await done
            except asyncio.CancelledError:
                processes.stop()
                raise
        if found is None:
            await context.suspension.over()
            with _charged(charge):
                return make()
        self.count += 1
        return _decode(found)


@contextmanager
def _charged(charge: Callable[[float], None]) -> Iterator[None]:
    began = perf_counter()
    try:
        yield
    finally:
        charge(perf_counter() - began)
