"""``bayplan status``: shows the state of the running operator."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from bayplan.cli import report_head
from bayplan.cli.object_names import chosen_namespace, namespace_options
from bayplan.cli.operator_location import ClusterChoice, OperatorChoice, kubeconfig_options
from bayplan.cli.operator_requests import OperatorRequest, operator_options, send_to_operator
from bayplan.introspection.status_rendering import RENDERERS, read_status
from bayplan.serving import CACHE_PATH, STATUS_PATH
from bayplan.texts.document_formats import printable_record
from scheduler_core.errors import ServerUnavailableError

EXIT_DIFFERENT = 1
_WATCH_SECONDS = 2.0
_ENDS_ITSELF = ("yaml", "html")


@click.command(short_help="Show the state of the running operator.")
@operator_options
@namespace_options(
    "Show only pods and gangs of this namespace.", "Show pods and gangs of all namespaces, which is the default."
)
@click.option("--all", "is_all", is_flag=True, help="Show every pod in the queue and every gang.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of pods for each place."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option("--shadow", metavar="NAME", help="Show what a shadow profile decided differently, and why, instead.")
@click.option("--check-cache", is_flag=True, help="Compare the scheduler's cache with the API server instead.")
@click.option("--this-replica", is_flag=True, help="Show the process at --server, or any pod, even if it is a standby.")
@click.option("-w", "--watch", is_flag=True, help="Print the state again every two seconds, until interrupted.")
@kubeconfig_options
@click.pass_context
def status(
    context: click.Context,
    *,
    server: str | None,
    operator: str,
    namespace: str | None,
    is_all_namespaces: bool,
    is_all: bool,
    limit: int,
    output: str,
    shadow: str | None,
    check_cache: bool,
    this_replica: bool,
    watch: bool,
    cluster: ClusterChoice,
) -> None:
    """Show profiles, queue, waiting gangs, pods that wait at Permit, nominations and cache of the running operator.

    The command queries the operator on this host, or the one in the cluster of the kubeconfig: it finds the pod of the
    leader and forwards a port through the API server, with your rights (list pods, create pods/portforward). In the
    operator's pod, a standby names the leader, and the command sends the request there.

    With --shadow it is the report of one shadow profile: how often it agrees with its live profile, the last 100
    differences with their reasons, and the estimated effect on packing and spread.

    With -o html it is one file to attach to a ticket, which needs no server: the page's panels of pending pods, gangs,
    nodes and profiles, and of rates if the operator serves the page, explanations of the oldest pods of ten causes and
    of five gangs, and below them the tables, which need no script. For a standby, and with --shadow or --check-cache,
    there are tables only.

    With --check-cache the exit code is 1 if there are differences.
    """
    if watch and (output != "table" or check_cache):
        raise click.UsageError("--watch prints tables of the state; leave out -o and --check-cache")
    selected = chosen_namespace(namespace, is_all_namespaces=is_all_namespaces)
    if selected and (output == "html" or shadow is not None or check_cache):
        raise click.UsageError("-n selects pods and gangs of the tables; leave out -o html, --shadow and --check-cache")
    choice = OperatorChoice(server, operator, cluster)

    def get(path: str, params: dict[str, str]) -> bytes:
        return send_to_operator(OperatorRequest(choice, path, params, follows_leader=not this_replica))

    # The other reports import the scheduler, which takes longer than the request; imported where they are printed.
    if check_cache:
        from bayplan.introspection import reports  # noqa: PLC0415 - see above

        report = reports.read_cache_report(get(CACHE_PATH, {}))
        is_page = output == "html"
        text = reports.cache_html(report, report_head(context)) if is_page else reports.CACHE_RENDERERS[output](report)
        click.echo(text, nl=output not in _ENDS_ITSELF)
        if report.differences:
            context.exit(EXIT_DIFFERENT)
        return
    if shadow is not None:
        from bayplan.introspection import reports  # noqa: PLC0415 - see above

        def show_shadow() -> None:
            found = reports.read_shadow_report(get(STATUS_PATH, {"shadow": shadow}))
            is_page = output == "html"
            text = reports.as_html(found, report_head(context)) if is_page else reports.RENDERERS[output](found)
            click.echo(text, nl=output not in _ENDS_ITSELF)

        _repeat(show_shadow, watch=watch)
        return
    params = {"limit": "0" if is_all else str(limit)} | ({"namespace": selected} if selected else {})
    if output == "html":
        from bayplan.page.report_file import read_status_report, status_html  # noqa: PLC0415 - see above

        click.echo(
            status_html(read_status_report(get(STATUS_PATH, {**params, "panels": "true"})), report_head(context)),
            nl=False,
        )
        return

    def show() -> None:
        found = read_status(get(STATUS_PATH, params))
        if found.namespace != selected:
            raise click.UsageError(f"the operator (bayplan {found.version}) cannot select a namespace; leave out -n")
        click.echo(RENDERERS[output](found), nl=output not in _ENDS_ITSELF)

    _repeat(show, watch=watch)


def _repeat(show: Callable[[], None], *, watch: bool) -> None:
    """Print once, or again and again on a clear screen; an operator that does not answer for a while ends nothing."""
    show()
    while watch:
        time.sleep(_WATCH_SECONDS)
        click.clear()
        try:
            show()
        except ServerUnavailableError as error:
            click.echo(printable_record(f"bayplan: {error}"), err=True)
