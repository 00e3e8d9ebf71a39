"""``bayplan promote``: writes the spec of a shadow profile into its live profile."""

from __future__ import annotations

from pathlib import Path

import click

from bayplan.cli.cluster_connection import ClusterChoice, kubeconfig_options
from bayplan.cli.rollback import report_written
from bayplan.kube.http.connection import ApiConnection
from bayplan.profiles.promotion import plan_promotion, write_promotion
from bayplan.profiles.spec_changes import unified_diff
from bayplan.texts.printable import printable, printable_record


@click.command(short_help="Write the spec of a shadow profile into its live profile.")
@click.argument("shadow")
@click.option("--dry-run", is_flag=True, help="Show the changes and let the API server validate them; change nothing.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until the revision is live.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds to wait.")
@kubeconfig_options
def promote(
    *, shadow: str, dry_run: bool, waits: bool, timeout: float, kubeconfig: Path | None, kube_context: str | None
) -> None:
    """Write the spec of the shadow profile SHADOW into its live profile, without the fields of shadows.

    The command prints the changes and what the shadow has compared, and writes the spec with your own rights, as one
    edit: the operator activates it like any edit, `bayplan history` lists it, and `bayplan rollback` takes it back. The
    shadow stays; delete it when you no longer need it.

    If the live profile is applied from a repository (GitOps), change it there too; otherwise the next sync restores the
    other spec.

    Exit codes: 0 success, 1 not possible, rejected, or not live before the timeout.
    """
    choice = ClusterChoice(kubeconfig, kube_context)

    async def work(connection: ApiConnection) -> None:
        planned = await plan_promotion(connection, shadow)
        names = (f"{planned.live_name} now", planned.shadow_name)
        click.echo(printable(unified_diff(planned.live.get("spec") or {}, planned.spec, names)), nl=False)
        click.echo(printable_record(planned.evidence))
        written = await write_promotion(connection, planned, dry_run=dry_run)
        what = f'SchedulerProfile "{planned.live_name}"'
        if dry_run:
            click.echo(printable_record(f'{what} would get the spec of "{shadow}"; nothing was changed'))
            return
        click.echo(printable_record(f'{what} has the spec of "{shadow}" now'))
        await report_written(connection, written, timeout if waits else None)

    choice.run(work)
