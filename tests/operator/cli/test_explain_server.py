"""``bayplan explain`` against an operator, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bayplan.cli import bayplan
from bayplan.explanation.gang_model import GangExplanation, GangVerdict, MemberCounts
from bayplan.explanation.model import Explanation, Verdict
from bayplan.serving.certificate import ServedCertificate
from bayplan.serving.explain import ExplainEndpoint
from bayplan.serving.protection import Protection
from bayplan.serving.readiness import Readiness
from bayplan.serving.serving_settings import ServingSettings
from click.testing import CliRunner, Result

from scheduler_core.model.pod_group import GroupSource
from tests.support.threaded_server import served_in_a_thread

KNOWN = Explanation(
    namespace="shop", name="web", scheduler_name="spread", verdict=Verdict.PLACED, headline="pod shop/web is on node n"
)

GANG = GangExplanation(
    namespace="shop",
    name="train",
    api="bayplan.dev",
    verdict=GangVerdict.PLACED,
    headline="gang shop/train is placed",
    members=MemberCounts(2, 0, 0, 2, 0, 0, 2, 0),
)


def known(namespace: str, name: str) -> Explanation | None:
    """One pod is known."""
    return KNOWN if (namespace, name) == ("shop", "web") else None


def known_gang(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    """One gang is known."""
    return GANG if (namespace, name, source) == ("shop", "train", GroupSource.BAYPLAN) else None


@contextmanager
def operator(*, ready: bool = True, explains: bool = True, secure: bool = False) -> Iterator[str]:
    """An operator's port; its URL."""
    readiness = Readiness(() if ready else ("pods are being listed",))
    routes = ExplainEndpoint(known, readiness, explain_gang=known_gang).routes if explains else []
    protection = Protection(ServedCertificate(ServingSettings(secure_serving=True)) if secure else None)
    with served_in_a_thread(readiness, routes, protection) as server:
        yield f"http://127.0.0.1:{server.port}"


def asked(server: str, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(bayplan, ["explain", "-n", "shop", "--server", server, *options])


def test_prints_what_the_operator_says() -> None:
    """As a table and as the document."""
    with operator() as url:
        assert asked(url, "web").stdout == "Pod shop/web is on node n\n"
        assert json.loads(asked(f"{url}/", "web", "-o", "json").stdout)["verdict"] == "Placed"


def test_asks_about_a_gang() -> None:
    """By the name of its PodGroup, with its API."""
    with operator() as url:
        assert asked(url, "podgroup.bayplan.dev/train").stdout.startswith("Gang shop/train is placed\n")
        assert json.loads(asked(url, "bpg/train", "-o", "json").stdout)["verdict"] == "Placed"


@pytest.mark.parametrize(
    ("ready", "explains", "pod", "text"),
    [
        pytest.param(
            True, True, "gone", "bayplan: pod shop/gone not found; check the namespace and the name", id="no pod"
        ),
        pytest.param(
            True,
            True,
            "podgroup/gone",
            "bayplan: PodGroup shop/gone not found; check the namespace and the name",
            id="no PodGroup",
        ),
        pytest.param(False, True, "web", "bayplan: not ready: pods are being listed; retry", id="not ready"),
        pytest.param(True, False, "web", "HTTP 404; is --server a Bayplan of this version?", id="something else"),
    ],
)
def test_refusals_are_told(ready: bool, explains: bool, pod: str, text: str) -> None:
    """Exit code 1 and the operator's own words."""
    with operator(ready=ready, explains=explains) as url:
        result = asked(url, pod)
    assert result.exit_code == 1
    assert text in result.stderr


def test_nobody_there() -> None:
    """What to do is said."""
    with operator() as url:
        pass
    result = asked(url, "web")
    assert result.exit_code == 1
    assert "run kubectl port-forward to the operator, name it with --server, or use --offline" in result.stderr


@pytest.mark.parametrize("secure", [pytest.param(True, id="HTTPS"), pytest.param(False, id="HTTP")])
def test_the_scheme_is_found(*, secure: bool) -> None:
    """Without a scheme the command finds out; on this host an operator may vouch for itself."""
    with operator(secure=secure) as url:
        result = asked(url.removeprefix("http://"), "web", "-o", "json")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("secure", "scheme", "told"),
    [
        pytest.param(False, "https", "cannot be asked", id="HTTPS of HTTP"),
        pytest.param(True, "http", "name it with --server without http://", id="HTTP of HTTPS"),
    ],
)
def test_another_scheme_than_asked_for(scheme: str, told: str, *, secure: bool) -> None:
    """Whoever names a scheme is not answered by another one, and is told what to do."""
    with operator(secure=secure) as url:
        result = asked(url.replace("http", scheme), "web")
    assert result.exit_code == 1
    assert told in result.stderr
