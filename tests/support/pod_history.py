"""Changes of the pods of a namespace in the order in which the API server stored them.

A watch in a thread records them. The audit log cannot be used: its order is that of the responses, in which a pod may
be bound before the pod that it replaces is deleted.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from ssl import create_default_context
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from hack.controlplane.accounts import milli
from hack.controlplane.launcher import ControlPlane

Manifest = dict[str, Any]
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Capacity of a node in milli-CPU and pods."""

    cpu: int
    pods: int


class PodHistory:
    """Record of a watch on pods; a context manager.

    Args:
        nodes: Capacity of every node that the pods may be bound to.

    Attributes:
        node_of: Node of each existing bound pod, by UID.
        names: Names of all pods that have existed, by UID.
        deleted: UIDs of deleted pods, in order.
        violations: Violations, in order.
    """

    def __init__(self, plane: ControlPlane, namespace: str, nodes: dict[str, NodeCapacity]) -> None:
        self.node_of: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.deleted: list[str] = []
        self.violations: list[str] = []
        self._nodes = nodes
        self._cpu: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self._path = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds={_SECONDS}&resourceVersion="
        self._headers = {"Authorization": f"Bearer {plane.admin.token}"}
        address = urlsplit(plane.url)
        trust = create_default_context(cafile=str(plane.state_dir / "certs" / "apiserver.crt"))
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=_SECONDS, context=trust
        )
        self._version = "0"
        self._ended = False
        self._thread = threading.Thread(target=self._read, name="pod-history", daemon=True)

    def __enter__(self) -> Self:
        self._connection.connect()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _read(self) -> None:
        try:
            # The API server ends the watch of a slow client; the next watch continues at the last resource version.
            while not self._ended and not self.violations:
                self._watch_once()
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not self._ended:
                self.violations.append(f"the history is incomplete: {error}")

    def _watch_once(self) -> None:
        self._connection.request("GET", self._path + self._version, headers=self._headers)
        with closing(self._connection.getresponse()) as response:
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.violations.append(f"the history is incomplete: {event['object']}")
                    return
                self._version = event["object"]["metadata"]["resourceVersion"]
                self._record(event["type"], event["object"])

    def _record(self, kind: str, pod: Manifest) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
        uid, before = metadata["uid"], self.node_of.get(metadata["uid"], "")
        self.names[uid] = metadata["name"]
        if kind == "DELETED":
            self.deleted.append(uid)
            self.node_of.pop(uid, None)
            self._add(before, pod, -1)
        elif before and node != before:
            self.violations.append(f"{metadata['name']} was moved from {before} to {node or 'no node'}")
        elif node and not before:
            self.node_of[uid] = node
            self._add(node, pod, 1)
            capacity = self._nodes.get(node, NodeCapacity(0, 0))
            if self._cpu[node] > capacity.cpu or self._pods[node] > capacity.pods:
                self.violations.append(
                    f"{metadata['name']} was bound to {node}, which then exceeds its capacity: {self._cpu[node]}m"
                )

    def _add(self, node: str, pod: Manifest, sign: int) -> None:
        if node:
            requests = (one["resources"].get("requests", {}) for one in pod["spec"]["containers"])
            self._cpu[node] += sign * sum(milli(each.get("cpu", "0")) for each in requests)
            self._pods[node] += sign
