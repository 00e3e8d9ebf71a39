"""``bayplan explain``: why a pod or a gang goes where it goes, or nowhere.

Owns the command's options and streams. It must not decide or word anything itself.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from bayplan.conformance.cases import STANDARD_INPUT
from bayplan.conformance.run import run_cases
from bayplan.printable import printable_record

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class _Question:
    """The options, as given; None and empty for those that were not."""

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


@click.command(short_help="Show why a pod or a gang goes where it goes, or nowhere.")
@click.argument("pod", required=False, metavar="[POD | podgroup/NAME]")
@click.option("-n", "--namespace", help="Namespace of POD or PodGroup.  [default: default]")
@click.option("--server", metavar="URL", help="Where the operator serves.  [default: 127.0.0.1:10259]")
@click.option("--offline", is_flag=True, help="Read the cluster through the API server; no operator is needed.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="With --offline; as kubectl when left out.")
@click.option("--context", "kube_context", help="With --offline: a context of the kubeconfig.")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Read the cluster from files, - is stdin.")
@click.option("--pod", "file_pod", metavar="NAMESPACE/NAME", help="The pod; another way to name it.")
@click.option("--others-placed", is_flag=True, help="With -f: place all other waiting pods first, as simulate does.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="With -f, --offline: settles ties."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
@click.option(
    "--cases",
    "source",
    metavar="FILE",
    help="Conformance cases, one JSON object a line, plain or gzip; - reads standard input.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="cores",
    help="With --cases: processes that work on them; 1 answers line by line.",
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
    output: str,
    source: str | None,
    workers: int,
) -> None:
    """Show why POD goes where it goes, or nowhere; with podgroup/NAME, the same of a gang.

    The running operator is asked, at 127.0.0.1:10259 unless --server names another address. In the operator's pod, a
    standby names the leader and the command asks that. From a workstation, use kubectl port-forward to the pod that
    leads. With --offline the cluster is read through the API server, with -f from files; either is then decided in
    memory. Nothing in the cluster is changed.

    Told are: the plugins that reject nodes and why, the nodes that miss by least with what they lack, the scores of the
    best nodes, what preemption would do, and the events that would bring the pod back. Of a gang: its members, and one
    attempt to place its quorum in thought, by domain: how many fit, what the next one lacks, who would be evicted.

    With --cases, one attempt is made for the pod of each case and one JSON result a line is written in the conformance
    format, in the order of the cases. A case that cannot be run is reported on standard error and left out; the exit
    code is then 1.
    """
    if source is not None:
        if pod or file_pod or files or offline or server:
            raise click.UsageError("--cases goes without a pod, -f, --offline and --server")
        failed = _run_cases(source, workers)
        if failed:
            click.echo(f"{failed} cases could not be run", err=True)
            context.exit(1)
        return
    question = _Question(
        pod, namespace, file_pod, files, offline, server, kubeconfig, kube_context, seed, others_placed
    )
    click.echo(_answer(question, output), nl=output != "yaml")


def _answer(question: _Question, output: str) -> str:
    namespace, name = _asked(question)
    if sum((bool(question.files), question.offline, question.server is not None)) > 1:
        raise click.UsageError("choose one of -f, --offline and --server")
    if question.others_placed and not question.files:
        raise click.UsageError("--others-placed goes with -f: a cluster's other pods stay as they are")
    if not question.offline and (question.kubeconfig or question.kube_context):
        raise click.UsageError("--kubeconfig and --context go with --offline")
    # Not at the top: --cases must not wait for the client libraries.
    from bayplan.cli import explain_sources as sources  # noqa: PLC0415 - as said
    from bayplan.cli.explained_names import explained_name  # noqa: PLC0415 - as said
    from bayplan.cli.operator_requests import DEFAULT_SERVER  # noqa: PLC0415 - as said
    from bayplan.explanation import gang_rendering, rendering  # noqa: PLC0415 - as said
    from bayplan.explanation.model import Explanation  # noqa: PLC0415 - as said

    asked = explained_name(namespace, name)
    if question.files:
        told = sources.from_files(question.files, asked, question.seed, others_placed=question.others_placed)
    elif question.offline:
        choice = sources.ClusterChoice(question.kubeconfig, question.kube_context)
        told = sources.from_api_server(choice, asked, question.seed)
    else:
        told = sources.from_operator(question.server or DEFAULT_SERVER, asked)
    if isinstance(told, Explanation):
        return rendering.RENDERERS[output](told)
    return gang_rendering.RENDERERS[output](told)


def _asked(question: _Question) -> tuple[str, str]:
    """Namespace, and name of the pod or PodGroup that is asked about."""
    if bool(question.pod) == bool(question.file_pod):
        usage = "bayplan explain -n NAMESPACE POD or podgroup/NAME, or --pod NAMESPACE/NAME"
        raise click.UsageError(f"name one pod or PodGroup: {usage}")
    if question.pod:
        return question.namespace or _DEFAULT_NAMESPACE, question.pod
    namespace, slash, name = (question.file_pod or "").rpartition("/")
    if question.namespace and slash:
        raise click.UsageError("--pod NAMESPACE/NAME goes without -n")
    return namespace or question.namespace or _DEFAULT_NAMESPACE, name


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
                told = f"note: plugin {plugin} is not built yet and left out of the cases' profiles"
                click.echo(printable_record(told), err=True)
    output.flush()
    return failed


def _place(source: str, number: int, name: str) -> str:
    file = "standard input" if source == STANDARD_INPUT else source
    return f"{file}, line {number}{f' ({name})' if name else ''}"
