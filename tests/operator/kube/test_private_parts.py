"""Private parts of libraries that the operator uses still do what it needs, in the locked and in the lowest versions.

aiohttp and kopf have no upper bound: a version that changes one of these parts fails here, and not in a cluster.
"""

from __future__ import annotations

import inspect

import aiohttp
import pytest
from aiohttp.payload import BytesPayload, Payload
from bayplan.kube.http.api_request import ResponseLostError
from bayplan.kube.http.connection import ApiConnection, ApiRequest, FencedBody
from kopf._core.reactor import running

from tests.support.fake_api import FakeApi, Response

PATH = "/api/v1/things/a"


async def test_a_delete_is_sent_once(api: FakeApi, connection: ApiConnection) -> None:
    """A DELETE whose connection breaks is an error for the caller, and is not repeated."""
    api.on("DELETE", PATH, Response(), Response(disconnect=True))
    await connection.request(ApiRequest("DELETE", PATH))
    with pytest.raises(ResponseLostError):
        await connection.request(ApiRequest("DELETE", PATH))
    assert [request.method for request in api.received] == ["DELETE", "DELETE"]


async def test_aiohttp_repeats_a_delete(api: FakeApi) -> None:
    """The library itself repeats it: without the private switch there would be a third request."""
    api.on("DELETE", PATH, Response(), Response(disconnect=True), Response(404))
    async with aiohttp.ClientSession(api.base_url) as session:
        assert session._retry_connection is True
        for _ in range(2):
            async with session.delete(PATH, ssl=api.ssl_context or True) as response:
                await response.read()
    assert len(api.received) == 3


def test_the_fence_overrides_what_aiohttp_calls() -> None:
    """The body that may be refused overrides the method by which aiohttp writes a body of known length."""
    assert "write_with_length" in vars(Payload) or "write_with_length" in vars(BytesPayload)
    assert "write_with_length" in vars(FencedBody)
    parameters = list(inspect.signature(BytesPayload.write_with_length).parameters)
    assert parameters == list(inspect.signature(FencedBody.write_with_length).parameters)


def test_the_warning_that_is_filtered_out_exists() -> None:
    """The warning about signals exists, which the operator hides because it handles them itself."""
    assert running.logger.name == "kopf._core.reactor.running"
    assert '"OS signals are ignored' in inspect.getsource(running)
