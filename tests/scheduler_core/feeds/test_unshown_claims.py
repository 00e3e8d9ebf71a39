"""Resource claims that the scheduler created and that no watch shows, which are read from the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.feeds.unconfirmed_pods import UnshownClaims
from scheduler_core.model.devices import ClaimMeta, ResourceClaim
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

CLAIM = ResourceClaim(metadata=ClaimMeta(name="created", namespace="default", uid="c", resource_version="5"))
OTHER = replace(CLAIM, metadata=replace(CLAIM.metadata, uid="other"))
NEWER = replace(CLAIM, metadata=replace(CLAIM.metadata, resource_version="6"))


class Unreachable(RecordingClaimWriter):
    """A writer whose reads fail."""

    async def read(self, claim: ResourceClaim) -> ResourceClaim:
        self.calls.append("read")
        raise ServerUnavailableError("no connection")


def created(made: Rig) -> None:
    made.scheduler.context.cache.columns.devices.claim_created(CLAIM, made.clock.now())


async def settled(made: Rig, writer: RecordingClaimWriter, seconds: float = 20) -> tuple[int, bool]:
    """Return the number of reads, and whether the claim is in the index."""
    made.clock.advance(seconds)
    devices = made.scheduler.context.cache.columns.devices
    before = len(writer.calls)
    await UnshownClaims(devices, writer, made.clock).settle(made.scheduler.device_feed, 15)
    return len(writer.calls) - before, devices.claims.get(CLAIM.key) is not None


@table(
    "writer, after",
    ("gone", RecordingClaimWriter(), (1, False)),
    ("recreated", RecordingClaimWriter(claims={CLAIM.key: OTHER}), (1, False)),
    ("exists", RecordingClaimWriter(claims={CLAIM.key: CLAIM}), (1, True)),
    ("unreachable", Unreachable(), (1, True)),
)
async def test_a_claim_that_no_watch_shows(writer: RecordingClaimWriter, after: tuple[int, bool]) -> None:
    """A created claim leaves the index only if it is gone on the API server; otherwise it is read again."""
    made = rig()
    created(made)
    assert await settled(made, writer, 10) == (0, True)
    assert await settled(made, writer, 10) == after
    assert await settled(made, writer, 10) == (0, after[1])
    assert await settled(made, writer, 10) == (int(after[1]), after[1])


def shown_before(made: Rig) -> None:
    made.scheduler.device_feed.added(CLAIM)
    created(made)


def shown(made: Rig) -> None:
    created(made)
    made.scheduler.device_feed.added(NEWER)


def unreadable(made: Rig) -> None:
    created(made)
    made.scheduler.device_feed.unreadable(NEWER, "odd")


def deleted(made: Rig) -> None:
    created(made)
    made.scheduler.device_feed.deleted(CLAIM)


@table(
    "happens, is_known",
    *((each.__name__, each, each is not deleted) for each in (shown_before, shown, unreadable, deleted)),
)
async def test_a_claim_that_a_watch_has_shown_is_not_read(happens: Callable[[Rig], Any], is_known: bool) -> None:
    """Once a watch has shown the claim, it reports the deletion, too, and nothing is read."""
    made, writer = rig(), RecordingClaimWriter()
    happens(made)
    assert await settled(made, writer) == (0, is_known)
