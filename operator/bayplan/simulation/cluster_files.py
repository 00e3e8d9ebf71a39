"""Reads a cluster from files: YAML with any number of documents, JSON, lists as ``kubectl get`` prints them.

Each object keeps its place, because a file may have hundreds of objects, and an error without file and document would
be of no use. Objects that the API server would reject are read as far as possible, so that all problems are reported
together; ``admit`` raises them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from bayplan.api_validation.object_validation import CONFIG_MAP as _CONFIG_MAP
from bayplan.api_validation.object_validation import ObjectValidation, configurations_in, version_problem
from bayplan.gangs.group_translation import COMPOSITE_VERSIONS, NATIVE_VERSIONS
from bayplan.kube.served_apis import DEVICE_GROUP, DEVICE_VERSIONS
from bayplan.resources.resource_model import API_VERSION as BAYPLAN_API
from bayplan.texts import yaml_documents
from scheduler_core.config.plugin_args import API_VERSION as KUBE_SCHEDULER_API
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.model.devices import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from scheduler_core.model.node import Node
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.model.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from scheduler_core.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduler_core.snapshot.indexes.device_index import DeviceObject

_PARTS = re.compile(r"(?P<text>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_EXPECTED = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<given>[^`]+)`")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_ANY_VALUE = "[...]"

_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping of fields",
}


def decoding_problem(error: msgspec.ValidationError, body: Mapping[str, Any]) -> Problem:
    """Return the problem of an object that cannot be decoded."""
    match = _PARTS.fullmatch(str(error))
    assert match is not None
    text, path = match["text"], match["path"] or ""
    missing = _MISSING.fullmatch(text)
    if missing is not None:
        return Problem(f"{path}.{missing['field']}".lstrip("."), "is required; add it")
    expected = _EXPECTED.match(text)
    if expected is None:
        return Problem(_exact(path, body, ""), f"{text[:1].lower()}{text[1:]}; correct it")
    wanted = [_WORDS.get(kind.strip(), kind.strip()) for kind in expected["expected"].split("|")]
    given = expected["given"]
    message = f"must be {' or '.join(dict.fromkeys(wanted))}, not {_WORDS.get(given, given)}; "
    return Problem(_exact(path, body, expected["expected"]), message + _remedy(expected["expected"], given))


def _remedy(expected: str, given: str) -> str:
    if expected == "str" and given in ("int", "float", "bool"):
        return "put it in quotes"
    if given == "str" and expected.removesuffix(" | null") in ("int", "float", "bool"):
        return "remove the quotes"
    if expected == "array":
        return "begin each entry with -"
    return "correct it"


def _exact(path: str, body: Mapping[str, Any], expected: str) -> str:
    """Return the path with the key instead of ``[...]``, which msgspec writes for an invalid value of a mapping."""
    if not path.endswith(_ANY_VALUE):
        return path
    parent = path.removesuffix(_ANY_VALUE)
    node: Any = body
    for index, name in _STEP.findall(parent):
        try:
            node = node[int(index)] if index else node[name]
        except (KeyError, IndexError, TypeError):
            return parent
    if not isinstance(node, Mapping):
        return parent
    allowed = tuple(
        kind for name, kind in (("str", str), ("int", int), ("float", float)) if name in expected.split(" | ")
    )
    bad = [key for key, value in node.items() if isinstance(value, bool) or not isinstance(value, allowed)]
    return f"{parent}[{bad[0]}]" if bad else parent


STANDARD_INPUT = "-"
DEFAULT_NAMESPACE = "default"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Place of an object; documents and items are counted from 1, and 0 means no document and no list."""

    file: str
    document: int
    item: int = 0

    def __str__(self) -> str:
        """Return the place as text, such as ``cluster.yaml, document 2, item 5``."""
        document = f", document {self.document}" if self.document else ""
        return f"{self.file}{document}" + (f", item {self.item}" if self.item else "")


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """Object with its place in the files."""

    object: T
    place: Place


@dataclass(frozen=True, slots=True)
class EphemeralClaim:
    """The claim of an ephemeral volume.

    Attributes:
        claim: The claim, with the name and namespace that it gets, and without an owner.
    """

    pod: tuple[str, str]
    claim: PersistentVolumeClaim


@dataclass(slots=True)
class ClusterFiles:
    """Objects in the files.

    Attributes:
        ephemeral_claims: Claims of the pods' ephemeral volumes, as the controller would create them, without an owner.
        devices: ResourceClaims, DeviceClasses, ResourceSlices and DeviceTaintRules.
        pod_groups: PodGroup objects of all three APIs, and CompositePodGroups, as written.
        problems: Why the API server would reject objects that could be read nevertheless.
    """

    nodes: list[Placed[Node]] = field(default_factory=list)
    pods: list[Placed[Pod]] = field(default_factory=list)
    priority_classes: list[Placed[PriorityClass]] = field(default_factory=list)
    storage: list[Placed[StorageObject]] = field(default_factory=list)
    ephemeral_claims: list[EphemeralClaim] = field(default_factory=list)
    devices: list[Placed[DeviceObject]] = field(default_factory=list)
    claim_templates: list[Placed[ResourceClaimTemplate]] = field(default_factory=list)
    surroundings: list[Placed[PodSurrounding]] = field(default_factory=list)
    profiles: list[Placed[dict[str, Any]]] = field(default_factory=list)
    plugin_configs: list[Placed[dict[str, Any]]] = field(default_factory=list)
    configurations: list[Placed[dict[str, Any]]] = field(default_factory=list)
    pod_groups: list[Placed[dict[str, Any]]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    rejected: set[Place] = field(default_factory=set)
    decoded: DecodedTypes = field(default_factory=DecodedTypes)


_DECODED: Mapping[tuple[str, str], tuple[str, type[msgspec.Struct]]] = {
    ("v1", "Node"): ("nodes", Node),
    ("v1", "Pod"): ("pods", Pod),
    ("scheduling.k8s.io/v1", "PriorityClass"): ("priority_classes", PriorityClass),
    ("v1", "PersistentVolume"): ("storage", PersistentVolume),
    ("v1", "PersistentVolumeClaim"): ("storage", PersistentVolumeClaim),
    ("storage.k8s.io/v1", "StorageClass"): ("storage", StorageClass),
    ("storage.k8s.io/v1", "CSINode"): ("storage", CsiNode),
    ("storage.k8s.io/v1", "CSIDriver"): ("storage", CsiDriver),
    ("storage.k8s.io/v1", "CSIStorageCapacity"): ("storage", CsiStorageCapacity),
    ("storage.k8s.io/v1", "VolumeAttachment"): ("storage", VolumeAttachment),
    **{
        (f"{DEVICE_GROUP}/{version}", kind.__name__): (field_name, kind)
        for version in DEVICE_VERSIONS
        for kind, field_name in (
            (ResourceClaim, "devices"),
            (ResourceSlice, "devices"),
            (DeviceClass, "devices"),
            (DeviceTaintRule, "devices"),
            (ResourceClaimTemplate, "claim_templates"),
        )
    },
    ("v1", "Namespace"): ("surroundings", Namespace),
    ("v1", "Service"): ("surroundings", Service),
    ("v1", "ReplicationController"): ("surroundings", ReplicationController),
    ("apps/v1", "ReplicaSet"): ("surroundings", ReplicaSet),
    ("apps/v1", "StatefulSet"): ("surroundings", StatefulSet),
    ("policy/v1", "PodDisruptionBudget"): ("surroundings", PodDisruptionBudget),
}
_RAW: Mapping[tuple[str, str], str] = {
    (BAYPLAN_API, "SchedulerProfile"): "profiles",
    (BAYPLAN_API, "PluginConfig"): "plugin_configs",
    (BAYPLAN_API, "PodGroup"): "pod_groups",
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): "pod_groups",
    **{(f"{GroupSource.NATIVE.value}/{version}", "PodGroup"): "pod_groups" for version in NATIVE_VERSIONS},
    **{
        (f"{GroupSource.COMPOSITE.api_group}/{version}", GroupSource.COMPOSITE.kind): "pod_groups"
        for version in COMPOSITE_VERSIONS
    },
    (KUBE_SCHEDULER_API, "KubeSchedulerConfiguration"): "configurations",
}
READ_KINDS = (*_DECODED, *_RAW)
"""apiVersion and kind of all objects that are read."""

_MAX_SHOWN = 100
_NAMELESS = frozenset({"KubeSchedulerConfiguration"})


def kubernetes_kinds() -> list[tuple[str, str]]:
    """Return apiVersion and kind of the objects that Kubernetes itself defines, in the versions of the newest release.

    ``hack.kubernetes_schema`` writes their schema. PodGroups of v1alpha2 exist only in older releases.
    """
    foreign = ("bayplan.dev", "scheduling.x-k8s.io", "kubescheduler.config.k8s.io")
    kinds = [key for key in READ_KINDS if not key[0].startswith(foreign)]
    return [(version, kind) for version, kind in kinds if version != f"{GroupSource.NATIVE.value}/v1alpha2"]


def read_cluster_files(
    sources: Sequence[str], decoded: DecodedTypes | None = None, *, allow_invalid: bool = False
) -> ClusterFiles:
    """Read files.

    Args:
        decoded: Types that nodes and pods are decoded to, with the fields that installed plugins declare.
        allow_invalid: Whether objects that the API server would reject are read with notices instead of problems.

    Raises:
        ConfigError: Files or objects cannot be read at all; with the problems of all files.
    """
    unreadable, placed = list[Problem](), list[Placed[Any]]()
    for source in sources:
        try:
            placed += _objects(source)
        except ConfigError as error:
            unreadable += error.problems
    return read_objects(placed, decoded, allow_invalid=allow_invalid, unreadable=unreadable)


def objects_in(source: str) -> list[Placed[Any]]:
    """Return the objects in a file, ``-`` for standard input; raises ConfigError if it is neither YAML nor JSON."""
    return list(_objects(source))


def read_objects(
    placed: Iterable[Placed[Any]],
    decoded: DecodedTypes | None = None,
    *,
    allow_invalid: bool = False,
    unreadable: Sequence[Problem] = (),
) -> ClusterFiles:
    """Read objects, as :func:`read_cluster_files` does.

    Args:
        unreadable: Problems of files that cannot be read at all.

    Raises:
        ConfigError: Objects cannot be read at all; with all problems.
    """
    reading = _Reading(ClusterFiles(decoded=decoded or DecodedTypes()))
    reading.unreadable += unreadable
    for each in placed:
        reading.take(each)
    files = reading.files
    if reading.unreadable:
        raise ConfigError([*reading.unreadable, *(() if allow_invalid else reading.shown_problems())])
    if allow_invalid:
        files.notices += [f"the API server would reject {problem}" for problem in reading.shown_problems()]
    else:
        files.problems += reading.shown_problems()
    for kind, count in sorted(reading.ignored.items()):
        notice = "ignored; only nodes, pods and objects that affect scheduling are read"
        files.notices.append(f"{_counted(count, kind)} {notice}")
    podless = Counter(type(each.object).__name__ for each in files.surroundings if _has_no_pods(each.object))
    for kind, count in sorted(podless.items()):
        notice = "used only for its pod selector" if count == 1 else "used only for their pod selectors"
        files.notices.append(f"{_counted(count, kind)} {notice}; add the pods to the files")
    return files


def _has_no_pods(surrounding: PodSurrounding) -> bool:
    """Return whether an owner is hand-written, so that no controller has created its pods."""
    owners = (ReplicationController, ReplicaSet, StatefulSet)
    return isinstance(surrounding, owners) and not surrounding.metadata.uid


def _counted(count: int, kind: str) -> str:
    return f"1 {kind} is" if count == 1 else f"{count} objects of kind {kind} are"


# -- from text to objects ---------------------------------------------------------------------------------------------


def _objects(source: str) -> Iterator[Placed[Any]]:
    name = "standard input" if source == STANDARD_INPUT else source
    for number, document in enumerate(_documents(name, _text(source, name)), start=1):
        if document is not None:
            yield from _flattened(document, Place(name, number))


def _text(source: str, name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if source == STANDARD_INPUT else Path(source).read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}; name a file of manifests, or - for standard input"
        raise ConfigError([Problem(name, message)]) from error


def _documents(name: str, text: bytes) -> Iterator[Any]:
    if text.lstrip()[:1] == b"{":
        try:
            document = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass  # Several JSON documents, or YAML in flow style: the YAML parser reads both.
        else:
            if yaml_documents.is_too_deep(document):
                raise ConfigError(
                    [Problem(name, f"is nested deeper than {yaml_documents.MAX_DEPTH} levels; make it flatter")]
                )
            yield document
            return
    try:
        yield from yaml_documents.load_all(text, yaml_documents.ManifestLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark is not None else name
        raise ConfigError([Problem(where, f"is not YAML: {error.problem}; correct it")]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(name, f"is neither YAML nor JSON: {error}; correct it")]) from error


def _flattened(document: Any, place: Place) -> Iterator[Placed[Any]]:
    """Yield the object, or the items of a list."""
    items = yaml_documents.list_items(document)
    if items is None:
        yield Placed(document, place)
        return
    for index, item in enumerate(items, start=1):
        yield from _flattened(item, Place(place.file, place.document, index))


# -- from objects to their types --------------------------------------------------------------------------------------


class _Reading:
    """Objects that are read one after the other.

    Attributes:
        unreadable: Problems of what cannot be read at all.
        ignored: Numbers of ignored objects by kind.
    """

    def __init__(self, files: ClusterFiles) -> None:
        self.files = files
        self.unreadable: list[Problem] = []
        self.ignored: Counter[str] = Counter()
        self._rejected: list[Problem] = []
        self._generated: Counter[str] = Counter()
        self._validation = ObjectValidation()

    def shown_problems(self) -> list[Problem]:
        """Return why the API server would reject objects; beyond a hundred problems they are counted."""
        hidden = len(self._rejected) - _MAX_SHOWN
        more = (
            [Problem("", f"{hidden} more problems of this kind; correct the listed ones first")] if hidden > 0 else []
        )
        return self._rejected[:_MAX_SHOWN] + more

    def take(self, placed: Placed[Any]) -> None:
        body, place = placed.object, placed.place
        if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
            message = "is not a Kubernetes object; give it apiVersion, kind and metadata"
            self.unreadable.append(Problem(str(place), message))
            return
        kind, version = body["kind"], str(body.get("apiVersion") or "")
        key = version, kind
        if key in _DECODED or key in _RAW:
            self._take_known(body, key, place)
        elif key == _CONFIG_MAP:
            self._take_config_map(body, place)
        else:
            known = [known for known, name in READ_KINDS if name == kind]
            problem = version_problem(version, kind, known)
            if problem is None:
                self.ignored[kind] += 1
            else:
                self.unreadable.append(Problem(f"{place} ({describe(body)}): {problem.path}", problem.message))

    def _take_known(self, body: dict[str, Any], key: tuple[str, str], place: Place) -> None:
        where = f"{place} ({describe(body)}): "
        rejected = [Problem(f"{where}{each.path}", each.message) for each in self._validation.problems(body)]
        self._rejected += rejected
        if rejected:
            self.files.rejected.add(place)
        body = self._named(body)
        if key in _RAW:
            if key[1] not in _NAMELESS and not _has_text_names(body):
                if not rejected:
                    self.unreadable.append(Problem(f"{where}metadata.name", "must be text; add it or put it in quotes"))
                self._lost(rejected)
                return
            getattr(self.files, _RAW[key]).append(Placed(_without_nulls(body), place))
            return
        attribute, model = _DECODED[key]
        model = {Node: self.files.decoded.node, Pod: self.files.decoded.pod}.get(model, model)
        try:
            decoded: Any = convert(body, model)
        except msgspec.ValidationError as error:
            problem = decoding_problem(error, body)
            if not rejected:
                self.unreadable.append(Problem(f"{where}{problem.path}", problem.message))
            self._lost(rejected)
            return
        getattr(self.files, attribute).append(Placed(decoded, place))
        if attribute == "pods":
            self._take_ephemeral_claims(body, where, rejected)

    def _named(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return an object with a name, which the API server generates from ``metadata.generateName``."""
        metadata = body.get("metadata")
        prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or metadata.get("name") or not isinstance(prefix, str) or not prefix:
            return body
        self._generated[prefix] += 1
        return {**body, "metadata": {**metadata, "name": f"{prefix}{self._generated[prefix]:05d}"}}

    def _take_ephemeral_claims(self, pod: Mapping[str, Any], where: str, rejected: list[Problem]) -> None:
        try:
            self.files.ephemeral_claims += ephemeral_claims(_without_nulls(pod))
        except (msgspec.ValidationError, AttributeError, TypeError) as error:
            if not rejected:
                self.unreadable.append(Problem(f"{where}spec.volumes", f"an ephemeral volume cannot be read: {error}"))
            self._lost(rejected)

    def _lost(self, rejected: list[Problem]) -> None:
        """Report the problems of an object that cannot even be read if invalid objects are allowed."""
        self.unreadable += rejected
        self._rejected = self._rejected[: len(self._rejected) - len(rejected)]

    def _take_config_map(self, body: dict[str, Any], place: Place) -> None:
        """Read the kube-scheduler configurations in a ConfigMap."""
        found = configurations_in(body)
        for name, document in found:
            self.take(Placed(document, Place(f"{place}, data[{name}]", 0)))
        if not found:
            self.ignored["ConfigMap"] += 1


def ephemeral_claims(pod: Mapping[str, Any]) -> list[EphemeralClaim]:
    """Return the claims of a pod's ephemeral volumes, without an owner.

    Raises:
        ValidationError, AttributeError, TypeError: A template cannot be decoded.
    """
    metadata = pod["metadata"]
    namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
    found = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume is None or volume.get("ephemeral") is None:
            continue
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        own = {"name": f"{metadata['name']}-{volume.get('name', '')}", "namespace": namespace}
        body = {"metadata": {**(template.get("metadata") or {}), **own}, "spec": template.get("spec") or {}}
        found.append(EphemeralClaim((namespace, metadata["name"]), convert(body, PersistentVolumeClaim)))
    return found


def _has_text_names(body: Mapping[str, Any]) -> bool:
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("namespace", ""), str):
        return False
    return isinstance(metadata.get("name"), str) and bool(metadata["name"])


def describe(body: Mapping[str, Any]) -> str:
    """Return kind and name of an object as far as it has them, such as ``Pod shop/web-0``."""
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(part) for part in (metadata.get("namespace"), metadata.get("name")) if part)
    return f"{body.get('kind')} {name}".rstrip()


def _without_nulls(node: Any) -> Any:
    """Return a copy without null fields, since null means "not set" in Kubernetes."""
    if isinstance(node, dict):
        return {key: _without_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [_without_nulls(value) for value in node]
    return node
