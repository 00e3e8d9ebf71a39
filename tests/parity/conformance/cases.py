"""Reads conformance cases; only the fields that Bayplan's plugins read are decoded.

Profiles are cached by their text: many cases have the same one, and validating it costs more than an attempt.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
from bayplan.kube.http.deep_json import ObjectJsonDecoder

from scheduler_core.config.plugin_set_types import BUILT_IN_BEHAVIOUR, Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.scheduler_configuration import parse_configuration
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.feeds.object_feed import PodSurrounding
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import DEFAULT_SCHEDULER_NAME, Pod
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
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduler_core.snapshot.indexes.device_index import DeviceObject

STANDARD_INPUT = "-"
_T = TypeVar("_T")
_GZIP_MAGIC = b"\x1f\x8b"

IN_TREE_NAMES = frozenset(
    (*(entry.name for entry in default_plugins(deferred_resizes=True).multi_point.enabled), *BUILT_IN_BEHAVIOUR)
)
"""kube-scheduler v1.37.1's own plugins (``framework/plugins/registry.go``). A case may name any of them; those that are
not registered are removed from its profile and not rejected, so that the rest can be compared."""


class Case(msgspec.Struct, frozen=True, gc=False):
    """A cluster and the pod to schedule.

    Attributes:
        pods: All other pods: those with a node run, the others are pending, some with a nominated node.
        profile: A KubeSchedulerConfiguration as JSON; absent for the default configuration.
        feature_gates: Feature gates of kube-scheduler that are not at their defaults; Bayplan has those that matter.
    """

    pod: Pod
    name: str = ""
    family: str = ""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    services: tuple[Service, ...] = ()
    replicasets: tuple[ReplicaSet, ...] = ()
    replicationcontrollers: tuple[ReplicationController, ...] = ()
    statefulsets: tuple[StatefulSet, ...] = ()
    pvs: tuple[PersistentVolume, ...] = ()
    pvcs: tuple[PersistentVolumeClaim, ...] = ()
    storageclasses: tuple[StorageClass, ...] = ()
    csinodes: tuple[CsiNode, ...] = ()
    csidrivers: tuple[CsiDriver, ...] = ()
    csistoragecapacities: tuple[CsiStorageCapacity, ...] = ()
    volumeattachments: tuple[VolumeAttachment, ...] = ()
    resourceclaims: tuple[ResourceClaim, ...] = ()
    resourceslices: tuple[ResourceSlice, ...] = ()
    deviceclasses: tuple[DeviceClass, ...] = ()
    devicetaintrules: tuple[DeviceTaintRule, ...] = ()
    profile: msgspec.Raw = msgspec.Raw(b"null")
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict, name="featureGates")

    @property
    def storage(self) -> tuple[StorageObject, ...]:
        """All storage objects."""
        drivers: tuple[StorageObject, ...] = (*self.csinodes, *self.csidrivers, *self.csistoragecapacities)
        return (*self.storageclasses, *drivers, *self.pvs, *self.pvcs, *self.volumeattachments)

    @property
    def devices(self) -> tuple[DeviceObject, ...]:
        """Device classes, devices and claims."""
        return (*self.deviceclasses, *self.devicetaintrules, *self.resourceslices, *self.resourceclaims)

    @property
    def surroundings(self) -> tuple[PodSurrounding, ...]:
        """Namespaces, disruption budgets, and the objects that select pods."""
        owners: tuple[PodSurrounding, ...] = (*self.replicasets, *self.replicationcontrollers, *self.statefulsets)
        return (*self.namespaces, *self.pdbs, *self.services, *owners)


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line: the case is in field ``case`` beside the expected result, or is the line itself."""

    case: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class CaseProfile:
    """The profile of a case.

    Attributes:
        config: The profile without the plugins that were left out.
        left_out: Known plugins that it enables and that are not registered.
        path: Its field path, with a dot at the end; empty for the default profile.
    """

    config: ProfileConfig
    left_out: tuple[str, ...] = ()
    path: str = ""


def read_lines(source: str) -> Iterator[bytes]:
    """Read the lines of a file of cases; empty ones are skipped.

    Args:
        source: A path, plain or gzip, or ``-`` for standard input.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        with ExitStack() as open_files:
            for line in _open(source, open_files):
                if not line.isspace():
                    yield line
    except (OSError, EOFError) as error:
        raise ConfigError(
            [Problem(source, f"cannot be read: {error.args[-1]}; name a file of cases, plain or gzip")]
        ) from error


def _open(source: str, open_files: ExitStack) -> Iterable[bytes]:
    """Open a stream that may be gzip, detected by its first bytes: standard input has no name to detect it by."""
    if source == STANDARD_INPUT:
        stream: io.FileIO | BinaryIO = sys.stdin.buffer
    else:
        stream = open_files.enter_context(io.FileIO(source))
    buffered = io.BufferedReader(cast("io.RawIOBase", stream))
    open_files.callback(buffered.detach)
    if buffered.peek(2)[:2] == _GZIP_MAGIC:
        return open_files.enter_context(gzip.GzipFile(fileobj=buffered))
    return buffered


def decode_case(line: bytes) -> Case:
    """Decode one line.

    Raises:
        ConfigError: It is not a case.
    """
    return decode_line(line, _CASES.decode, "a case")


def decode_line(line: bytes, decode: Callable[[bytes | msgspec.Raw], _T], what: str) -> _T:
    """Decode one line, or its field ``case``.

    Args:
        what: What a line should be, for the message.

    Raises:
        ConfigError: It is something else.
    """
    try:
        inner = _LINES.decode(line).case
        return decode(line if isinstance(inner, msgspec.UnsetType) else inner)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError([Problem("", f"is not {what}: {error}; see tests/parity/oracle/README.md")]) from error


_LINES = msgspec.json.Decoder(_Line)
_CASES = ObjectJsonDecoder(Case)


def profile_of(case: Case, registry: Registry) -> CaseProfile:
    """Return the profile that schedules the case's pod.

    Raises:
        ConfigError: The configuration is invalid, or none of its profiles schedules the pod.
    """
    name = case.pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
    profiles = profiles_of(case, registry)
    for profile in profiles:
        if profile.config.scheduler_name == name:
            return profile
    names = ", ".join(profile.config.scheduler_name for profile in profiles)
    message = f'no profile schedules schedulerName "{name}" of the pod; existing: {names}'
    raise ConfigError([Problem("profile.profiles", message)])


def profiles_of(case: Case, registry: Registry) -> tuple[CaseProfile, ...]:
    """Return all profiles of a case's configuration: pods of any of them may have nominated nodes.

    Raises:
        ConfigError: The configuration is invalid.
    """
    return _profiles(bytes(case.profile), registry)


@lru_cache(maxsize=1024)
def _profiles(text: bytes, registry: Registry) -> tuple[CaseProfile, ...]:
    document: Any = msgspec.json.decode(text)
    if document is None:
        return (_without_unregistered(ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME), registry, ""),)
    configs = parse_configuration(document).profile_configs()
    return tuple(_without_unregistered(config, registry, f"profiles[{index}].") for index, config in enumerate(configs))


def _without_unregistered(config: ProfileConfig, registry: Registry, path: str) -> CaseProfile:
    """Remove known plugins that are not registered; unknown ones stay and are rejected later."""
    left_out: dict[str, None] = {}
    sets: dict[str, PluginSet] = {}
    for field in type(config.plugins).model_fields:
        plugin_set: PluginSet = getattr(config.plugins, field)
        gone = {entry.name for entry in plugin_set.enabled if entry.name in IN_TREE_NAMES} - set(registry)
        left_out.update(dict.fromkeys(sorted(gone)))
        remaining = tuple(entry for entry in plugin_set.enabled if entry.name not in gone)
        sets[field] = PluginSet(enabled=remaining, disabled=plugin_set.disabled)
    if not left_out:
        return CaseProfile(config, path=path)
    return CaseProfile(config.model_copy(update={"plugins": Plugins(**sets)}), tuple(left_out), path)
