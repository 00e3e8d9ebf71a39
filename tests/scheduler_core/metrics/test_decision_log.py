"""The decision log."""

from __future__ import annotations

import logging

import pytest

from scheduler_core.in_tree import default_plugins
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, rig

LOGGER = "scheduler_core.decisions"


async def decided(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """Return a scheduler with one bound pod and one unschedulable pod."""
    caplog.set_level(level, logger=LOGGER)
    made = rig(defaults=default_plugins())
    made.add(node("n1"), node("n2"))
    made.add(pod("web"))
    assert await made.attempt()
    made.add(pod("huge", requests={"cpu": "1000"}))
    assert not await made.attempt()
    return [record for record in caplog.records if record.name == LOGGER]


async def test_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each pod with its subject in fields: node and candidates if it is bound, the reason if not."""
    bound, turned_away = await decided(caplog, logging.DEBUG)
    fields = bound.__dict__
    assert (fields["pod"], fields["profile"], fields["result"]) == ("default/web", DEFAULT_NAME, "scheduled")
    assert fields["node"] in ("n1", "n2")
    assert fields["revision"]
    assert "2 of 2 nodes are feasible, attempt 1" in bound.getMessage()
    assert "default/huge is unschedulable" in turned_away.getMessage()
    assert "Insufficient cpu" in turned_away.getMessage()
    assert "node" not in turned_away.__dict__


async def test_nothing_is_logged_unless_enabled(caplog: pytest.LogCaptureFixture) -> None:
    """At the default level nothing is logged for a pod."""
    assert await decided(caplog, logging.INFO) == []
