"""PodGroups that the operator creates for owners: requests for them, their deletion with their owners, and checks.

The garbage collector deletes an object whose owners are all gone, after a while and in no order with its siblings.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from bayplan.gangs.owner_groups import MANAGED_BY
from bayplan.resources.resource_model import API_VERSION

from scheduler_core.model.pod_group import GroupKey, GroupSource
from tests.simulation.api_server import OPERATOR, ApiServer, Response, status_response
from tests.simulation.network import Network
from tests.simulation.pod_groups import OwnedBody, PodGroups

_PATH = f"/apis/{API_VERSION}/namespaces/"


class OwnedGroups:
    """API of these PodGroups.

    Args:
        network: Provides the event loop and the trace.
        groups: Stores the objects, and delivers them to the operator.

    Attributes:
        sizes: Every number of members that the owner of a gang has had, by the key of the gang.
        annotations: Annotations of pods by UID.
        on_created: Called after the operator has created a PodGroup.
        problems: Problems of the operator's requests.
    """

    def __init__(self, network: Network, groups: PodGroups, seed: int) -> None:
        self._network = network
        self._server: ApiServer = network.server
        self._groups = groups
        self._rng = random.Random(f"{seed}/garbage collector")
        self.owner_uids: set[str] = set()
        self.sizes: dict[GroupKey, set[int]] = defaultdict(set)
        self.annotations: dict[str, dict[str, str]] = {}
        self.on_created: Callable[[], None] = lambda: None
        self.problems: list[str] = []

    # -- requests -----------------------------------------------------------------------------------------------

    def respond(self, method: str, path: str, document: dict[str, Any], client: str) -> Response:
        """Process a request for PodGroups, except for lists."""
        namespace, _, name = path.removeprefix(_PATH).partition("/podgroups")
        if method == "POST":
            return self._create(GroupKey(GroupSource.BAYPLAN, namespace, document["metadata"]["name"]), document)
        key = GroupKey(GroupSource.BAYPLAN, namespace, name[1:])
        body = self._groups.bodies.get(key)
        if body is None:
            return status_response(404, f'podgroups "{key.name}" not found')
        given = document["preconditions"] if method == "DELETE" else document["metadata"]
        if given["uid"] != body["metadata"]["uid"]:
            return status_response(409, f"the UID in the precondition does not match that of {key.name}")
        if method == "DELETE":
            if client == OPERATOR and self._existing_owners(body):
                self.problems.append(f"PodGroup {key} is deleted although its owner exists")
            self.delete(key)
            return 200, b"{}"
        self._check_size(key, document["spec"]["minMember"])
        return 200, msgspec.json.encode(self.edit(key, document["spec"]))

    def _create(self, key: GroupKey, document: dict[str, Any]) -> Response:
        if key in self._groups.bodies:
            return status_response(409, f'podgroups "{key.name}" already exists')
        self._check_size(key, document["spec"]["minMember"])
        # No room is held for replacements of lost members, which the runs of has_healing cover.
        document = {**document, "spec": {**document["spec"], "healing": {"holdSeconds": 0}}}
        body = self._put(key, document, {"uid": self._groups.new_uid(key), "generation": 1})
        self.on_created()
        self._collect_later()
        return 201, msgspec.json.encode(body)

    def _check_size(self, key: GroupKey, size: int) -> None:
        if size not in self.sizes[key]:
            self.problems.append(f"PodGroup {key} gets minMember {size}, and its owner had {sorted(self.sizes[key])}")

    def edit(self, key: GroupKey, spec: dict[str, Any]) -> dict[str, Any]:
        """Change fields of the spec of a PodGroup, and return it."""
        old = self._groups.bodies[key]
        return self._put(
            key, {**old, "spec": {**old["spec"], **spec}}, {"generation": old["metadata"]["generation"] + 1}
        )

    def _put(self, key: GroupKey, body: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        self._server.version += 1
        metadata = {**body["metadata"], **metadata, "resourceVersion": str(self._server.version)}
        body = {**body, "metadata": metadata}
        self._groups.put_body(OwnedBody(key, body))
        return body

    def delete(self, key: GroupKey) -> None:
        """Delete a PodGroup."""
        body = self._groups.bodies[key]
        self._server.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._server.version)}
        self._groups.put_body(OwnedBody(key, {**body, "metadata": metadata}, is_deleted=True))

    def take_over(self, key: GroupKey) -> None:
        """Remove the label by which the operator manages a PodGroup, as a user does who wants another quorum."""
        body = self._groups.bodies[key]
        labels = {name: value for name, value in body["metadata"]["labels"].items() if name != MANAGED_BY}
        self._put(key, body, {"labels": labels})

    # -- owners -------------------------------------------------------------------------------------------------

    def owner_deleted(self, uid: str, *, orphans: bool = False) -> None:
        """Record that an owner is deleted, and delete or orphan its PodGroups."""
        self.owner_uids.discard(uid)
        if not orphans:
            self._collect_later()
            return
        for key, body in list(self._groups.bodies.items()):
            references = [each for each in body["metadata"].get("ownerReferences", ()) if each["uid"] != uid]
            if len(references) < len(body["metadata"].get("ownerReferences", ())):
                self._put(key, body, {"ownerReferences": references})

    def pods_changed(self) -> None:
        """Delete PodGroups of deleted pods later."""
        self._collect_later()

    def _collect_later(self) -> None:
        self._network.loop.call_later(0.2 + 4.0 * self._rng.random() ** 2, self._collect)

    def _collect(self) -> None:
        for key, body in list(self._groups.bodies.items()):
            if body["metadata"].get("ownerReferences") and not self._existing_owners(body):
                self.delete(key)

    def _existing_owners(self, body: dict[str, Any]) -> list[str]:
        existing = self.owner_uids | {pod.metadata.uid for pod in self._server.pods()}
        return [each["uid"] for each in body["metadata"].get("ownerReferences", ()) if each["uid"] in existing]

    def check(self) -> Iterator[str]:
        """Yield the problems of requests since the last call."""
        yield from self.problems
        self.problems.clear()

    def check_idle(self) -> Iterator[str]:
        """Yield PodGroups whose owners are gone, after a long time without changes."""
        for key, body in self._groups.bodies.items():
            if not self._existing_owners(body) and body["metadata"]["labels"].get(MANAGED_BY):
                yield f"PodGroup {key} exists, and its owner and its pods do not"
