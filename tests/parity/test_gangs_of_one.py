"""Law: a gang of one decides as a pod, in the cases of every parity family.

The pod of each case is scheduled twice, by itself and as the only member of a gang: node, bind, nomination, victims,
writes of claims, condition, events, place in the queue and rejecting plugins are equal. :data:`ROWS` lists the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from scheduler_core.queueing.waiting_causes import NO_NODE_HELPS
from tests.parity.conformance.cases import Case, decode_case, read_lines
from tests.parity.gangs_of_one import Decision, decide
from tests.parity.oracle.generation.families import FAMILIES

CASES = Path(__file__).parent / "cases"
FILES = [*FAMILIES, "bent"]
CASES_PER_FILE = 20
PREEMPTION = ("node", "nominated", "victims", "withdrawn", "rejected_by")


def _terminates(case: Case, *_: Decision) -> bool:
    return any(pod.metadata.deletion_timestamp is not None for pod in case.pods)


def _after_bind(_: Case, alone: Decision, __: Decision) -> bool:
    return bool(alone.node) and not alone.bound


ROWS: dict[str, tuple[tuple[str, ...], Callable[[Case, Decision, Decision], bool], str]] = {
    "terminating pods": (
        PREEMPTION,
        _terminates,
        "terminating pods are gone for a gang (docs/gangs/how-it-works.md), while a pod counts them among its victims",
    ),
    "failed bind": (
        ("place", "rejected_by", "pending_on"),
        _after_bind,
        "a member whose bind failed is requeued at the position of its gang, not in an entry of its own",
    ),
}
"""Differences by design: the fields, whether they may differ, and the reason."""


@lru_cache
def cases(file: str) -> tuple[Case, ...]:
    """Return the first cases of a file, and those with terminating pods a second time without these."""
    lines = list(read_lines(str(CASES / f"{file}.jsonl.gz")))[:CASES_PER_FILE]
    found: list[Case] = []
    for case in map(decode_case, lines):
        found.append(case)
        lasting = tuple(pod for pod in case.pods if pod.metadata.deletion_timestamp is None)
        if len(lasting) < len(case.pods):
            found.append(replace(case, name=f"{case.name} without terminating pods", pods=lasting))
    return tuple(found)


def _diagnosis(message: str) -> str:
    """Return a message without the part of PostFilter, which a gang reports in the status of its group."""
    for mark in (" deallocation of ResourceClaim", " deletion of ResourceClaim", " not found", " preemption:"):
        message = message.partition(mark)[0]
    return message


def differences(case: Case, alone: Decision, together: Decision) -> list[str]:
    """Return the fields that differ although no row allows it."""
    exempt = {field for fields, may_differ, _ in ROWS.values() if may_differ(case, alone, together) for field in fields}
    found = []
    for field in Decision.__dataclass_fields__:
        was, became = getattr(alone, field), getattr(together, field)
        if field == "condition":
            # Members of a gang that new nodes cannot help have a reason for which autoscalers add none.
            is_helped = "; new nodes do not help: " not in became[1]
            diagnosis = _diagnosis(was[1]) if is_helped else _diagnosis(was[1]).removesuffix(".")
            is_equal = became[0] == (was[0] if is_helped else NO_NODE_HELPS) and diagnosis in became[1]
        elif field == "rejected_by":
            is_equal = was == became - {"GangScheduling"}
        else:
            is_equal = was == became
        if not is_equal and field not in exempt:
            found.append(f"{case.name}: {field}: a pod {was!r}, a gang of one {became!r}")
    return found


@pytest.mark.parametrize("file", FILES)
async def test_a_gang_of_one_decides_as_a_pod(file: str) -> None:
    """Each case has the same decision for a pod and for a gang of one."""
    found: list[str] = []
    for case in cases(file):
        alone, together = await decide(case, in_gang=False), await decide(case, in_gang=True)
        if alone is None or together is None:
            assert alone is together is None, case.name
            continue
        found += differences(case, alone, together)
    assert found == []


async def test_claims_are_deallocated() -> None:
    """Some cases deallocate a claim, so that the law compares the PostFilter plugins that write claims."""
    found = [await decide(case, in_gang=True) for case in cases("dra")]
    assert any(each is not None and "deallocate" in each.claim_calls for each in found)


async def test_pods_are_evicted() -> None:
    """Some cases without terminating pods evict pods."""
    found = [await decide(case, in_gang=True) for case in cases("preemption") if not _terminates(case)]
    assert any(each is not None and each.victims for each in found)
