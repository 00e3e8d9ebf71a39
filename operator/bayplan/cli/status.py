"""``bayplan status``: shows the state of the running operator."""

from __future__ import annotations

import click

from bayplan.cli.operator_requests import DEFAULT_SERVER, OperatorRequest, send_to_operator
from bayplan.introspection.status_rendering import RENDERERS, read_status
from bayplan.serving.endpoint_paths import CACHE_PATH, STATUS_PATH

EXIT_DIFFERENT = 1
_ENDS_ITSELF = ("yaml", "html")


@click.command(short_help="Show the state of the running operator.")
@click.option("--server", metavar="URL", default=DEFAULT_SERVER, show_default=True, help="Address of the operator.")
@click.option("--all", "is_all", is_flag=True, help="Show every pod in the queue and every gang.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of pods for each place."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option("--shadow", metavar="NAME", help="Show what a shadow profile decided differently, and why, instead.")
@click.option("--check-cache", is_flag=True, help="Compare the scheduler's cache with the API server instead.")
@click.option("--this-replica", is_flag=True, help="Show the process at --server even if it is a standby.")
@click.pass_context
def status(
    context: click.Context,
    *,
    server: str,
    is_all: bool,
    limit: int,
    output: str,
    shadow: str | None,
    check_cache: bool,
    this_replica: bool,
) -> None:
    """Show profiles, queue, waiting gangs, pods that wait at Permit, nominations and cache of the running operator.

    The command sends a request to the operator at 127.0.0.1:10259 or the address of --server. In the operator's pod, a
    standby names the leader, and the command sends the request there. From a workstation, use kubectl port-forward to
    the pod of the leader.

    With --shadow it is the report of one shadow profile: how often it agrees with its live profile, the last 100
    differences with their reasons, and the estimated effect on packing and spread.

    With -o html it is one file to attach to a ticket, which needs no server: the page's panels of pending pods, gangs,
    nodes and profiles, and of rates if the operator serves the page, explanations of the oldest pods of ten causes and
    of five gangs, and below them the tables, which need no script. For a standby, and with --shadow or --check-cache,
    there are tables only.

    With --check-cache the exit code is 1 if there are differences.
    """

    def get(path: str, params: dict[str, str]) -> bytes:
        return send_to_operator(OperatorRequest(server, path, params, follows_leader=not this_replica))

    # The other reports import the scheduler, which takes longer than the request; imported where they are printed.
    if check_cache:
        from bayplan.introspection import cache_check_report  # noqa: PLC0415 - see above

        report = cache_check_report.read_cache_report(get(CACHE_PATH, {}))
        click.echo(cache_check_report.RENDERERS[output](report), nl=output not in _ENDS_ITSELF)
        if report.differences:
            context.exit(EXIT_DIFFERENT)
        return
    if shadow is not None:
        from bayplan.introspection import shadow_report  # noqa: PLC0415 - see above

        found = shadow_report.read_shadow_report(get(STATUS_PATH, {"shadow": shadow}))
        click.echo(shadow_report.RENDERERS[output](found), nl=output not in _ENDS_ITSELF)
        return
    params = {"limit": "0" if is_all else str(limit)}
    if output == "html":
        from bayplan.page.status_report import read_status_report, status_html  # noqa: PLC0415 - see above

        click.echo(status_html(read_status_report(get(STATUS_PATH, {**params, "panels": "true"}))), nl=False)
        return
    click.echo(RENDERERS[output](read_status(get(STATUS_PATH, params))), nl=output not in _ENDS_ITSELF)
