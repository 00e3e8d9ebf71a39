"""The APIs of PodGroups that not every cluster serves, and in which versions an API server serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from bayplan.gangs.foreign_group_models import NativeGroup, SchedulerPluginsGroup
from bayplan.gangs.group_translation import from_scheduler_plugins
from bayplan.gangs.native_group_translation import COMPOSITE_VERSIONS, NATIVE_VERSIONS, from_composite, from_native
from bayplan.kube.http.api_request import UnauthorizedError
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.served_apis import discovered, served_resources
from scheduler_core.errors import ClusterWriteError, ForbiddenError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup


class GroupObject(Protocol):
    """Decoded PodGroup of any API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Metadata of the object."""

    @property
    def spec(self) -> object:
        """Spec of the object."""

    @property
    def status(self) -> dict[str, Any]:
        """Status as received."""


T = TypeVar("T", bound=GroupObject)


class GroupApi(Struct, Generic[T], frozen=True):
    """API of PodGroups.

    Attributes:
        translations: Translates an object of each supported version to the core's model, or raises ConfigError; newest
            version first. The first one that is served is read.
        remedy: What to do if pods name its groups and the API is not served.
    """

    source: GroupSource
    kind: type[T]
    translations: Mapping[str, Callable[[T], PodGroup | CompositePodGroup]]
    remedy: str


SCHEDULER_PLUGINS_API = GroupApi(
    GroupSource.SCHEDULER_PLUGINS,
    SchedulerPluginsGroup,
    {"v1alpha1": from_scheduler_plugins},
    "install the CustomResourceDefinition podgroups.scheduling.x-k8s.io, or turn off Bayplan's feature gate "
    "CompatiblePodGroups to ignore the label",
)
_NATIVE_REMEDY = (
    "enable it in the API server (--runtime-config, and feature gate GenericWorkload), or turn off Bayplan's feature "
    "gate CompatiblePodGroups to ignore spec.schedulingGroup"
)


def native_api(*, are_trees_read: bool, are_claims_read: bool = False) -> GroupApi[NativeGroup]:
    """Return the API of Kubernetes' own PodGroups.

    Args:
        are_trees_read: Whether CompositePodGroups are read too; if not, a PodGroup below one is not supported.
        are_claims_read: Whether PodGroups may have resource claims; if not, one with claims is not supported.
    """
    read = partial(from_native, are_trees_read=are_trees_read, are_claims_read=are_claims_read)
    translations = {version: partial(read, version=version) for version in NATIVE_VERSIONS}
    return GroupApi(GroupSource.NATIVE, NativeGroup, translations, _NATIVE_REMEDY)


NATIVE_API = native_api(are_trees_read=False)
COMPOSITE_API = GroupApi(
    GroupSource.COMPOSITE,
    NativeGroup,
    {version: partial(from_composite, version=version) for version in COMPOSITE_VERSIONS},
    "enable it in the API server (--runtime-config, and feature gates GenericWorkload, TopologyAwareWorkloadScheduling "
    "and CompositePodGroup), or create PodGroups without spec.parentCompositePodGroupName",
)


class _Version(Struct, frozen=True, gc=False):
    version: str


class _Group(Struct, frozen=True, gc=False):
    versions: list[_Version] | None = None


class FoundVersions(Struct, frozen=True):
    """Versions in which an API server serves PodGroups of one API.

    Attributes:
        read: Version to read; empty if no supported version is served.
        others: Unsupported versions that are served; looked up only if ``read`` is empty.
    """

    read: str = ""
    others: tuple[str, ...] = ()


async def find_versions(connection: ApiConnection, api: GroupApi[Any]) -> FoundVersions:
    """Look up the versions in which the PodGroups of an API are served.

    Args:
        api: The API; its versions are in order of preference.

    Returns:
        The served versions; none if the API server does not serve the API.

    Raises:
        ClusterWriteError: The request failed, or the response cannot be decoded.
    """
    path, plural = f"/apis/{api.source.api_group}", api.source.plural
    for version in api.translations:
        if plural in await served_resources(connection, f"{path}/{version}"):
            return FoundVersions(version)
    group = await discovered(connection, path, _Group)
    versions = [each.version for each in (group.versions if group is not None else None) or ()]
    others = [each for each in versions if each not in api.translations]
    served = [each for each in others if plural in await served_resources(connection, f"{path}/{each}")]
    return FoundVersions(others=tuple(served))


def why_absent(api: GroupApi[Any], found: FoundVersions) -> str:
    """Return why no PodGroup of an API can be read, and what to do."""
    group, kind, read = api.source.api_group, api.source.kind, " or ".join(api.translations)
    if found.others:
        return (
            f"the API server serves {kind}s of {group} in {', '.join(found.others)}, and this version of Bayplan "
            f"reads {read} only; upgrade Bayplan or serve {group}/{read}"
        )
    return f"the API server serves no {kind}s of {group}/{read}; {api.remedy}"


def why_refused(api: GroupApi[Any], error: ClusterWriteError) -> str:
    """Return why it cannot be determined whether an API is served, and what to do."""
    text = f"cannot determine whether {api.source.value} is served: {error}"
    return f"{text}; allow this account to read discovery (ClusterRole system:discovery)" if is_refused(error) else text


def is_refused(error: ClusterWriteError) -> bool:
    """Return whether the account lacks the permission, so that an early retry does not help."""
    return isinstance(error, ForbiddenError) and not isinstance(error, UnauthorizedError)
