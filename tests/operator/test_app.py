"""The composition root, without a cluster."""

from __future__ import annotations

import logging

import pytest
from bayplan.app import Operator
from bayplan.kube.cluster_access import ConfiguredAccess
from bayplan.settings import load_settings
from kubernetes.aio.client import Configuration

from tests.support.fake_api import FakeApi


async def broken() -> None:
    """A core task that fails."""
    raise RuntimeError("a fault")


async def test_a_failed_core_task_ends_the_process(caplog: pytest.LogCaptureFixture) -> None:
    """The exit code is 1, the log names the task, and the shutdown is bounded as usual."""
    configuration = Configuration()
    limits: list[float] = []

    async def reload() -> None:
        """Do nothing: there is nothing to reload."""

    async with FakeApi() as api:
        configuration.host = api.base_url
        settings = load_settings({"serve_address": "", "graceful_stop_seconds": 3})
        operator = Operator(settings, ConfiguredAccess(configuration, reload), limits.append)
        operator._spawn("scheduler", broken())
        with caplog.at_level(logging.CRITICAL):
            assert await operator.run() == 1
    assert limits == [3.0]
    assert "The scheduler failed unexpectedly" in caplog.text
