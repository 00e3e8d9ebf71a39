"""Extender configuration: defaults, the rules of one extender, and the rules among several."""

from __future__ import annotations

from typing import Any

from scheduler_core.config.config_model import seconds
from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in
from tests.support.tables import table


def extender(**fields: Any) -> dict[str, Any]:
    return {"urlPrefix": "http://extender", **fields}


def managing(*names: str) -> dict[str, Any]:
    return extender(managedResources=[{"name": name} for name in names])


def problems(*extenders: dict[str, Any]) -> list[str]:
    return problems_in(lambda: validate(ProfileConfig, {"schedulerName": "batch", "extenders": list(extenders)}))


def test_defaults() -> None:
    """The timeout is five seconds, the weight is 0, HTTPS is off, and the extender is not ignorable."""
    made = validate(Extender, extender())
    assert (made.http_timeout, made.weight, made.enable_https, made.ignorable) == (seconds(5), 0, False, False)


def test_a_zero_timeout_is_unset() -> None:
    """A timeout of zero means the default, as in kube-scheduler."""
    assert validate(Extender, extender(httpTimeout="0s")).http_timeout == seconds(5)


@table(
    "extenders",
    ("only-an-address", [extender()]),
    ("scoring", [extender(prioritizeVerb="p", weight=1)]),
    ("no-weight-without-scoring", [extender(weight=0, filterVerb="f")]),
    ("one-binder", [extender(bindVerb="b"), extender()]),
    ("different-resources", [managing("example.com/a"), managing("example.com/b")]),
    ("authority", [extender(enableHTTPS=True, tlsConfig={"caFile": "/ca"})]),
    ("client-certificate", [extender(tlsConfig={"certFile": "/c", "keyData": "aGVsbG8="})]),
    ("empty-is-unset", [extender(tlsConfig={"insecure": True, "caFile": ""})]),
)
def test_valid_extenders(extenders: list[dict[str, Any]]) -> None:
    """Extenders that kube-scheduler accepts are valid."""
    assert problems(*extenders) == []


@table(
    "extenders, expected",
    ("empty-address", [extender(urlPrefix="")], ["extenders[0].urlPrefix: must not be empty"]),
    ("no-address", [{"filterVerb": "f"}], ["extenders[0].urlPrefix: is required"]),
    ("no-weight", [extender(prioritizeVerb="p")], ["extenders[0].weight: must be at least 1"]),
    ("negative-weight", [extender(prioritizeVerb="p", weight=-1)], ["extenders[0].weight: must be at"]),
    (
        "three-binders",
        [extender(bindVerb="b"), extender(bindVerb="b"), extender(bindVerb="b")],
        ["extenders[1].bindVerb: only one", "extenders[2].bindVerb: only one"],
    ),
    ("native-resource", [managing("cpu")], ['extenders[0].managedResources[0].name: "cpu" is reserved']),
    (
        "repeated-resource",
        [managing("example.com/a", "example.com/a")],
        ['extenders[0].managedResources[1].name: "example.com/a" is already managed by an earlier'],
    ),
    (
        "resource-of-another-extender",
        [managing("example.com/a"), managing("example.com/a")],
        ['extenders[1].managedResources[0].name: "example.com/a" is already managed by an earlier'],
    ),
    (
        "insecure-with-authority",
        [extender(tlsConfig={"insecure": True, "caData": "aGVsbG8="})],
        ["extenders[0].tlsConfig.insecure: cannot be true together"],
    ),
    (
        "no-key",
        [extender(tlsConfig={"certFile": "/c"})],
        ["extenders[0].tlsConfig: a client certificate and its key must be set"],
    ),
    (
        "no-certificate",
        [extender(tlsConfig={"keyData": "aGVsbG8="})],
        ["extenders[0].tlsConfig: a client certificate and its key must be set"],
    ),
    ("base64", [extender(tlsConfig={"caData": "%"})], ["extenders[0].tlsConfig.caData: must be base64"]),
    ("timeout", [extender(httpTimeout="5sec")], ['extenders[0].httpTimeout: "5sec" is not a duration']),
    ("spelling", [extender(enableHttps=True)], ["extenders[0].enableHttps: unknown field"]),
)
def test_invalid_extenders(extenders: list[dict[str, Any]], expected: list[str]) -> None:
    """Every violated rule is reported at its extender."""
    found = problems(*extenders)
    assert len(found) == len(expected)
    assert all(problem.startswith(words) for problem, words in zip(found, expected, strict=True))


def test_the_key_is_not_shown() -> None:
    """The repr of the model does not contain the client key."""
    tls = {"certData": "aGVsbG8=", "keyData": "c2VjcmV0"}
    assert "c2VjcmV0" not in repr(validate(Extender, extender(tlsConfig=tls)))
