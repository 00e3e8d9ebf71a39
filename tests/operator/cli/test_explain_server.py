"""Tests of ``bayplan explain`` against an operator over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from bayplan.cli import bayplan
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.kube.readiness import Readiness
from bayplan.serving.debug_endpoints import ExplainCalls, ExplainEndpoint
from bayplan.serving.deferred_server import ServedCertificate
from bayplan.serving.http_server import Protection
from bayplan.settings.operator_settings import ServingSettings
from click.testing import CliRunner, Result

from scheduler_core.model.pod_group import GroupSource
from tests.support.explanations import EXPLANATION, GANG
from tests.support.http_servers import serve_in_thread
from tests.support.tables import table


def explain_pod(namespace: str, name: str) -> Explanation | None:
    return EXPLANATION if (namespace, name) == ("shop", "web") else None


def explain_one_gang(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    return GANG if (namespace, name, source) == ("shop", "train", GroupSource.BAYPLAN) else None


@contextmanager
def operator(*, ready: bool = True, explains: bool = True, secure: bool = False) -> Iterator[str]:
    """Run the endpoint of an operator and yield its URL."""
    readiness = Readiness(() if ready else ("pods are being listed",))
    routes = ExplainEndpoint(ExplainCalls(explain_pod, explain_one_gang), readiness).routes if explains else []
    protection = Protection(ServedCertificate(ServingSettings(secure_serving=True)) if secure else None)
    with serve_in_thread(readiness, routes, protection) as server:
        yield f"http://127.0.0.1:{server.port}"


def run(server: str, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(bayplan, ["explain", "-n", "shop", "--server", server, *options])


def test_prints_the_operators_explanation() -> None:
    """The operator's explanation is printed as text and as JSON."""
    with operator() as url:
        assert run(url, "web").stdout == "Pod shop/web is scheduled to node n\n"
        assert json.loads(run(f"{url}/", "web", "-o", "json").stdout)["verdict"] == "Placed"


def test_explains_a_gang() -> None:
    """A gang is specified by the name of its PodGroup and its API."""
    with operator() as url:
        assert run(url, "podgroup.bayplan.dev/train").stdout.startswith("Gang shop/train is scheduled\n")
        assert json.loads(run(url, "bpg/train", "-o", "json").stdout)["verdict"] == "Placed"


@table(
    "ready, explains, pod, text",
    ("missing pod", True, True, "gone", "bayplan: pod shop/gone not found; check the namespace and the name"),
    (
        "missing PodGroup",
        True,
        True,
        "podgroup/gone",
        "bayplan: PodGroup shop/gone not found; check the namespace and the name",
    ),
    ("not ready", False, True, "web", "bayplan: not ready: pods are being listed; retry"),
    ("no explain endpoint", True, False, "web", "HTTP 404; is --server a Bayplan of this version?"),
)
def test_errors_of_the_operator(ready: bool, explains: bool, pod: str, text: str) -> None:
    """An error of the operator is printed, and the exit code is 1."""
    with operator(ready=ready, explains=explains) as url:
        result = run(url, pod)
    assert result.exit_code == 1
    assert text in result.stderr


def test_an_unreachable_operator() -> None:
    """If the operator is unreachable, the error has the remedy."""
    with operator() as url:
        pass
    result = run(url, "web")
    assert result.exit_code == 1
    assert "leave --server and BAYPLAN_SERVER out to look for the operator in the cluster" in result.stderr
    assert result.stderr.endswith(", or use --offline\n")


@table("secure", ("HTTPS", True), ("HTTP", False))
def test_the_scheme_is_found(*, secure: bool) -> None:
    """Without a scheme the command tries HTTPS and HTTP, and accepts a generated certificate on this host."""
    with operator(secure=secure) as url:
        result = run(url.removeprefix("http://"), "web", "-o", "json")
    assert result.exit_code == 0, result.output


@table(
    "secure, scheme, expected",
    ("HTTPS to an HTTP server", False, "https", "cannot connect to"),
    ("HTTP to an HTTPS server", True, "http", "set the operator's address with --server without http://"),
)
def test_a_specified_scheme_is_the_only_one(scheme: str, expected: str, *, secure: bool) -> None:
    """If a scheme is specified, no other scheme is tried, and the error has the remedy."""
    with operator(secure=secure) as url:
        result = run(url.replace("http", scheme), "web")
    assert result.exit_code == 1
    assert expected in result.stderr
