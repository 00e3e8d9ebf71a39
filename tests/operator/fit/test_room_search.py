"""Dry runs for room that is held: a search that is too long for the scheduling loop runs in a copy of the process."""

from __future__ import annotations

from bayplan.fit.room_search import FitDryRun, FitResult
from bayplan.process.copies import BackgroundDocuments, ForkedSearches

from scheduler_core.fit.requests import FitRequest
from scheduler_core.ports import SearchProcesses
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

PODS = 600


def four_nodes(pods: int) -> Rig:
    """Return a scheduler with four nodes that have room for some pods each."""
    return default_rig(*(node(name, allocatable={"cpu": str(pods), "pods": str(pods)}) for name in "abcd"))


async def search(made: Rig, count: int, processes: SearchProcesses | None) -> FitResult:
    request = FitRequest(pods=tuple(pod(f"room-{number}", requests={"cpu": "1"}) for number in range(count)))
    return await FitDryRun(made.scheduler, BackgroundDocuments(made.context, processes)).search(request)


@table(
    "pods_of_node, fits, is_impossible",
    ("they fit", PODS // 4, True, False),
    ("they never fit", PODS // 4 - 1, False, True),
)
async def test_many_pods_on_few_nodes(pods_of_node: int, fits: bool, is_impossible: bool) -> None:
    """The limit of dry runs in the scheduling loop does not decide."""
    made = four_nodes(pods_of_node)
    found = await search(made, PODS, ForkedSearches())
    assert (found.fits, found.is_impossible, found.is_given_up) == (fits, is_impossible, False), found.message


async def test_many_pods_without_copies() -> None:
    """If the operator makes no copies, it reports that nothing was determined."""
    found = await search(four_nodes(PODS), PODS, None)
    assert found.is_given_up
    assert found.message.startswith("It was not determined whether the pods fit")


async def test_few_pods_need_no_copy() -> None:
    """In a small cluster they are searched at once."""
    made, processes = four_nodes(2), ForkedSearches()
    assert (await search(made, 8, processes)).fits
    assert processes.longest_fork_seconds == 0.0
