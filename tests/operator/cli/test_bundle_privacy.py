"""Secrets are removed from the documents of a bundle, and names are hashed consistently."""

from __future__ import annotations

import json
from typing import Any

from bayplan.cli.bundle import HashedNames, without_secrets
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import table

SECRET = "s3cr3t-v4lue"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzY2hlZHVsZXIifQ.c2lnbmF0dXJl"


@table(
    "document",
    ("key of an extender", {"spec": {"extenders": [{"tlsConfig": {"keyData": SECRET}}]}}),
    ("certificate", {"tlsConfig": {"certData": SECRET}}),
    ("token of a plugin", {"args": {"apiToken": SECRET}}),
    ("passwords", {"args": {"db_password": SECRET, "dbPasswd": SECRET}}),
    ("nested credentials", {"args": {"credentials": {"user": SECRET, "more": [SECRET]}}}),
    ("environment variable", {"env": [{"name": "MODE", "value": SECRET}]}),
    ("reference", {"env": [{"name": "MODE", "valueFrom": {"secretKeyRef": {"key": SECRET}}}]}),
    ("applied manifest", {"annotations": {"last-applied": json.dumps({"keyData": SECRET})}}),
    ("managed fields", {"metadata": {"managedFields": [{"f:x": SECRET}]}}),
    ("password of a URL", {"endpoint": f"https://user:{SECRET}@host/v1"}),
    ("header in an argument", {"args": ["--header", f"Authorization: Bearer {SECRET}"]}),
    ("PEM", [f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"]),
)
def test_secrets_are_removed(document: Any) -> None:
    """No form of a secret is left."""
    assert SECRET not in json.dumps(without_secrets(document))


def test_tokens_are_removed_anywhere() -> None:
    """A JSON web token is removed from any text."""
    assert TOKEN not in json.dumps(without_secrets({"message": f"rejected {TOKEN} twice"}))


def test_settings_are_kept() -> None:
    """What is no secret stays, and so do the names of environment variables and the change cause."""
    document = {
        "authorizeRequests": True,
        "tlsMinVersion": "VersionTLS12",
        "leaderElection": {"leaseDuration": 15},
        "annotations": {"kubernetes.io/change-cause": "more room"},
    }
    assert without_secrets(document) == document
    assert without_secrets({"env": [{"name": "TZ", "value": "UTC"}]})["env"][0]["name"] == "TZ"


def hashed() -> HashedNames:
    return HashedNames({"web-0", "ip-10-0-0-1.ec2.internal", "big"}, {"shop", "default"}, {"api-7d9f"})


@table(
    "text, private",
    ("log line", "pod shop/web-0 is bound to node ip-10-0-0-1.ec2.internal.", ["shop", "web-0", "ec2"]),
    ("deleted pod of a namespace", "pod shop/gone-1 is deleted", ["shop", "gone-1"]),
    ("deleted pod of a namespace of every cluster", "pod default/gone-1 is deleted", ["gone-1"]),
    ("deleted pod of an owner", "api-7d9f-x2k is gone", ["api-7d9f"]),
    ("quoted", 'persistentvolumeclaim "web-0" not found', ["web-0"]),
    ("metric", 'x{namespace="shop",pod="web-0"} 1', ["shop", "web-0"]),
    ("host name", "web-0.shop.svc", ["web-0", "shop"]),
    ("field", "pod=shop/big,", ["shop", "big"]),
    ("address", "connected to 10.1.2.3:443", ["10.1.2.3"]),
)
def test_names_are_hashed(text: str, private: list[str]) -> None:
    """No private name is left in a text, also as the value or key of a document."""
    names = hashed()
    for shown in (names.in_text(text), json.dumps(names.in_document({text: [text, {"a": text}]}))):
        assert [name for name in private if name in shown] == []


def test_other_words_stay() -> None:
    """Ordinary words, numbers, ports of this host, and names of every cluster stay."""
    text = "0/3 nodes are available: 2 Insufficient cpu in namespace default at 127.0.0.1:10259"
    assert hashed().in_text(text) == text


def test_a_name_has_one_hash_in_a_bundle() -> None:
    """A name has the same hash everywhere in a bundle, and another one in the next bundle."""
    names = hashed()
    assert names.in_text("web-0 web-0").split()[0] == names.in_document({"pod": "shop/web-0"})["pod"].split("/")[1]
    assert names.hashed("web-0") != hashed().hashed("web-0")


@given(
    st.lists(st.sampled_from(["web-0", "shop", "big", "api-7d9f-z", "and", "is", "3", "m"])),
    st.sampled_from(" /,:='\""),
)
def test_no_order_of_words_leaks_a_name(words: list[str], separator: str) -> None:
    """Names are hashed whatever precedes and follows them."""
    shown = hashed().in_text(separator.join(words))
    assert [name for name in ("web-0", "shop", "big", "api-7d9f") if name in shown] == []
