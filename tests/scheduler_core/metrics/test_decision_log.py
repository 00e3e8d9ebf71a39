"""The decision log: one record for each scheduled or rejected pod."""

from __future__ import annotations

import logging

import pytest

from scheduler_core.in_tree import default_plugins
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, rig

LOGGER = "scheduler_core.decisions"


async def decision_records(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """Schedule one pod and reject another; return the decision log."""
    caplog.set_level(level, logger=LOGGER)
    made = rig(defaults=default_plugins())
    made.add(node("n1"), node("n2"))
    made.add(pod("web"))
    assert await made.attempt()
    made.add(pod("huge", requests={"cpu": "1000"}))
    assert not await made.attempt()
    return [record for record in caplog.records if record.name == LOGGER]


async def test_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each decision is one record with the pod in fields, and with the node if scheduled or the reason if not."""
    bound, rejected = await decision_records(caplog, logging.DEBUG)
    fields = bound.__dict__
    assert (fields["pod"], fields["profile"], fields["result"]) == ("default/web", DEFAULT_NAME, "scheduled")
    assert fields["node"] in ("n1", "n2")
    assert fields["revision"]
    assert "2 of 2 nodes are feasible, attempt 1" in bound.getMessage()
    assert "default/huge is unschedulable" in rejected.getMessage()
    assert "Insufficient cpu" in rejected.getMessage()
    assert "node" not in rejected.__dict__


async def test_nothing_is_logged_unless_enabled(caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO, no decision is logged."""
    assert await decision_records(caplog, logging.INFO) == []
