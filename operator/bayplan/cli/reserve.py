"""``bayplan reserve``: creates a NodeReservation, or lists them with the nodes of their room."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from rich.console import RenderableType

from bayplan.api_validation.object_validation import ObjectValidation
from bayplan.cli.object_names import chosen_namespace, complete_groups, complete_namespaces, complete_profiles
from bayplan.cli.operator_location import ClusterChoice, kubeconfig_options
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, ListPage, list_pages
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.reservations.reservation_list import ListedReservation, listed_reservation
from bayplan.resources.node_reservation import MAX_COUNT, NodeReservation
from bayplan.resources.resource_model import API_VERSION
from bayplan.texts.document_formats import PIPED_WIDTH, listed, printable_json, printable_record, printable_yaml
from bayplan.texts.report_sections import report_renderers, table_of
from scheduler_core.config.config_model import INT32_MAX, parse_duration
from scheduler_core.errors import ConfigError, ConflictError, ForbiddenError, NotFoundError

_KIND = NodeReservation.definition.kind
_PLURAL = NodeReservation.definition.plural
_OBJECTS = ObjectJsonDecoder(ListPage[dict[str, Any]])
_SECONDS = 10.0
_NOT_SERVED = (
    f"the API server does not serve {_PLURAL}; apply crds/{_PLURAL}.yaml, or upgrade the Helm release of Bayplan"
)


class ReservationList(msgspec.Struct, frozen=True, rename="camel"):
    reservations: tuple[ListedReservation, ...] = ()


def _pairs(option: str, texts: tuple[str, ...], form: str) -> dict[str, str]:
    """Parse ``KEY=VALUE,...``; raises UsageError if a part has another form, or a key is repeated."""
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise click.UsageError(f'{option}: "{part}" must have the form {form}')
        if key in found:
            raise click.UsageError(f"{option}: {key} is repeated; specify it once")
        found[key] = value
    return found


class TimeToLive(click.ParamType):  # type: ignore[type-arg]  # at runtime not generic before click 8.4
    """Whole seconds, also given as a duration in Go's notation."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            seconds = float(value) if str(value).isdecimal() else parse_duration(value).seconds
        except ConfigError as error:
            self.fail(error.problems[0].message, param, ctx)
        if not 1 <= seconds <= INT32_MAX or seconds != int(seconds):
            self.fail(f'"{value}" must be whole seconds, at least 1; such as 3600, 1h or 90m', param, ctx)
        return int(seconds)


@dataclass(frozen=True, slots=True)
class _Options:
    """Options that describe the room; None and empty if not given."""

    requests: tuple[str, ...]
    cpu: str | None
    memory: str | None
    count: int
    owner: tuple[str, ...]
    podgroup: str | None
    ttl: int | None
    priority: int | None
    priority_class: str | None
    topology: str | None
    scheduler_name: str

    def manifest(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the NodeReservation.

        Raises:
            UsageError: Options are missing, or exclude each other.
            ConfigError: The API server would reject it.
        """
        if self.priority is not None and self.priority_class is not None:
            raise click.UsageError("specify only one of --priority and --priority-class")
        optional = {
            "topology": None if self.topology is None else {"key": self.topology},
            "ttlSeconds": self.ttl,
            "priority": self.priority,
            "priorityClassName": self.priority_class,
        }
        spec = {
            "count": self.count,
            "resources": self._resources(),
            "owner": self._owner(),
            **{field: value for field, value in optional.items() if value is not None},
            "schedulerName": self.scheduler_name,
        }
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": API_VERSION, "kind": _KIND, "metadata": metadata, "spec": spec}
        NodeReservation.from_object(body)
        if problems := ObjectValidation().problems(body):
            raise ConfigError(problems)
        return body

    def _resources(self) -> dict[str, str]:
        short = {"cpu": self.cpu, "memory": self.memory}
        given = {resource: amount for resource, amount in short.items() if amount is not None}
        long = _pairs("--requests", self.requests, "RESOURCE=AMOUNT, such as nvidia.com/gpu=8")
        if twice := sorted(given.keys() & long.keys()):
            raise click.UsageError(f"--requests and --{twice[0]} both specify {twice[0]}; specify it once")
        if not given and not long:
            raise click.UsageError("specify the requests of one pod with --cpu, --memory or --requests")
        return given | long

    def _owner(self) -> dict[str, Any]:
        owner: dict[str, Any] = {}
        if self.owner:
            owner["labels"] = _pairs("--owner", self.owner, "LABEL=VALUE, such as app=train")
        if self.podgroup is not None:
            owner["podGroup"] = self.podgroup
        if not owner:
            raise click.UsageError("specify the pods that use the room with --owner, --podgroup or both")
        return owner


_CREATION = frozenset((*_Options.__slots__, "is_dry_run"))


@click.command(short_help="Reserve room for later pods, or list the reservations.")
@click.argument("name", required=False)
@click.option("--cpu", metavar="AMOUNT", help="CPU that one pod requests.")
@click.option("--memory", metavar="AMOUNT", help="Memory that one pod requests.")
@click.option(
    "--requests", multiple=True, metavar="RESOURCE=AMOUNT,...", help="Requests of one pod, such as nvidia.com/gpu=8."
)
@click.option("--count", type=click.IntRange(1, MAX_COUNT), default=1, show_default=True, help="Number of pods.")
@click.option("--owner", multiple=True, metavar="LABEL=VALUE,...", help="Labels of the pods that use the room.")
@click.option(
    "--podgroup", metavar="NAME", shell_complete=complete_groups,
    help="PodGroup (bayplan.dev) of the pods that use the room.",
)  # fmt: skip
@click.option(
    "--ttl", type=TimeToLive(), metavar="DURATION",
    help="Time after which the reservation expires: seconds, or a duration such as 2h.  [default: never]",
)  # fmt: skip
@click.option(
    "--priority", type=click.IntRange(-INT32_MAX, INT32_MAX),
    help="Priority of the room: pods of higher priority may use it.  [default: 0]",
)  # fmt: skip
@click.option("--priority-class", metavar="NAME", help="PriorityClass of the room, instead of --priority.")
@click.option("--topology", metavar="LABEL", help="Node label that has the same value on the nodes of all pods.")
@click.option(
    "--scheduler-name", default="bayplan", show_default=True, shell_complete=complete_profiles,
    help="schedulerName of the profile whose plugins decide where the pods fit.",
)  # fmt: skip
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Print the NodeReservation as YAML; create nothing.")
@click.option(
    "-n", "--namespace", shell_complete=complete_namespaces,
    help="Namespace of the NodeReservation or of the list.  [default: that of the context; for a list: all]",
)  # fmt: skip
@click.option("-A", "--all-namespaces", "is_all_namespaces", is_flag=True, help="List all namespaces; the default.")
@kubeconfig_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Output format.")
def reserve(
    *,
    name: str | None,
    is_dry_run: bool,
    namespace: str | None,
    is_all_namespaces: bool,
    cluster: ClusterChoice,
    output: str,
    **given: Any,
) -> None:
    """Create the NodeReservation NAME: room for COUNT pods that do not exist yet. Without NAME, list NodeReservations.

    Only the pods that --owner and --podgroup select use the room, and pods of higher priority. The list has the phase,
    the nodes with the number of pods that room is held for, and the time at which the reservation expires. `kubectl
    delete nodereservation` ends a reservation. The operator needs its feature gate NodeReservation.

    Exit codes: 0 success, 1 the API server rejects the request, 2 the NodeReservation is invalid.
    """
    context = click.get_current_context()
    selected = chosen_namespace(namespace, is_all_namespaces=is_all_namespaces)
    if name is None:
        for option in context.command.params:
            if option.name in _CREATION and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
                raise click.UsageError(f"{option.opts[0]} describes a new NodeReservation; name it")
        _print_list(cluster.run(lambda connection: _list(connection, selected)), output)
        return
    if is_all_namespaces:
        raise click.UsageError("-A lists NodeReservations; leave out the name, or name the namespace with -n")
    body = _Options(**given).manifest(selected or cluster.own_namespace, name)
    if not is_dry_run:
        body = cluster.run(lambda connection: _create(connection, body))
        if output == "table":
            meta = body["metadata"]
            click.echo(printable_record(f'{_KIND} "{meta["name"]}" created in namespace {meta["namespace"]}'))
            return
        body["metadata"].pop("managedFields", None)
    if output == "json":
        click.echo(printable_json(json.dumps(body, indent=2)))
    else:
        click.echo(printable_yaml(body, PIPED_WIDTH), nl=False)


async def _create(connection: ApiConnection, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create a NodeReservation and return it.

    Raises:
        ConflictError: The name is taken.
        NotFoundError: The namespace does not exist, or the API server does not serve the kind.
        ForbiddenError: The user may not create it.
        ClusterWriteError: The request failed.
    """
    meta = body["metadata"]
    params = (("fieldManager", "bayplan-reserve"), ("fieldValidation", "Strict"))
    request = ApiRequest("POST", _collection(meta["namespace"]), msgspec.json.encode(body), params=params)
    what = f'{_KIND} "{meta["name"]}" in namespace {meta["namespace"]}'
    try:
        answer = await connection.request(request)
    except NotFoundError as error:
        if f'namespaces "{meta["namespace"]}"' in str(error):
            raise NotFoundError(f'there is no namespace "{meta["namespace"]}"; correct -n, or create it') from error
        raise NotFoundError(_NOT_SERVED) from error
    except ConflictError as error:
        raise ConflictError(f"there is a {what} already; delete it, or choose another name") from error
    except ForbiddenError as error:
        raise ForbiddenError(f"the API server does not accept {what}: {error}") from error
    created: dict[str, Any] = msgspec.json.decode(answer)
    return created


async def _list(connection: ApiConnection, namespace: str) -> ReservationList:
    """Return the NodeReservations of a namespace; of all if it is "".

    Raises:
        NotFoundError: The API server does not serve the kind.
        ForbiddenError: The user may not list them.
        ClusterWriteError: The request failed.
    """
    found: list[dict[str, Any]] = []
    try:
        async for page in list_pages(connection, _collection(namespace), _OBJECTS, seconds=_SECONDS):
            found += page.items or ()
    except NotFoundError as error:
        raise NotFoundError(_NOT_SERVED) from error
    except ForbiddenError as error:
        where = f"in namespace {namespace}" if namespace else "in all namespaces; name one with -n"
        raise ForbiddenError(f"you may not list {_PLURAL} {where}: {error}") from error
    return ReservationList(tuple(sorted(map(listed_reservation, found), key=lambda each: (each.namespace, each.name))))


def _collection(namespace: str) -> str:
    within = f"/namespaces/{path_part(namespace)}" if namespace else ""
    return f"/apis/{API_VERSION}{within}/{_PLURAL}"


def _print_list(found: ReservationList, output: str) -> None:
    if output == "table" and not found.reservations:
        click.echo("no NodeReservations")
        return
    click.echo(_RENDERERS[output](found), nl=output != "yaml")
    waiting = sum(not each.phase for each in found.reservations)
    if waiting:
        click.echo(
            f"note: {waiting} without a phase: no operator has read them; it needs its feature gate {_KIND}", err=True
        )


_SHOWN_NODES = 8


def _sections(found: ReservationList) -> Iterator[RenderableType]:
    rows = []
    for each in found.reservations:
        nodes = [f"{name} ({pods})" for name, pods in each.nodes.items()]
        is_held = each.phase in ("Reserved", "Consumed")
        reason = each.reason if is_held or not each.message else f"{each.reason}: {each.message}"
        cells = (each.namespace, each.name, each.phase or "-", each.count, each.consumed, each.reserved)
        rows.append((*cells, listed(nodes, _SHOWN_NODES) or "-", each.until or "-", reason or "-"))
    yield table_of(("NAMESPACE", "NAME", "PHASE", "COUNT", "BOUND", "HELD", "NODES", "EXPIRES", "REASON"), rows)


_RENDERERS = report_renderers(_sections)
