"""``bayplan explain``: explains why a pod or a gang is or is not scheduled."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command
from bayplan.conformance.cases import STANDARD_INPUT
from bayplan.conformance.run import run_cases
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.texts.printable import printable_record

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the command; None and empty if not given."""

    pod: str | None
    namespace: str | None
    file_pod: str | None
    files: tuple[str, ...]
    offline: bool
    server: str | None
    kubeconfig: Path | None
    kube_context: str | None
    seed: int
    others_placed: bool
    feature_gates: str
    allow_invalid: bool


@click.command(short_help="Explain why a pod or a gang is or is not scheduled.")
@click.argument("pod", required=False, metavar="[POD | podgroup/NAME]")
@click.option("-n", "--namespace", help="Namespace of the pod or PodGroup.  [default: default]")
@click.option("--server", metavar="URL", help="Address of the operator.  [default: 127.0.0.1:10259]")
@click.option("--offline", is_flag=True, help="Read the cluster from the API server, without an operator.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="With --offline: path of the kubeconfig.")
@click.option("--context", "kube_context", help="With --offline: context of the kubeconfig.")
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Read the cluster from files; - is standard input."
)
@click.option("--pod", "file_pod", metavar="NAMESPACE/NAME", help="Pod to explain, instead of POD.")
@click.option("--others-placed", is_flag=True, help="With -f: schedule all other pending pods first.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="With -f, --offline: seed to resolve ties."
)
@feature_gates_option("With -f, --offline: feature gates of the scheduler.")
@allow_invalid_option("With -f: ")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option(
    "--cases",
    "source",
    metavar="FILE",
    help="File of conformance cases, one JSON object on each line, plain or gzip; - is standard input.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="cores",
    help="With --cases: number of worker processes; 1 prints each result as soon as it is computed.",
)
@click.pass_context
def explain(
    context: click.Context,
    *,
    pod: str | None,
    namespace: str | None,
    server: str | None,
    offline: bool,
    kubeconfig: Path | None,
    kube_context: str | None,
    files: tuple[str, ...],
    file_pod: str | None,
    others_placed: bool,
    seed: int,
    feature_gates: str,
    allow_invalid: bool,
    output: str,
    source: str | None,
    workers: int,
) -> None:
    """Explain why POD is or is not scheduled; with podgroup/NAME, explain a gang.

    The command sends a request to the running operator, at 127.0.0.1:10259 or the address of --server. In the
    operator's pod, a standby names the leader, and the command sends the request there. From a workstation, use kubectl
    port-forward to the pod of the leader. With --offline the cluster is read from the API server, with -f from files,
    and the pod is explained in memory. The command changes nothing in the cluster.

    The output lists the plugins that reject nodes and why, the nearest misses and what they lack, the scores of the
    best nodes, a dry run of preemption, and the events that would requeue the pod. For a gang it lists the members and
    a dry run of its group cycle by domain: how many members fit, what the next one lacks, and the preemption victims.

    With -o html it is one file to attach to a ticket, which needs no server: the page's panel of one pod or gang, and
    below it the tables, which need no script.

    With --cases, the command makes one attempt for the pod of each case and writes one JSON result on each line in the
    conformance format, in the order of the cases. It reports a case that cannot be run on standard error and skips it;
    the exit code is then 1.
    """
    if source is not None:
        if pod or file_pod or files or offline or server:
            raise click.UsageError("--cases cannot be combined with a pod, -f, --offline or --server")
        failed = _run_cases(source, workers)
        if failed:
            click.echo(f"{failed} cases could not be run", err=True)
            context.exit(1)
        return
    options = _Options(
        pod,
        namespace,
        file_pod,
        files,
        offline,
        server,
        kubeconfig,
        kube_context,
        seed,
        others_placed,
        feature_gates,
        allow_invalid,
    )
    click.echo(_explained(options, output), nl=output not in ("yaml", "html"))


def _explained(options: _Options, output: str) -> str:
    namespace, name = _target(options)
    if sum((bool(options.files), options.offline, options.server is not None)) > 1:
        raise click.UsageError("specify only one of -f, --offline and --server")
    if options.others_placed and not options.files:
        raise click.UsageError("--others-placed requires -f")
    if options.allow_invalid and not options.files:
        raise click.UsageError("--allow-invalid requires -f")
    if not options.offline and (options.kubeconfig or options.kube_context):
        raise click.UsageError("--kubeconfig and --context require --offline")
    if options.feature_gates and not (options.files or options.offline):
        raise click.UsageError("--feature-gates requires -f or --offline; a running operator uses its own")
    gates = FeatureGates(parse_feature_gates(options.feature_gates))
    # Imported here, because --cases must not wait for the import of the client libraries.
    from bayplan.cli import explain_sources as sources  # noqa: PLC0415 - see above
    from bayplan.cli.cluster_connection import ClusterChoice  # noqa: PLC0415 - see above
    from bayplan.cli.explain_sources import explained_name  # noqa: PLC0415 - see above
    from bayplan.cli.operator_requests import DEFAULT_SERVER  # noqa: PLC0415 - see above
    from bayplan.explanation import gang_rendering, pod_rendering  # noqa: PLC0415 - see above
    from bayplan.explanation.pod_model import Explanation  # noqa: PLC0415 - see above
    from bayplan.page.report_file import explanation_report  # noqa: PLC0415 - see above
    from bayplan.simulation.simulation import SimulationOptions  # noqa: PLC0415 - see above

    target = explained_name(namespace, name)
    if options.files:
        settings = SimulationOptions(options.seed, gates=gates)
        cluster = sources.read_files(options.files, allow_invalid=options.allow_invalid)
        explanation = sources.from_files(cluster, target, settings, others_placed=options.others_placed)
    elif options.offline:
        choice = ClusterChoice(options.kubeconfig, options.kube_context)
        explanation = sources.from_api_server(choice, target, SimulationOptions(options.seed, gates=gates))
    else:
        explanation = sources.from_operator(options.server or DEFAULT_SERVER, target)
    if output == "html":
        return explanation_report(explanation, given_command(click.get_current_context()))
    if isinstance(explanation, Explanation):
        return pod_rendering.RENDERERS[output](explanation)
    return gang_rendering.RENDERERS[output](explanation)


def _target(options: _Options) -> tuple[str, str]:
    """Return the namespace and the name of the pod or PodGroup to explain."""
    if bool(options.pod) == bool(options.file_pod):
        usage = "bayplan explain -n NAMESPACE POD or podgroup/NAME, or --pod NAMESPACE/NAME"
        raise click.UsageError(f"specify one pod or PodGroup: {usage}")
    if options.pod:
        return options.namespace or _DEFAULT_NAMESPACE, options.pod
    namespace, slash, name = (options.file_pod or "").rpartition("/")
    if options.namespace and slash:
        raise click.UsageError("--pod NAMESPACE/NAME cannot be combined with -n")
    return namespace or options.namespace or _DEFAULT_NAMESPACE, name


def _run_cases(source: str, workers: int) -> int:
    output = sys.stdout.buffer
    noted: set[str] = set()
    failed = 0
    for answers in run_cases(source, workers):
        output.write(answers.output)
        for number, name, problem in answers.problems:
            failed += 1
            click.echo(printable_record(f"{_place(source, number, name)}: {problem}"), err=True)
        for plugin in answers.left_out:
            if plugin not in noted:
                noted.add(plugin)
                note = f"note: plugin {plugin} is not supported and is removed from the profiles of the cases"
                click.echo(printable_record(note), err=True)
    output.flush()
    return failed


def _place(source: str, number: int, name: str) -> str:
    file = "standard input" if source == STANDARD_INPUT else source
    return f"{file}, line {number}{f' ({name})' if name else ''}"
