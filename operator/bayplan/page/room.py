"""Room for copies of a pod: of an existing one, of a pasted manifest, or of one with amounts that the reader types.

The nodes are those that the profile's plugins accept, in a dry run: taints, selectors, affinity, volumes, devices and
reservations count. How many copies a node has room for follows from its free amounts; a number of copies is also
dry-run, one after another, so that spreading and affinity between them count too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import yaml
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from bayplan.page.node_map import NodeRows
from bayplan.page.page_sources import PageSources
from bayplan.texts.yaml_documents import load_all
from scheduler_core.errors import QuantityError, SchedulerCoreError
from scheduler_core.explain.pod_dry_run import CopiesFit, fit_copies
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import CPU, amount_text, in_units, nano
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns

MAX_MANIFEST = 64 * 1024
"""Maximum length of a pasted manifest in bytes."""
_MAX_LENGTH = 1024
_MAX_COUNT = 1_000_000
_MAX_COPIES = 200
"""Maximum number of copies that are dry-run."""
_MAX_TRIED_DOMAINS = 5
_DOMAINS = 200
_REASONS = 8
_NEW_POD = "new-pod"
_TEMPLATES = (("spec", "jobTemplate", "spec", "template"), ("spec", "template"), ("template",))
_BY_AMOUNTS = (
    "Nodes are those where one such pod is feasible in a dry run, with taints, selectors, affinity, volumes, devices "
    "and reservations; the number of pods follows from their free amounts. Enter a number of pods to dry-run them all."
)
_DRY_RUN = "The pods were dry-run one after another; pods that already wait may take the room first."
_SHARED_CLAIMS = "The pod uses resource claims: only one pod is dry-run, because its devices are chosen in Reserve."


class RoomError(ValueError):
    """The pod cannot be read; the text names the parameter and what to write."""


class DomainRoom(Struct, frozen=True, rename="camel"):
    """Room in one topology domain.

    Attributes:
        fits: Number of pods by free amounts.
        dry_run: Number of pods that fit in a dry run of all of them; None if it was not tried.
    """

    key: str
    name: str
    fits: int
    dry_run: int | None = None


class CopiesRoom(Struct, frozen=True, rename="camel"):
    """Dry run of a number of pods.

    Attributes:
        wanted: Number of pods that were dry-run.
        fits: Number of pods that fit one after another.
        domain: The topology domain with the most room, such as ``zone=a``; "" for all nodes.
        nodes: Nodes with the number of these pods, most first.
        message: Why the next pod does not fit, "" if all fit.
    """

    wanted: int
    fits: int
    domain: str
    nodes: tuple[tuple[str, int], ...]
    message: str = ""


class Room(Struct, frozen=True, rename="camel", kw_only=True):
    """Room for equal pods.

    Attributes:
        pod: What was looked for: ``namespace/name`` of a pod, the name in a manifest, or the amounts.
        profile: The profile that was used, by its scheduler name.
        profiles: All profiles that can be chosen.
        requests: What one pod requests, as text by resource.
        fits: Number of such pods that fit by free amounts on feasible nodes.
        per_node: Index of the node in the map, and number of pods, of each feasible node.
        domains: Room by topology domain, most first; with a count only those with room for all pods.
        copies: Dry run of the requested number of pods; None without a number.
        rejected: Reasons why the other nodes are infeasible, with numbers of nodes, most first.
        message: Why no node is feasible; "" if one is.
        command: Command that shows the free amounts, or explains the pod.
    """

    pod: str
    profile: str
    profiles: tuple[str, ...]
    requests: dict[str, str]
    fits: int
    nodes: int
    per_node: tuple[tuple[int, int], ...]
    domains: tuple[DomainRoom, ...]
    copies: CopiesRoom | None
    rejected: tuple[tuple[str, int], ...]
    message: str
    note: str
    command: str


@dataclass(frozen=True, slots=True)
class RoomQuery:
    """Query of a reader; exactly one of ``requests``, ``pod`` and ``manifest`` is not empty.

    Attributes:
        requests: Amount of one pod by resource, CPU in millicores, everything else in whole units.
        pod: An existing pod as ``namespace/name``.
        manifest: Manifest of a pod, or of an object with a pod template.
        profile: Scheduler name; "" for that of the pod, or for the first profile.
        count: Number of pods that must fit in one domain; 0 for none.
        key: Node label of the domains; "" for none.
    """

    requests: Mapping[str, int]
    pod: str = ""
    manifest: str = ""
    profile: str = ""
    count: int = 0
    key: str = ""


def read_room_query(query: Mapping[str, str], manifest: str = "") -> RoomQuery:
    """Return the query of a request.

    Args:
        query: Parameters ``requests`` or ``pod``, and ``profile``, ``count`` and ``key``.
        manifest: Body of the request.

    Raises:
        RoomError: A parameter is missing or invalid.
    """
    names = ("requests", "pod", "profile", "count", "key")
    if any(len(query.get(name, "")) > _MAX_LENGTH for name in names):
        raise RoomError(f"{', '.join(names)} have at most {_MAX_LENGTH} characters")
    text, name, profile, number, key = (query.get(each, "") for each in names)
    if sum(map(bool, (text, name, manifest))) > 1:
        raise RoomError("specify either requests, or pod, or a manifest")
    if name and ("/" not in name or not all(name.split("/", 1))):
        raise RoomError(f'pod: "{name}" is not NAMESPACE/NAME')
    amounts = {} if name or manifest else _amounts(text)
    number = number or "0"
    if not (number.isascii() and number.isdigit()) or len(number) > len(str(_MAX_COUNT)) or int(number) > _MAX_COUNT:
        raise RoomError(f"count: must be a number of pods from 0 to {_MAX_COUNT}")
    return RoomQuery(amounts, name, manifest, profile, int(number), key)


def _amounts(text: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, quantity = part.partition("=")
        if not equals or not name.strip():
            raise RoomError(f'requests: "{part}" is not RESOURCE=QUANTITY; write such as cpu=4,memory=8Gi')
        try:
            amounts[name.strip()] = nano(quantity.strip())
        except QuantityError as error:
            raise RoomError(f"requests: {name.strip()}: {error}") from error
    units = {name: amount for name, amount in in_units(amounts).items() if amount > 0}
    unknown = sorted(amounts.keys() - in_units(amounts).keys())
    if unknown:
        raise RoomError(f"requests: unknown resource {unknown[0]}; write such as cpu, memory or example.com/gpu")
    if not units:
        raise RoomError("requests: specify an amount above 0, such as requests=cpu=4,memory=8Gi")
    return units


class RoomReader:
    """Computes the room on request, between two scheduling cycles."""

    def __init__(self, sources: PageSources, rows: NodeRows) -> None:
        self._sources = sources
        self._rows = rows

    def read(self, query: RoomQuery) -> Room:
        """Return the room; the layout of the nodes must be current.

        Raises:
            RoomError: The pod does not exist, or the manifest or the profile cannot be used.
            SchedulerCoreError: The pod cannot be compiled.
        """
        sources = self._sources
        context = sources.scheduler.context
        columns, rows = context.cache.columns, self._rows.rows()
        pod, shown = self._pod(query)
        instance = self._profile(query, pod)
        pod = replace(pod, spec=replace(pod.spec, scheduler_name=instance.name))
        examiner = sources.scheduler.cycles.examiner
        with context.steps.dry_run():
            found = fit_copies(examiner, columns, instance, pod, 1)
            copies, tried = self._copies(query, instance, pod, found)
        fits = _fits(columns, found)
        per_node = np.where(rows >= 0, fits[rows], 0) if len(rows) else fits[:0]
        indexes = np.flatnonzero(per_node)
        first = found.first
        command = sources.commands.explain(*query.pod.split("/", 1)) if query.pod else sources.commands.nodes
        return Room(
            pod=shown,
            profile=instance.name,
            profiles=tuple(sorted(each.name for each in context.profiles)),
            requests={name: amount_text(name, amount) for name, amount in first.pod.requests.fit.items() if amount},
            fits=int(per_node.sum()),
            nodes=len(first.feasible),
            per_node=tuple(zip(indexes.tolist(), per_node[indexes].tolist(), strict=True)),
            domains=_domains(columns, query, fits, tried) if query.key else (),
            copies=copies,
            rejected=_reasons(found),
            message=first.message if not first.feasible else "",
            note=_note(query, pod),
            command=command,
        )

    def _pod(self, query: RoomQuery) -> tuple[Pod, str]:
        decoded: type[Pod] = self._sources.scheduler.decoded.pod
        if query.pod:
            pod = self._sources.find_pod(query.pod)
            if pod is None:
                raise RoomError(f"pod {query.pod} not found; check the namespace and the name")
            return pod, query.pod
        if query.manifest:
            pod = _pod_of_manifest(query.manifest, decoded)
            return pod, f"{pod.metadata.namespace}/{pod.metadata.name}"
        exact = {name: f"{amount}m" if name == CPU else str(amount) for name, amount in query.requests.items()}
        containers = [{"name": "main", "resources": {"requests": exact}}]
        meta = {"name": _NEW_POD, "namespace": "default", "uid": _NEW_POD}
        body = {"metadata": meta, "spec": {"containers": containers, "schedulerName": query.profile}}
        shown = ",".join(f"{name}={amount_text(name, amount)}" for name, amount in query.requests.items())
        return convert(body, decoded), shown

    def _profile(self, query: RoomQuery, pod: Pod) -> FrameworkInstance:
        profiles = self._sources.scheduler.context.profiles
        names = sorted(each.name for each in profiles)
        if not names:
            raise RoomError("no profile is live; create a SchedulerProfile")
        wanted = query.profile or ("" if query.requests else pod.spec.scheduler_name) or names[0]
        found = profiles.get(wanted)
        if found is None:
            raise RoomError(f'profile: no profile serves schedulerName "{wanted}"; live profiles: {", ".join(names)}')
        return found

    def _copies(
        self, query: RoomQuery, instance: FrameworkInstance, pod: Pod, found: CopiesFit
    ) -> tuple[CopiesRoom | None, dict[str, int]]:
        """Return the dry run of the wanted number of pods, and the results by domain."""
        if not query.count:
            return None, {}
        count = 1 if pod.spec.resource_claims else min(query.count, _MAX_COPIES)
        scheduler = self._sources.scheduler
        columns, examiner = scheduler.context.cache.columns, scheduler.cycles.examiner
        if not query.key:
            return _copies_of(fit_copies(examiner, columns, instance, pod, count), count, ""), {}
        best: CopiesRoom | None = None
        tried: dict[str, int] = {}
        any_room = dataclasses.replace(query, count=0)
        for domain in _domains(columns, any_room, _fits(columns, found), {})[:_MAX_TRIED_DOMAINS]:
            among = _nodes_in(columns, query.key, domain.name)
            name = f"{query.key}={domain.name}"
            result = _copies_of(fit_copies(examiner, columns, instance, pod, count, among=among), count, name)
            tried[domain.name] = result.fits
            if best is None or result.fits > best.fits:
                best = result
            if result.fits == count:
                break
        if best is None:
            best = _copies_of(fit_copies(examiner, columns, instance, pod, count), count, "")
        return best, tried


def _nodes_in(columns: NodeColumns, key: str, value: str) -> NDArray[np.bool_]:
    labels = (node is not None and node.metadata.labels.get(key) == value for node in columns.nodes)
    return np.fromiter(labels, dtype=np.bool_, count=columns.size)


def _copies_of(found: CopiesFit, wanted: int, domain: str) -> CopiesRoom:
    counts = sorted(Counter(found.nodes).items(), key=lambda each: (-each[1], each[0]))
    return CopiesRoom(wanted, len(found.nodes), domain, tuple(counts), found.rejected.message if found.rejected else "")


def _reasons(found: CopiesFit) -> tuple[tuple[str, int], ...]:
    counts = Counter(reason for status in found.first.rejected.values() for reason in status.reasons)
    return tuple(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_REASONS])


def _note(query: RoomQuery, pod: Pod) -> str:
    if not query.count:
        return _BY_AMOUNTS
    if pod.spec.resource_claims:
        return _SHARED_CLAIMS
    more = f" At most {_MAX_COPIES} pods are dry-run." if query.count > _MAX_COPIES else ""
    return f"{_DRY_RUN}{more}"


def _pod_of_manifest(text: str, kind: type[Pod]) -> Pod:
    """Return the pod of a manifest, or of its first template; raises RoomError if it is no YAML, or has no pod."""
    if len(text.encode(errors="surrogatepass")) > MAX_MANIFEST:
        raise RoomError(f"manifest: must have at most {MAX_MANIFEST // 1024} KiB")
    try:
        documents = [each for each in load_all(text) if each is not None]
    except yaml.YAMLError as error:
        raise RoomError(f"manifest: is not valid YAML: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise RoomError("manifest: must be one object, such as a Pod, a Deployment or a Job")
    body: dict[str, Any] = documents[0]
    spec, meta = _template(body), body.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    own = spec.get("metadata") if isinstance(spec.get("metadata"), dict) else {}
    named = {"name": str(meta.get("name") or _NEW_POD), "namespace": str(meta.get("namespace") or "default")}
    try:
        return convert({**spec, "metadata": {**(own or {}), **named, "uid": _NEW_POD}}, kind)
    except (msgspec.ValidationError, SchedulerCoreError) as error:
        raise RoomError(f"manifest: {error}") from error


def _template(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("kind", "Pod") == "Pod" and isinstance(body.get("spec"), dict):
        return {name: body[name] for name in ("metadata", "spec") if name in body}
    for path in _TEMPLATES:
        found: Any = body
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and isinstance(found.get("spec"), dict):
            return {name: found[name] for name in ("metadata", "spec") if name in found}
    raise RoomError(f"manifest: kind {body.get('kind')} has no pod template; paste a Pod, a Deployment or a Job")


def _fits(columns: NodeColumns, found: CopiesFit) -> NDArray[np.int64]:
    """Return int64[row], how many pods fit by free amounts on feasible nodes; at least one on each of these."""
    fits = np.zeros(columns.size, dtype=np.int64)
    rows = np.array([columns.row_of(name) for name in found.first.feasible], dtype=np.intp)
    if not len(rows):
        return fits
    pod = found.first.pod
    room = np.maximum(columns.allowed_pods[rows] - columns.pod_count[rows], 0).astype(np.int64)
    for name, amount in pod.requests.fit.items():
        column = columns.resources.find(name)
        if amount and column is not None:
            free = np.maximum(columns.allocatable[column, rows] - columns.requested[column, rows], 0)
            room = np.minimum(room, free // amount)
    if pod.host_ports or pod.pod.spec.resource_claims:
        room = np.minimum(room, 1)
    # Filter accepts the node, so one fits, whatever resources the profile ignores.
    fits[rows] = np.maximum(room, 1)
    return fits


def _domains(
    columns: NodeColumns, query: RoomQuery, fits: NDArray[np.int64], tried: Mapping[str, int]
) -> tuple[DomainRoom, ...]:
    # Read from the nodes: a label column would displace one that a pod uses.
    found: dict[str, int] = {}
    for row, room in enumerate(fits.tolist()):
        node = columns.nodes[row]
        name = None if node is None else node.metadata.labels.get(query.key)
        if name is not None:
            found[name] = found.get(name, 0) + room
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        DomainRoom(query.key, name, room, tried.get(name)) for name, room in ordered[:_DOMAINS] if room >= query.count
    )
