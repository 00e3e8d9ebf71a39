"""The profiles that a user names for a comparison: in a file, in the cluster, or a stored revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayplan.comparison.profile_comparison import ComparedProfile
from bayplan.profiles.history_listing import ProfileHistory
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import STANDARD_INPUT, Placed, read_cluster_files
from bayplan.simulation.listed_cluster import LIVE
from scheduler_core.errors import ConfigError, Problem

_SUFFIXES = (".yaml", ".yml", ".json")

History = Callable[[str], ProfileHistory]
"""Reads the history of the profile of a name."""


@dataclass(frozen=True, slots=True)
class ProfileReference:
    """A profile as the user named it.

    Attributes:
        file: Path of the file; "" for a profile of the cluster.
        name: Name of the profile; "" for the only one in the file.
        revision: Number of the stored revision; None for the present spec.
    """

    text: str
    file: str
    name: str
    revision: int | None = None


def parse_reference(text: str) -> ProfileReference:
    """Parse ``FILE``, ``FILE#NAME``, ``NAME`` or ``NAME@REVISION``.

    An argument is a file if it ends with .yaml, .yml or .json, contains a slash, is ``-``, or if such a file exists.

    Raises:
        ConfigError: The revision is not a positive number.
    """
    path, _, wanted = text.partition("#")
    if path == STANDARD_INPUT or "/" in path or path.endswith(_SUFFIXES) or Path(path).is_file():
        return ProfileReference(text, path, wanted)
    name, at, number = text.partition("@")
    if not at:
        return ProfileReference(text, "", name)
    if not (number.isascii() and number.isdecimal() and int(number)):
        message = (
            f'"{number}" is not the number of a revision; write NAME@NUMBER, with a number of: bayplan history {name}'
        )
        raise ConfigError([Problem(text, message)])
    return ProfileReference(text, "", name, int(number))


def find_profile(reference: ProfileReference, cluster: AdmittedCluster, history: History) -> ComparedProfile:
    """Find a profile.

    Raises:
        ConfigError: There is no such profile, or the file has several.
        ClusterWriteError: The stored revisions cannot be read.
    """
    if reference.file:
        return _in_file(reference)
    if reference.revision is None:
        return ComparedProfile(reference.text, _named(reference.name, cluster.profiles, reference.text))
    found = history(reference.name)
    spec = found.spec_of(found.numbered(reference.revision), resolved=True)
    body = {**found.body, "spec": spec}
    return ComparedProfile(reference.text, Placed(body, LIVE))


def _in_file(reference: ProfileReference) -> ComparedProfile:
    files = read_cluster_files([reference.file])
    if files.problems:
        raise ConfigError(files.problems)
    if reference.name:
        profile = _named(reference.name, files.profiles, reference.text)
    elif len(files.profiles) == 1:
        profile = files.profiles[0]
    else:
        names = _names(files.profiles)
        message = (
            f"has {len(files.profiles)} SchedulerProfiles ({names}); choose one with {reference.file}#NAME"
            if files.profiles
            else "has no SchedulerProfile; a KubeSchedulerConfiguration is converted by: bayplan import-config"
        )
        raise ConfigError([Problem(reference.file, message)])
    return ComparedProfile(reference.text, profile, tuple(files.plugin_configs))


def _named(name: str, profiles: Iterable[Placed[dict[str, Any]]], text: str) -> Placed[dict[str, Any]]:
    for placed in profiles:
        if placed.object["metadata"]["name"] == name:
            return placed
    raise ConfigError([Problem(text, f'there is no SchedulerProfile "{name}"; existing: {_names(profiles)}')])


def _names(profiles: Iterable[Placed[dict[str, Any]]]) -> str:
    return ", ".join(sorted(str(placed.object["metadata"]["name"]) for placed in profiles)) or "none"
