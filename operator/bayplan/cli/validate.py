"""``bayplan validate``: reports all problems of manifests, without a cluster."""

from __future__ import annotations

import click
from msgspec.structs import replace

from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.texts.document_formats import as_json
from bayplan.validation.manifest_files import Finding, Severity, as_text, read_manifests, report_of
from bayplan.validation.manifest_validation import ManifestValidation

EXIT_PROBLEMS = 1
EXIT_UNREADABLE = 2


@click.command(short_help="Report all problems of manifests, without a cluster.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-R", "--recursive", is_flag=True, help="Read directories recursively.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option(
    "--allow-default-scheduler",
    is_flag=True,
    help="Accept a profile named default-scheduler, as an operator with this flag does.",
)
@click.option(
    "--feature-gates",
    metavar="NAME=BOOL,...",
    default="",
    help="Feature gates of the operator: objects of kinds that it does not read are then warnings, else notes. See "
    "`bayplan features`.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.pass_context
def validate(
    context: click.Context,
    *,
    files: tuple[str, ...],
    recursive: bool,
    strict: bool,
    allow_default_scheduler: bool,
    feature_gates: str,
    output: str,
) -> None:
    """Report all problems of profiles, PodGroups, kube-scheduler configurations and objects of a cluster in FILEs.

    A FILE is a file or directory of YAML or JSON; - is standard input. It may contain several documents and lists. The
    command validates the custom resources of Bayplan, and nodes, pods and the other objects that `bayplan simulate`
    reads, like an API server v1.37; plugins and their args like the operator, with the plugins that are
    installed here; KubeSchedulerConfigurations, also in ConfigMaps. Objects of other kinds are ignored with a note; a
    DeschedulerPolicy that a profile of the FILEs works against is a warning.

    A reference to a PluginConfig that is not in the FILEs is a warning, since it may already be in the cluster. So is a
    PluginConfig that no profile of the FILEs references, if there are profiles; and a PriorityClass or node label that
    a PodGroup or NodeReservation names and none of the FILEs has, if they have PriorityClasses or nodes; and a profile
    that a RebalancePlan or NodeReservation names, if they have profiles.

    Exit codes: 0 valid, 1 there are problems (with --strict also warnings), 2 a file cannot be read.
    """
    reading = read_manifests(files, recursive=recursive)
    gates = parse_feature_gates(feature_gates)
    FeatureGates(gates)
    judgement = ManifestValidation(
        reading.manifests, allow_default_scheduler=allow_default_scheduler, feature_gates=gates
    )
    findings = list(judgement.findings)
    findings += [
        Finding(Severity.ERROR, file, f'"{name}" is duplicated in one mapping; remove one', line)
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
