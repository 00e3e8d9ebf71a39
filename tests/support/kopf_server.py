"""Scripted API server with what kopf requests before it watches: discovery, and CustomResourceDefinitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import API_VERSION, GROUP, VERSION
from bayplan.resources.scheduler_profile import SchedulerProfile

from tests.support.fake_api import FakeApi, Hang, ReceivedRequest, Response, Stream

OWN = f"/apis/{GROUP}/{VERSION}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1"
KINDS = (PluginConfig, SchedulerProfile, PodGroup)


def script_discovery(api: FakeApi) -> None:
    """Serve the kinds, no CustomResourceDefinition objects, and watches without events."""
    groups = [
        {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
        for group, version in ((GROUP, VERSION), ("apiextensions.k8s.io", "v1"))
    ]
    api.on("GET", "/api", Response(body={"versions": ["v1"]}))
    api.on("GET", "/api/v1", _resources(("namespaces", "Namespace")))
    api.on("GET", "/apis", Response(body={"groups": groups}))
    api.on("GET", OWN, _resources(*((kind.definition.plural, kind.definition.kind) for kind in KINDS)))
    api.on("GET", DEFINITIONS, _resources(("customresourcedefinitions", "CustomResourceDefinition")))
    script_lists(api, f"{DEFINITIONS}/customresourcedefinitions", watches=[])


def script_lists(
    api: FakeApi, path: str, watches: list[Response | Stream], next_list: Callable[[], Response] | None = None
) -> None:
    """Script the lists and watches of a kind separately.

    Args:
        watches: Responses to watches, in order; later ones have no events.
        next_list: Returns the response to a list; None for empty lists.
    """

    def respond(request: ReceivedRequest) -> Response | Stream:
        if "watch" in request.query:
            return watches.pop(0) if watches else Stream(Hang())
        return listed() if next_list is None else next_list()

    api.on("GET", path, respond)


def listed(*bodies: dict[str, Any], version: int = 5) -> Response:
    """Return a list of objects."""
    return Response(body={"items": list(bodies), "metadata": {"resourceVersion": str(version)}})


def event(kind: str, body: dict[str, Any]) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def failure(code: int) -> bytes:
    """Return the line that ends a watch with an error."""
    return event("ERROR", {"kind": "Status", "code": code, "message": "scripted"})


def _resources(*names: tuple[str, str]) -> Response:
    verbs = ["get", "list", "patch", "watch"]
    resources = [
        {"name": plural, "kind": kind, "singularName": kind.lower(), "namespaced": False, "verbs": verbs}
        for plural, kind in names
    ]
    return Response(body={"resources": resources})


def profile(name: str, version: int = 5) -> dict[str, Any]:
    """Return a SchedulerProfile."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    return {"apiVersion": API_VERSION, "kind": "SchedulerProfile", "metadata": metadata, "spec": {}}
