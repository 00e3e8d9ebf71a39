"""``bayplan status``: what the running operator is at.

Owns the command's options. It must not know what the status says or how it is laid out.
"""

from __future__ import annotations

import click

from bayplan.cli.operator_requests import DEFAULT_SERVER, OperatorRequest, ask_operator
from bayplan.introspection import cache_report
from bayplan.introspection.status_rendering import RENDERERS, read_status
from bayplan.serving.debug import CACHE_PATH, STATUS_PATH

EXIT_DIFFERENT = 1


@click.command(short_help="Show what the running operator is at.")
@click.option("--server", metavar="URL", default=DEFAULT_SERVER, show_default=True, help="Where the operator serves.")
@click.option("--all", "is_all", is_flag=True, help="Show every pod of the queue and every gang.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Pods of each place shown.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
@click.option("--check-cache", is_flag=True, help="Compare the scheduler's cache with the API server instead.")
@click.option("--this-replica", is_flag=True, help="Ask the process at --server even if it is a standby.")
@click.pass_context
def status(
    context: click.Context, *, server: str, is_all: bool, limit: int, output: str, check_cache: bool, this_replica: bool
) -> None:
    """Show profiles, queue, gangs that wait, pods that wait at Permit, nominations and cache of the running operator.

    The operator is asked at 127.0.0.1:10259 unless --server names another address. In the operator's pod, a standby
    names the leader and the command asks that. From a workstation, use kubectl port-forward to the pod that leads.

    With --check-cache the exit code is 1 when something differs.
    """

    def ask(path: str, params: dict[str, str]) -> bytes:
        return ask_operator(OperatorRequest(server, path, params, follows_leader=not this_replica))

    if check_cache:
        report = cache_report.read_cache_report(ask(CACHE_PATH, {}))
        click.echo(cache_report.RENDERERS[output](report), nl=output != "yaml")
        if report.differences:
            context.exit(EXIT_DIFFERENT)
        return
    answer = ask(STATUS_PATH, {"limit": "0" if is_all else str(limit)})
    click.echo(RENDERERS[output](read_status(answer)), nl=output != "yaml")
