"""What kopf is told."""

from __future__ import annotations

import itertools

from bayplan.handlers import EndlessBackoffs, connection_info, operator_settings
from bayplan.kube.cluster_access import ConfiguredAccess
from kubernetes.aio.client import Configuration


def test_kopf_neither_posts_nor_gives_up() -> None:
    """It writes no events, never kills the process, and its tries never end."""
    settings = operator_settings()
    assert not settings.posting.enabled
    assert settings.process.ultimate_exiting_timeout is None
    assert settings.queueing.worker_limit is None
    assert isinstance(settings.networking.error_backoffs, EndlessBackoffs)


def test_backoffs_grow_to_a_bound_and_never_end() -> None:
    """A thousand tries later there is still another, and none waits long."""
    delays = list(itertools.islice(EndlessBackoffs(), 1000))
    assert len(delays) == 1000
    assert delays[0] <= 0.5
    assert 4 <= delays[-1] <= 8


async def test_kopf_takes_our_credentials() -> None:
    """Its connection goes where ours goes, with the same token."""
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    configuration.api_key = {"BearerToken": "Bearer secret"}
    configuration.verify_ssl = False

    async def reload() -> None:
        """Nothing to read anew."""

    info = await connection_info(ConfiguredAccess(configuration, reload))
    assert (info.server, info.scheme, info.token, info.insecure) == ("http://127.0.0.1:1", "Bearer", "secret", True)
