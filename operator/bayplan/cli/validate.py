"""``bayplan validate``: all that is wrong with manifests, without a cluster.

Owns the command's options and exit codes. It must not know how anything is judged.
"""

from __future__ import annotations

import click
from msgspec.structs import replace

from bayplan.validation.findings import Finding, Severity, as_json, as_text, report_of
from bayplan.validation.judging import Judgement
from bayplan.validation.manifest_files import read_manifests

EXIT_PROBLEMS = 1
EXIT_UNREADABLE = 2


@click.command(short_help="Tell all that is wrong with manifests, without a cluster.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-R", "--recursive", is_flag=True, help="Read directories in directories too.")
@click.option("--strict", is_flag=True, help="Count warnings as problems.")
@click.option(
    "--allow-default-scheduler", is_flag=True, help="The operator runs with this flag, too: the name is not refused."
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")
@click.pass_context
def validate(
    context: click.Context,
    *,
    files: tuple[str, ...],
    recursive: bool,
    strict: bool,
    allow_default_scheduler: bool,
    output: str,
) -> None:
    """Tell all that is wrong with SchedulerProfiles, PluginConfigs, PodGroups and KubeSchedulerConfigurations in FILEs.

    A FILE is a file or directory of YAML or JSON; - reads standard input. It may hold several documents and lists.
    Judged are the schema and rules of the custom resources, as the API server judges them, and plugins and their args,
    by the plugins that are installed here, as the operator judges them. Objects of other kinds are passed over with a
    note.

    A reference to a PluginConfig that no FILE holds is a warning, since it may be in the cluster already.

    Exit codes: 0 valid, 1 there are problems (with --strict also: warnings), 2 something cannot be read.
    """
    reading = read_manifests(files, recursive=recursive)
    judgement = Judgement(reading.manifests, allow_default_scheduler=allow_default_scheduler)
    findings = list(judgement.findings)
    findings += [
        Finding(Severity.ERROR, file, f'"{name}" stands twice in one mapping; remove one', line)
        for file, line, name in reading.repeated
    ]
    if strict:
        findings = [
            each if each.severity is Severity.NOTE else replace(each, severity=Severity.ERROR) for each in findings
        ]
    report = report_of(findings, judgement.objects, reading.unreadable)
    click.echo(as_json(report) if output == "json" else as_text(report))
    if report.unreadable:
        context.exit(EXIT_UNREADABLE)
    if not report.valid:
        context.exit(EXIT_PROBLEMS)
