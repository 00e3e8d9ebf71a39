"""The controller of PodGroups that are created by owner, for the rows of ``spec.gangs.fromOwners`` of profiles.

The core derives from a pod alone which gang it belongs to, and holds it until the PodGroup of that gang is known. This
controller creates the PodGroup, with the owner as its owner, and changes ``minMember`` when the owner changes. Other
fields, which a row may set for new PodGroups, belong to users.

    held: no owner, no size --owner received--> created --owner changed--> patched
       ^                                          |
       +---- the owner was recreated: deleted ----+       size 1: no object; the core gets a group of one member

Owners of a kind are watched from the first pod of such an owner on, until the process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.gangs.owner_sizes import (
    OWNER_TYPES,
    Owner,
    SuspendedError,
    UnknownSizeError,
    check_startup,
    parsed_size,
    size_annotation,
    size_of,
)
from bayplan.kube.http.api_request import MERGE_PATCH, ApiRequest, Lane, path_part
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.timing import delay_of_try
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.config.gang_owners import OwnerInstance, OwnerRule
from scheduler_core.errors import ClusterWriteError, ConflictError, ForbiddenError, NotFoundError, Problem
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.model.pod_group import PodGroup as Group
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "bayplan"
"""Value of that label of the PodGroups that this controller created."""

_GATHER_SECONDS = 0.05
_RETRY_INITIAL_SECONDS = 0.5
_RETRY_MAXIMUM_SECONDS = 30.0
_ORPHAN_SECONDS = 10.0
"""Time after which a PodGroup that has lost its last pod is checked for its owner."""
_REQUESTS = 16
"""Maximum number of gangs that are reconciled at the same time."""
_MOST_OWNER_PODS = 32
"""Maximum number of members that own the PodGroup of pods without another owner."""
_BUG = "The PodGroup %s cannot be reconciled because of a bug; please report it"
_LEADER_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"

_OwnerKey = tuple[str, str, str]
"""Resource of an owner with its API group, namespace, and name."""


class WaitingForOwnerError(Exception):
    """The owner is not known yet; the message names what is missing."""


class _AnnotatedObject(Struct, frozen=True):
    metadata: AnnotatedMeta


_ANNOTATED = ObjectJsonDecoder(_AnnotatedObject)
_OBJECT = ObjectJsonDecoder(dict[str, Any])


class GroupRequests(Protocol):
    """Requests of the controller."""

    async def annotations(self, namespace: str, pod: str) -> Mapping[str, str]:
        """Return the annotations of a pod."""

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Create a PodGroup; raises ConflictError if the name is taken."""

    async def set_spec(self, key: GroupKey, uid: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Merge fields into the spec of the PodGroup with this UID."""

    async def delete(self, key: GroupKey, uid: str) -> None:
        """Delete the PodGroup with this UID; one that is gone is no error."""


class PodGroupRequests:
    """Requests for PodGroups of Bayplan's own API."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def annotations(self, namespace: str, pod: str) -> Mapping[str, str]:
        path = f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(pod)}"
        answer = await self._connection.request(ApiRequest("GET", path, lane=Lane.READS))
        try:
            return _ANNOTATED.decode(answer).metadata.annotations
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"GET {path}: the response cannot be read: {error}") from error

    async def create(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        path = _collection(manifest["metadata"]["namespace"])
        return self._object(await self._connection.request(ApiRequest("POST", path, msgspec.json.encode(manifest))))

    async def set_spec(self, key: GroupKey, uid: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        body = msgspec.json.encode({"metadata": {"uid": uid}, "spec": spec})
        return self._object(
            await self._connection.request(ApiRequest("PATCH", _path(key), body, content_type=MERGE_PATCH))
        )

    async def delete(self, key: GroupKey, uid: str) -> None:
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
        try:
            await self._connection.request(ApiRequest("DELETE", _path(key), body))
        except NotFoundError:
            return

    def _object(self, answer: bytes) -> dict[str, Any]:
        try:
            return _OBJECT.decode(answer)
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"the response about a PodGroup cannot be read: {error}") from error


def _collection(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{path_part(namespace)}/{PodGroup.definition.plural}"


def _path(key: GroupKey) -> str:
    return f"{_collection(key.namespace)}/{path_part(key.name)}"


class OwnersOfKind:
    """The owners of one kind, as the watch delivers them.

    Attributes:
        by_name: Owners by namespace and name.
        trouble: Why they cannot be listed; "" if they are, or if nothing has failed yet.
    """

    def __init__(self, rule: OwnerRule, on_change: Callable[[_OwnerKey], None]) -> None:
        self.resource = resource_of(rule)
        self.by_name: dict[tuple[str, str], Owner] = {}
        self.is_listed = False
        self.trouble = ""
        self.on_trouble: Callable[[], None] = lambda: None
        self._on_change = on_change

    def added(self, owner: Owner) -> None:
        meta = owner.metadata
        self.by_name[meta.namespace, meta.name] = owner
        self._on_change((self.resource, meta.namespace, meta.name))

    def updated(self, old: Owner, new: Owner) -> None:
        if old.spec != new.spec or old.metadata.uid != new.metadata.uid:
            self.added(new)
        else:
            self.by_name[new.metadata.namespace, new.metadata.name] = new

    def deleted(self, owner: Owner) -> None:
        meta = owner.metadata
        self.by_name.pop((meta.namespace, meta.name), None)

    def listed(self) -> None:
        self.is_listed, self.trouble = True, ""
        self.on_trouble()

    def not_listed(self, reason: str) -> None:
        if not self.is_listed:
            self.trouble = reason
            self.on_trouble()

    @property
    def sink(self) -> FeedSink[Any]:
        """Handlers for an informer."""
        return FeedSink(self.added, self.updated, self.deleted, self.listed, self.not_listed)


def resource_of(rule: OwnerRule) -> str:
    """Return the resource of a rule's owners with its API group and version, such as ``jobs.v1.batch``."""
    group, _, version = rule.api_version.rpartition("/")
    return f"{rule.plural}.{version}.{group}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The PodGroup that a gang should have.

    Attributes:
        owners: Owner references of the object, as documents.
        owner_uids: UIDs of owners of which it must have one, so that it is not deleted before them.
    """

    size: int
    owners: tuple[dict[str, Any], ...]
    owner_uids: frozenset[str]


@dataclass(slots=True)
class _Record:
    """What is known about the PodGroup of one gang.

    Attributes:
        annotated: UID of the pod whose annotations were read last, and the size in them.
        is_busy: Whether a request is in progress.
        is_due: Whether it changed since that request began.
        is_alone: Whether the core has a group of one member, for which there is no object.
        refusal: Why there is no PodGroup, as reported to the core; "" for nothing.
        retry_at: Time of the next request after failures.
        is_checked: Whether it was made to check for a lost owner.
    """

    owner: _OwnerKey | None = None
    annotated: tuple[str, str] | None = None
    is_busy: bool = False
    is_due: bool = False
    is_alone: bool = False
    refusal: str = ""
    failures: int = 0
    retry_at: float = float("-inf")
    is_checked: bool = False
    instance: str = ""


class OwnerGroups:
    """Controller of the PodGroups of owners.

    Args:
        scheduler: Its gangs call the controller on each change; it receives groups of one member, and why others do
            not exist.
        groups: PodGroups of Bayplan's own API, as last received.
        watch: Begins the watch of a kind of owners.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        groups: BayplanGroups,
        requests: GroupRequests,
        clock: Clock,
        watch: Callable[[OwnerRule, OwnersOfKind], Any],
    ) -> None:
        self._gangs = scheduler.context.queue.gangs
        self._feed = scheduler.group_feed
        self._groups = groups
        self._requests = requests
        self._clock = clock
        self._watch = watch
        self._owners: dict[str, OwnersOfKind] = {}
        self._records: dict[GroupKey, _Record] = {}
        self._gangs_of: dict[_OwnerKey, dict[GroupKey, None]] = {}
        self._dirty: dict[GroupKey, None] = {}
        self._has_dirty = asyncio.Event()
        self._slots = asyncio.Semaphore(_REQUESTS)
        self._tasks: asyncio.TaskGroup | None = None
        self._gangs.on_change.append(self._changed)

    # -- changes ------------------------------------------------------------------------------------------------

    def _changed(self, gang: Gang) -> None:
        if gang.owner is not None or gang.key in self._records:
            self._mark(gang.key)
        elif not gang.pods and self._is_orphan(gang.key):
            # An earlier process has not deleted it.
            self._check_later(gang.key)

    def _mark(self, key: GroupKey) -> None:
        self._dirty[key] = None
        self._has_dirty.set()

    def _owner_changed(self, owner: _OwnerKey) -> None:
        for key in self._gangs_of.get(owner, ()):
            self._mark(key)

    def _mark_kind(self, resource: str) -> None:
        for owner, keys in self._gangs_of.items():
            if owner[0] == resource:
                for key in keys:
                    self._mark(key)

    # -- reconciling --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Create and change PodGroups until cancelled; start it only when this process leads."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for gang in self._gangs:
                self._changed(gang)
            while True:
                await self._has_dirty.wait()
                await self._clock.sleep(_GATHER_SECONDS)
                self._has_dirty.clear()
                dirty, self._dirty = self._dirty, {}
                for key in dirty:
                    record = self._records.setdefault(key, _Record())
                    if record.is_busy:
                        record.is_due = True
                        continue
                    if not self._needs_request(key, record) or self._clock.now() < record.retry_at:
                        continue
                    record.is_busy = True
                    await self._slots.acquire()
                    tasks.create_task(self._reconcile_in_slot(key, record))

    def _needs_request(self, key: GroupKey, record: _Record) -> bool:
        try:
            return not self._is_settled(key, record)
        except Exception:
            # The other PodGroups are reconciled all the same, as below.
            log.exception(_BUG, key)
            self._retry(key, record)
            return False

    async def _reconcile_in_slot(self, key: GroupKey, record: _Record) -> None:
        try:
            try:
                await self._reconcile(key, record)
            except ClusterWriteError as error:
                self._failed(key, record, error)
            else:
                record.failures = 0
        except Exception:
            # The other PodGroups are reconciled all the same.
            log.exception(_BUG, key)
            self._retry(key, record)
        finally:
            self._slots.release()
            record.is_busy = False
            if record.is_due:
                record.is_due = False
                self._mark(key)

    def _failed(self, key: GroupKey, record: _Record, error: ClusterWriteError) -> None:
        remedy = ""
        if type(error) is ForbiddenError:
            remedy = (
                "; grant this process's account the verbs create, patch and delete on resource podgroups of API group "
                "bayplan.dev"
            )
        log.warning("The PodGroup %s of %s cannot be written: %s%s", key, record.instance, error, remedy)
        if self._groups.body(key) is None:
            self._refuse(key, record, f"{error}{remedy}")
        self._retry(key, record)

    def _retry(self, key: GroupKey, record: _Record) -> None:
        record.failures += 1
        delay = delay_of_try(record.failures, _RETRY_INITIAL_SECONDS, _RETRY_MAXIMUM_SECONDS)
        record.retry_at = self._clock.now() + delay
        self._clock.call_later(delay, partial(self._mark, key))

    def _is_settled(self, key: GroupKey, record: _Record) -> bool:
        """Handle a gang that needs no request; return whether it is one."""
        gang = self._gangs.get(key)
        if gang is None or gang.owner is None or not gang.pods:
            if self._is_orphan(key):
                return False
            self._drop(key, record)
            return True
        instance = gang.owner
        record.instance = str(instance)
        if gang.group is None and record.is_alone:
            record.is_alone = False
        self._index(key, record, instance)
        if size_annotation(instance.rule) and self._annotated_pod(gang, record) is None:
            return False
        try:
            wanted = self._wanted(gang, instance, record)
        except SuspendedError:
            return True
        except (UnknownSizeError, WaitingForOwnerError) as error:
            if self._groups.body(key) is None:
                self._refuse(key, record, str(error))
            return True
        return self._matches(gang, record, wanted)

    def _matches(self, gang: Gang, record: _Record, wanted: _Wanted) -> bool:
        """Return whether the PodGroup is as wanted; deliver a group of one member to the core if that is enough."""
        body = self._groups.body(gang.key)
        if body is None:
            if wanted.size > 1:
                return False
            self._deliver_alone(gang.key, record, wanted)
            return True
        record.is_alone, record.refusal = False, ""
        if not _is_managed(body):
            return True
        return _is_owned(body, wanted) and body["spec"].get("minMember") == max(1, wanted.size)

    async def _reconcile(self, key: GroupKey, record: _Record) -> None:
        gang = self._gangs.get(key)
        if gang is None or gang.owner is None or not gang.pods:
            await self._delete_orphan(key)
            self._mark(key)
            return
        instance = gang.owner
        annotation = size_annotation(instance.rule)
        if annotation and self._annotated_pod(gang, record) is None:
            await self._read_size(gang, record, annotation)
            self._mark(key)
            return
        try:
            wanted = self._wanted(gang, instance, record)
        except (SuspendedError, UnknownSizeError, WaitingForOwnerError):
            self._mark(key)
            return
        body = self._groups.body(key)
        if body is None:
            await self._create(key, instance, wanted)
        elif not _is_managed(body):
            return
        elif not _is_owned(body, wanted):
            # The garbage collector deletes it, too, but later.
            await self._requests.delete(key, body["metadata"]["uid"])
            self._groups.gone(PodGroup, body)
        else:
            changed = {"minMember": max(1, wanted.size)}
            self._groups.seen(PodGroup, await self._requests.set_spec(key, body["metadata"]["uid"], changed))

    def _is_orphan(self, key: GroupKey) -> bool:
        """Return whether a PodGroup without pods has lost its owner, which was deleted without its dependents."""
        body = self._groups.body(key)
        return body is not None and _is_managed(body) and not body["metadata"].get("ownerReferences")

    async def _delete_orphan(self, key: GroupKey) -> None:
        body = self._groups.body(key)
        if body is not None and self._is_orphan(key):
            await self._requests.delete(key, body["metadata"]["uid"])
            self._groups.gone(PodGroup, body)

    async def _create(self, key: GroupKey, instance: OwnerInstance, wanted: _Wanted) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {MANAGED_BY: MANAGER},
                "ownerReferences": list(wanted.owners),
            },
            "spec": {"minMember": wanted.size, **_new_fields(instance.rule)},
        }
        try:
            created = await self._requests.create(manifest)
        except ConflictError as error:
            # An object that the watch has not delivered yet, or one that is being deleted.
            log.info("The PodGroup %s of %s exists already: %s", key, instance, error)
            raise
        log.info("Created PodGroup %s of %s with minMember %d", key, instance, wanted.size)
        self._groups.seen(PodGroup, created)

    def _deliver_alone(self, key: GroupKey, record: _Record, wanted: _Wanted) -> None:
        gang = self._gangs.get(key)
        # Half of an earlier delivery may be applied: its members are gated until the group is delivered again.
        if gang is not None and (gang.group is None or key in self._gangs.interrupted):
            record.is_alone, record.refusal = True, ""
            with self._feed.suspension.reporting_later_errors(partial(self._mark, key)):
                self._feed.group_changed(Group(key, f"one member of {wanted.owners[0]['uid']}", 1, is_basic=True))

    def _refuse(self, key: GroupKey, record: _Record, reason: str) -> None:
        if record.refusal == reason:
            return
        with self._feed.suspension.reporting_later_errors(partial(self._refusal_failed, key, record)):
            self._feed.group_refused(key, [Problem("", reason)])
        record.refusal = reason

    def _refusal_failed(self, key: GroupKey, record: _Record) -> None:
        record.refusal = ""
        self._mark(key)

    def _drop(self, key: GroupKey, record: _Record) -> None:
        body = self._groups.body(key)
        if body is None and (record.is_alone or record.refusal):
            with self._feed.suspension.reporting_later_errors(partial(self._deletion_failed, key)):
                self._feed.group_deleted(key)
        self._records.pop(key, None)
        if record.owner is not None:
            keys = self._gangs_of.get(record.owner, {})
            keys.pop(key, None)
            if not keys:
                self._gangs_of.pop(record.owner, None)
        if body is not None and _is_managed(body) and not record.is_checked:
            # The garbage collector removes the references to an owner that was deleted without its dependents later.
            self._check_later(key)

    def _deletion_failed(self, key: GroupKey) -> None:
        # As before the deletion: the core may still have the group.
        self._records.setdefault(key, _Record()).is_alone = True
        self._mark(key)

    def _check_later(self, key: GroupKey) -> None:
        self._clock.call_later(_ORPHAN_SECONDS, partial(self._check, key))

    def _check(self, key: GroupKey) -> None:
        self._records.setdefault(key, _Record(is_checked=True))
        self._mark(key)

    # -- what is wanted -----------------------------------------------------------------------------------------

    def _index(self, key: GroupKey, record: _Record, instance: OwnerInstance) -> None:
        if record.owner is None and instance.rule.plural:
            record.owner = (resource_of(instance.rule), key.namespace, instance.owner_name)
            self._gangs_of.setdefault(record.owner, {})[key] = None

    def _wanted(self, gang: Gang, instance: OwnerInstance, record: _Record) -> _Wanted:
        """Return the PodGroup that a gang should have.

        Raises:
            UnknownSizeError: Its size cannot be determined.
            SuspendedError: Its owner creates no pods now.
            WaitingForOwnerError: Its owner is not known yet.
        """
        rule = instance.rule
        owner = self._owner(instance) if rule.plural else None
        annotation = size_annotation(rule)
        if annotation:
            if owner is not None:
                check_startup(rule, owner)
            annotated = self._annotated_pod(gang, record)
            size = parsed_size("" if annotated is None else annotated, f"annotation {annotation}")
        else:
            assert owner is not None
            size = size_of(rule, owner, next(iter(gang.pods.values())).metadata.labels)
        if size < 1:
            raise SuspendedError
        owners = self._owner_references(gang, rule, owner)
        uids = frozenset(each["uid"] for each in owners) if owner is not None else frozenset(gang.pods)
        return _Wanted(size, owners, uids)

    def _owner(self, instance: OwnerInstance) -> Owner:
        owners = self._owners_of(instance.rule)
        found = owners.by_name.get((instance.key.namespace, instance.owner_name))
        if found is not None and instance.owner_uid in ("", found.metadata.uid):
            if found.metadata.deletion_timestamp is not None:
                raise WaitingForOwnerError(f"{instance} is being deleted")
            return found
        if owners.trouble:
            raise WaitingForOwnerError(f"the {owners.resource} cannot be listed: {owners.trouble}")
        if not owners.is_listed:
            raise WaitingForOwnerError(f"the {owners.resource} have not been listed yet")
        raise WaitingForOwnerError(f"{instance} is not known; it is being deleted, or was created a moment ago")

    def _owners_of(self, rule: OwnerRule) -> OwnersOfKind:
        resource = resource_of(rule)
        owners = self._owners.get(resource)
        if owners is None:
            owners = self._owners[resource] = OwnersOfKind(rule, self._owner_changed)
            owners.on_trouble = partial(self._mark_kind, resource)
            assert self._tasks is not None
            self._tasks.create_task(self._watch(rule, owners))
        return owners

    def _annotated_pod(self, gang: Gang, record: _Record) -> str | None:
        """Return the size as text in the annotation of a member that still exists; None if it was not read yet."""
        if record.annotated is None or record.annotated[0] not in gang.pods:
            return None
        return record.annotated[1]

    async def _read_size(self, gang: Gang, record: _Record, annotation: str) -> None:
        pod = _newest(gang.pods.values())
        try:
            found = await self._requests.annotations(pod.metadata.namespace, pod.metadata.name)
        except NotFoundError:
            # Its deletion is about to be delivered.
            return
        record.annotated = (pod.metadata.uid, found.get(annotation, ""))

    def _owner_references(self, gang: Gang, rule: OwnerRule, owner: Owner | None) -> tuple[dict[str, Any], ...]:
        if rule.sizing == "LeaderWorkerSet":
            leader = next((pod for pod in gang.pods.values() if pod.metadata.labels.get(_LEADER_LABEL) == "0"), None)
            if leader is None:
                raise WaitingForOwnerError("the leader pod of the replica is not known yet")
            return (_reference("v1", "Pod", leader.metadata.name, leader.metadata.uid, is_controller=True),)
        if owner is None:
            members = sorted(gang.pods.values(), key=lambda pod: pod.metadata.name)[:_MOST_OWNER_PODS]
            return tuple(
                _reference("v1", "Pod", pod.metadata.name, pod.metadata.uid, is_controller=False) for pod in members
            )
        meta = owner.metadata
        return (_reference(rule.api_version, rule.kind, meta.name, meta.uid, is_controller=True),)


def _newest(pods: Any) -> Pod:
    def age(pod: Pod) -> tuple[bool, str]:
        return pod.metadata.creation_timestamp is not None, str(pod.metadata.creation_timestamp)

    newest: Pod = max(pods, key=age)
    return newest


def _reference(api_version: str, kind: str, name: str, uid: str, *, is_controller: bool) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": is_controller}


def _new_fields(rule: OwnerRule) -> dict[str, Any]:
    topology = {} if rule.topology is None else {"topology": {"key": rule.topology.key, "mode": rule.topology.mode}}
    return topology | ({"queueing": rule.queueing} if rule.queueing else {})


def _is_managed(body: Mapping[str, Any]) -> bool:
    return (body["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER


def _is_owned(body: Mapping[str, Any], wanted: _Wanted) -> bool:
    """Return whether a PodGroup has one of the wanted owners, so that it is not deleted before them."""
    references: Sequence[Mapping[str, Any]] = body["metadata"].get("ownerReferences") or ()
    return not wanted.owner_uids.isdisjoint(each.get("uid") for each in references)


def owner_groups(
    scheduler: Scheduler, groups: BayplanGroups, connection: ApiConnection, informers: ClusterInformers, clock: Clock
) -> OwnerGroups:
    """Return the controller, which watches owners with informers."""

    async def watch(rule: OwnerRule, owners: OwnersOfKind) -> None:
        path = f"/apis/{rule.api_version}/{rule.plural}" if rule.api_group else f"/api/{rule.api_version}/{rule.plural}"
        await informers.begin(owners.resource, path, OWNER_TYPES[rule.sizing], owners.sink).run()

    return OwnerGroups(scheduler, groups, PodGroupRequests(connection), clock, watch)
