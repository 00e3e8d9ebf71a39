"""Blocking client for the API server of a control plane, as its administrator.

Tests do not use kubectl for this: at ten requests a second, starting kubectl costs more than the servers spend on the
answers.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from hack.controlplane.launcher import ControlPlane

Manifest = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
SERVER_SIDE_APPLY = "application/apply-patch+yaml"

_AUTHORIZATION = "authorization.k8s.io"
_FORBIDDEN, _NOT_FOUND = 403, 404
_REQUEST_SECONDS = 60.0
_ADMISSION_SECONDS = 60.0
_POLL_SECONDS = 0.02
_CREATORS = 12

_CLUSTER_SCOPED = {
    "AdmissionCheck",
    "CSIDriver",
    "CSINode",
    "ClusterQueue",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "DeviceClass",
    "DeviceTaintRule",
    "KWOKNodeClass",
    "Namespace",
    "Node",
    "NodeClaim",
    "NodePool",
    "PersistentVolume",
    "PluginConfig",
    "PriorityClass",
    "ResourceFlavor",
    "RebalancePlan",
    "ResourceSlice",
    "SchedulerProfile",
    "StorageClass",
    "VolumeAttachment",
    "ValidatingWebhookConfiguration",
    "WorkloadPriorityClass",
}


class ApiRefusalError(Exception):
    """An answer that is an error.

    Attributes:
        text: Body of the answer.
    """

    def __init__(self, status: int, request: str, text: str) -> None:
        super().__init__(f"{request}: {status} {text}")
        self.status = status
        self.text = text


class ApiClient:
    """Client as administrator, safe for several threads; a context manager that closes its connections.

    Args:
        plane: The control plane; its API server may be restarted meanwhile.
    """

    def __init__(self, plane: ControlPlane) -> None:
        address = urlsplit(plane.url)
        self._host, self._port = address.hostname or "", address.port
        self._token = plane.admin.token
        self._tls = ssl.create_default_context(cafile=str(plane.state_dir / "certs" / "apiserver.crt"))
        self._idle: list[http.client.HTTPSConnection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the pooled connections; the next request opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Manifest:
        """Send a request; retry if a pooled connection was closed, as after a restart of the server.

        Args:
            body: Sent as JSON; None for no body.

        Raises:
            ApiRefusalError: The answer is an error.
            OSError: The server cannot be reached.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        payload = None if body is None else json.dumps(body)
        is_reused = bool(self._idle)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_REQUEST_SECONDS, context=self._tls
            )
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if is_reused:
                return self.request(method, path, body, content_type)
            raise ConnectionError(f"{method} {path}: {error}") from error
        self._idle.append(connection)
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiRefusalError(answer.status, f"{method} {path}", text.decode(errors="replace"))
        decoded: Manifest = json.loads(text)
        return decoded

    def get(self, path: str, **params: str) -> Manifest:
        return self.request("GET", f"{path}?{urlencode(params)}" if params else path)

    def items(self, path: str, **params: str) -> list[Manifest]:
        found: list[Manifest] = self.get(path, **params)["items"]
        return found

    def create(self, manifest: Manifest) -> Manifest:
        """Create an object and write its status; a node's status is accepted with the creation.

        The next pod may use a PriorityClass that was created.
        """
        made = self.request("POST", collection(manifest), manifest)
        if manifest["kind"] == "PriorityClass":
            self._await_admission(manifest["metadata"]["name"])
        if manifest.get("status") and manifest["kind"] != "Node":
            self.patch(manifest, {"status": manifest["status"]}, subresource="status")
        return made

    def _await_admission(self, priority_class: str) -> None:
        """Wait until admission, which receives PriorityClasses by a watch, accepts pods of a new one."""
        spec = {"priorityClassName": priority_class, "containers": [{"name": "c", "image": "i"}]}
        pod: Manifest = {"kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}, "spec": spec}
        deadline = time.monotonic() + _ADMISSION_SECONDS
        while True:
            try:
                self.request("POST", f"{collection(pod)}?dryRun=All", pod | {"apiVersion": "v1"})
            except ApiRefusalError as error:
                if error.status != _FORBIDDEN or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return

    def is_allowed(self, user: str, **attributes: Manifest) -> bool:
        """Return whether a user may do something.

        Args:
            user: Name of the user, without groups.
            attributes: ``resourceAttributes`` or ``nonResourceAttributes`` of a SubjectAccessReview.
        """
        kind = {"apiVersion": f"{_AUTHORIZATION}/v1", "kind": "SubjectAccessReview"}
        review = {**kind, "spec": {"user": user, **attributes}}
        answer = self.request("POST", f"/apis/{_AUTHORIZATION}/v1/subjectaccessreviews", review)
        return bool(status_of(answer).get("allowed"))

    def create_all(self, manifests: Iterable[Manifest]) -> None:
        """Create many objects concurrently, in no particular order."""
        with ThreadPoolExecutor(_CREATORS) as pool:
            list(pool.map(self.create, manifests))

    def would_create(self, manifest: Manifest) -> tuple[int, str]:
        """Create an object by a dry run, in which an unknown field is an error; return status code and message."""
        # Mutated objects have any namespace.
        path = collection({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": {}})
        try:
            self.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", manifest)
        except ApiRefusalError as refusal:
            return refusal.status, str(json.loads(refusal.text).get("message", ""))
        return http.HTTPStatus.CREATED, ""

    def would_apply(self, manifest: Manifest) -> Manifest:
        """Apply an object by a dry run, in which an unknown field is an error; return the object as it would be."""
        return self.apply(manifest, "dryRun=All&fieldValidation=Strict")

    def apply(self, manifest: Manifest, options: str = "") -> Manifest:
        """Create an object or change it; return it."""
        query = f"fieldManager=administrator&force=true&{options}"
        return self.request("PATCH", f"{address(manifest)}?{query}", manifest, SERVER_SIDE_APPLY)

    def patch(self, manifest: Manifest, change: Manifest, subresource: str = "") -> Manifest:
        path = address(manifest) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, change, MERGE_PATCH)

    def delete(self, manifest: Manifest, grace_seconds: int | None = None) -> None:
        """Delete an object; an object that does not exist is no error."""
        body = None if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        with _may_be_absent():
            self.request("DELETE", address(manifest), body)

    def remove_finalizers(self, manifest: Manifest) -> None:
        """Let the deletion of an object end; an object that a controller removed meanwhile is no error."""
        with _may_be_absent():
            self.patch(manifest, {"metadata": {"finalizers": None}})


@contextmanager
def _may_be_absent() -> Iterator[None]:
    try:
        yield
    except ApiRefusalError as error:
        if error.status != _NOT_FOUND:
            raise


def status_of(document: Mapping[str, Any]) -> Manifest:
    """Return the status of an object; empty until its controller has written one.

    ``tests/laws/test_reads_of_statuses.py`` forbids to read a status otherwise.
    """
    return document.get("status") or {}


def condition_of(document: Mapping[str, Any], kind: str) -> Manifest:
    """Return a condition of an object; empty until its controller has written one."""
    conditions: list[Manifest] = status_of(document).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def collection(manifest: Mapping[str, Any]) -> str:
    version = manifest.get("apiVersion", "v1")
    kind = manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _plural(kind.lower())
    if kind in _CLUSTER_SCOPED:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{manifest['metadata'].get('namespace', 'default')}/{plural}"


def _plural(kind: str) -> str:
    """Return the resource of a kind by the rule of client-go (``meta.UnsafeGuessKindToResource``)."""
    if kind.endswith("s"):
        return f"{kind}es"
    return f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"


def address(manifest: Mapping[str, Any]) -> str:
    return f"{collection(manifest)}/{manifest['metadata']['name']}"
