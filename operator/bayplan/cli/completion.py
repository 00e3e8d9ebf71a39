"""``bayplan completion``, and the names of a cluster that a shell completes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class

from bayplan.cli.cluster_connection import ClusterChoice
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.http.paged_lists import ListPage
from scheduler_core.errors import SchedulerCoreError

_VARIABLE = "_BAYPLAN_COMPLETE"
_SECONDS = 3.0
_LIMIT = "500"
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
_GROUPS = "podgroup/"

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and the names of a cluster in SHELL.

    Profiles, their revisions, pods and PodGroups are read from the cluster of the kubeconfig, with your rights.

    \b
    bash:  source <(bayplan completion bash)      in ~/.bashrc; needs bash 4.4
    zsh:   source <(bayplan completion zsh)       in ~/.zshrc, after compinit
    fish:  bayplan completion fish | source       in ~/.config/fish/config.fish
    """  # noqa: D301 - click needs the backspace itself: it keeps the lines as they are
    root = click.get_current_context().find_root().command
    scripts = get_completion_class(shell)
    assert scripts is not None, "click completes in these shells"
    click.echo(scripts(root, {}, "bayplan", _VARIABLE).source())


class _Metadata(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Metadata


_LISTS = ObjectJsonDecoder(ListPage[_Named])


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a SchedulerProfile."""
    del parameter
    return _items(_listed(context, lambda connection: _names(connection, _PROFILES)), incomplete)


def complete_explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a pod, or of a PodGroup after ``podgroup/``."""
    del parameter
    choice = _choice(context)
    namespace = path_part(context.params.get("namespace") or choice.own_namespace)
    if incomplete.startswith(_GROUPS):
        path = f"/apis/bayplan.dev/v1alpha1/namespaces/{namespace}/podgroups"
        names = [f"{_GROUPS}{name}" for name in _listed(context, lambda connection: _names(connection, path))]
        return _items(names, incomplete)
    path = f"/api/v1/namespaces/{namespace}/pods"
    return _items([*_listed(context, lambda connection: _names(connection, path)), _GROUPS], incomplete)


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _choice(context: click.Context) -> ClusterChoice:
    given: Mapping[str, Any] = context.params
    kubeconfig = given.get("kubeconfig")
    return ClusterChoice(None if kubeconfig is None else Path(kubeconfig), given.get("kube_context"))


def _listed(context: click.Context, read: Callable[[ApiConnection], Awaitable[list[str]]]) -> list[str]:
    """Return what is read from the cluster; nothing if it cannot be read in time, since a completion has no errors."""

    async def in_time(connection: ApiConnection) -> list[str]:
        return await asyncio.wait_for(read(connection), _SECONDS)

    logging.disable()
    try:
        return _choice(context).run(in_time)
    except (SchedulerCoreError, OSError, TimeoutError, msgspec.DecodeError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _names(connection: ApiConnection, path: str) -> list[str]:
    request = ApiRequest("GET", path, params=(("limit", _LIMIT),), lane=Lane.READS, accept=_NAMES_ONLY)
    found = _LISTS.decode(await connection.request(request))
    return sorted(each.metadata.name for each in found.items or ())
