"""Tests of the admission webhook as kopf serves it: certificates, responses, and reviews that fail."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bayplan.kube.timing import SystemClock
from bayplan.profiles import kopf_handlers
from bayplan.profiles.kopf_handlers import KopfOperator, Reviewed, Watched, Webhook
from bayplan.resources.object_store import Body
from bayplan.resources.resource_model import CustomResource

from hack.controlplane.certificates import Authority
from hack.controlplane.probes import LOOPBACK, free_port
from scheduler_core.errors import Problem
from tests.operator.profiles.test_kopf_handlers import Watcher
from tests.support.fake_api import FakeApi
from tests.support.kopf_server import KINDS, OWN, profile, script_discovery, script_lists
from tests.support.tables import table

AUTHORITY = Authority()
STORED = [{"metadata": {"name": "stored"}}]


def by_name(
    body: Body,
    old: Body | None,
    plugin_configs: Callable[[], Sequence[Body]],
    missing: Callable[[CustomResource], Sequence[Problem]],
) -> Reviewed:
    """Refuse objects named "wrong", fail for those named "bug", and warn with what else was received."""
    name = body["metadata"]["name"]
    if name == "bug":
        raise ValueError(name)
    warnings = (f"old: {old is not None}", *(each["metadata"]["name"] for each in plugin_configs()))
    return Reviewed((Problem("spec.x", "is wrong"),) if name == "wrong" else (), warnings)


@asynccontextmanager
async def served(
    directory: Path, monkeypatch: pytest.MonkeyPatch, attempts: asyncio.Queue[None] | None = None
) -> AsyncIterator[int]:
    """Run kopf with the webhook, whose certificate is in a directory; yield the port.

    Args:
        attempts: Receives an entry for each attempt to serve.
    """
    monkeypatch.setattr(kopf_handlers, "_SERVE_AGAIN_SECONDS", 0.05)
    port = free_port()

    async def files() -> tuple[Path, Path]:
        if attempts is not None:
            attempts.put_nowait(None)
        return directory / "tls.crt", directory / "tls.key"

    async with FakeApi() as api:
        script_discovery(api)
        for kind in KINDS:
            script_lists(api, f"{OWN}/{kind.definition.plural}", [])
        webhook = Webhook((LOOPBACK, port), files, by_name, lambda: STORED)
        watched: dict[type[CustomResource], Watched] = {kind: Watched(Watcher(), lambda: None) for kind in KINDS}
        running = asyncio.create_task(KopfOperator(api, watched, webhook).run(SystemClock()))
        yield port
        running.cancel()
        await asyncio.wait([running])


async def review(port: int, body: Body, old: Body | None = None) -> dict[str, Any]:
    """Send a review as the API server does, and return the response; repeat it until the webhook is served."""
    request = {
        "uid": "1",
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"group": "bayplan.dev", "version": "v1alpha1", "resource": "schedulerprofiles"},
        "userInfo": {"username": "u"},
        "object": body,
        "oldObject": old,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    trust = ssl.create_default_context(cadata=AUTHORITY.certificate)
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"https://{LOOPBACK}:{port}/validate", json=document, ssl=trust) as response:
                    found: dict[str, Any] = (await response.json())["response"]
                    return found
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


@table(
    "name, old, expected",
    ("admitted", "right", None, {"allowed": True, "warnings": ["old: False", "stored"]}),
    ("updated", "right", profile("right"), {"allowed": True, "warnings": ["old: True", "stored"]}),
    (
        "refused",
        "wrong",
        None,
        {
            "allowed": False,
            "warnings": ["old: False", "stored"],
            "status": {"code": 422, "message": "spec.x: is wrong"},
        },
    ),
    ("a review that fails", "bug", None, {"allowed": True}),
)
async def test_responses(
    name: str, old: Body | None, expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response has problems and warnings of the review, and admits the object if the review fails."""
    AUTHORITY.issue("localhost", LOOPBACK).write(tmp_path, "tls")
    async with served(tmp_path, monkeypatch) as port:
        assert await review(port, profile(name), old) == {"uid": "1", **expected}


async def test_a_certificate_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a certificate kopf runs, the reason is logged once, and a certificate that comes later is served."""
    attempts = asyncio.Queue[None]()
    async with served(tmp_path, monkeypatch, attempts) as port:
        for _ in range(3):
            await attempts.get()
        AUTHORITY.issue("localhost", LOOPBACK).write(tmp_path, "tls")
        assert (await review(port, profile("right")))["allowed"]
    (line,) = (line for line in caplog.messages if "cannot be served" in line)
    assert "No such file" in line
    assert "kopf ended" not in caplog.text
