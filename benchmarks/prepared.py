"""Prepared etcd data of a workload, from which each run starts a control plane.

The objects are created once through the API, before the first run; then the servers are stopped, and etcd's files are
saved. Every run starts on a copy, so both schedulers start from the same state, byte for byte.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from bayplan.kube.credentials import open_connection
from bayplan.kube.http.connection import MERGE_PATCH, ApiConnection, ApiRequest, ConnectionOptions
from bayplan.kube.timing import SystemClock

from benchmarks.workloads import NODES_PATH, PODS_PATH, PREEMPTING_PRIORITY, PRIORITY_CLASS, Document, encoded, node
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options

_PRIORITIES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
_CREATORS = 24
_POLICY = Path(__file__).with_name("audit-policy.yaml")


def plane_options(state_dir: Path | None = None) -> Options:
    """Return a control plane with the audit log that the benchmarks read."""
    return Options(audit=True, apiserver_args=(f"--audit-policy-file={_POLICY}",), state_dir=state_dir)


class PreparedCluster:
    """Nodes and pods in files of etcd; a context manager that deletes the files at its end.

    Args:
        pods: Manifests of the pods; bound pods have ``spec.nodeName``.
        others: Other objects, each with the path of its collection; they are created before the pods.
    """

    def __init__(self, nodes: int, pods: Iterable[Document], others: Iterable[tuple[str, Document]] = ()) -> None:
        self._nodes = nodes
        self._pods = pods
        self._others = others
        self._root = Path()

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="bayplan-benchmark-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    @contextmanager
    def started(self) -> Iterator[ControlPlane]:
        """Start a control plane on a copy of the files; remove both at the end."""
        made = self._root / "made"
        if not made.exists():
            with ControlPlane(plane_options(made)) as plane:
                asyncio.run(self._fill(plane))
        root = Path(tempfile.mkdtemp(prefix="run-", dir=self._root))
        try:
            shutil.copytree(made / "etcd", root / "etcd")
            with ControlPlane(plane_options(root)) as plane:
                yield plane
        finally:
            shutil.rmtree(root, ignore_errors=True)

    async def _fill(self, plane: ControlPlane) -> None:
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": PRIORITY_CLASS},
            "value": PREEMPTING_PRIORITY,
        }
        async with await connected(plane) as connection:
            await create_all(connection, _PRIORITIES_PATH, [encoded(priority)])
            await create_all(connection, NODES_PATH, (encoded(node(number)) for number in range(self._nodes)))
            for path, group in groupby(self._others, key=itemgetter(0)):
                documents = [document for _, document in group]
                await create_all(connection, path, map(encoded, documents))
                await _write_status(connection, path, documents)
            await create_all(connection, PODS_PATH, (encoded(document) for document in self._pods))


async def connected(plane: ControlPlane) -> ApiConnection:
    return await open_connection(plane.kubeconfig, None, ConnectionOptions(write_connections=_CREATORS), SystemClock())


async def create_all(connection: ApiConnection, path: str, bodies: Iterable[bytes]) -> None:
    waiting = iter(bodies)

    async def create() -> None:
        for body in waiting:
            await connection.request(ApiRequest("POST", path, body=body, timeout=60.0))

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATORS):
            group.create_task(create())


async def _write_status(connection: ApiConnection, path: str, documents: Iterable[Document]) -> None:
    """Write the status of objects that have one, which the API server drops when it creates them."""
    for document in documents:
        if "status" in document:
            target = f"{path}/{document['metadata']['name']}/status"
            body = encoded({"status": document["status"]})
            await connection.request(ApiRequest("PATCH", target, body=body, content_type=MERGE_PATCH, timeout=60.0))
