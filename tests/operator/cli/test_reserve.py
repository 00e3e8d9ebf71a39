"""Tests of ``bayplan reserve`` without a real API server; ``tests/cluster`` runs it on one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.fake_api import FakeApi, Response
from tests.support.manifests import write_kubeconfig
from tests.support.tables import table

LIST = "/apis/bayplan.dev/v1alpha1/nodereservations"
RENEW = "the API server rejects the credentials of this process: renew its token or kubeconfig"
IN_DEFAULT = "/apis/bayplan.dev/v1alpha1/namespaces/default/nodereservations"
TRAIN = ["train", "--cpu", "2", "--owner", "app=train"]


def reserve(*options: str) -> Result:
    return CliRunner().invoke(bayplan, ["reserve", *options])


def test_the_manifest_of_the_example(tmp_path: Path) -> None:
    """The options make the example of the documentation, with the fields in the order of the reference."""
    options = "--cpu=2 --memory=4Gi --count=4 --owner=app=train --ttl=1h --topology=topology.kubernetes.io/zone"
    missing = f"--kubeconfig={tmp_path / 'none'}"
    result = reserve("train", *options.split(), "--dry-run", "-o", "yaml", missing)
    assert result.exit_code == 0, result.output
    example = yaml.safe_load(Path("examples/reservations/train.yaml").read_text())
    example["spec"]["resources"]["cpu"] = str(example["spec"]["resources"]["cpu"])
    assert yaml.safe_load(result.stdout) == example
    assert json.loads(reserve("train", *options.split(), "--dry-run", "-o", "json", missing).stdout) == example
    checked = CliRunner().invoke(
        bayplan, ["validate", "--feature-gates=NodeReservation=true", "-"], input=result.stdout
    )
    assert (checked.exit_code, checked.stdout) == (0, "1 object validated: no problems\n")


@table(
    "options, spec",
    (
        "requests",
        ["--requests", "cpu=1,nvidia.com/gpu=8", "--requests", "memory=1Gi", "--owner", "a=b"],
        {"resources": {"cpu": "1", "nvidia.com/gpu": "8", "memory": "1Gi"}, "owner": {"labels": {"a": "b"}}},
    ),
    (
        "group",
        ["--cpu", "1", "--podgroup", "g", "--owner", "a=b,c=", "--priority", "-3", "--scheduler-name", "batch"],
        {
            "resources": {"cpu": "1"},
            "owner": {"labels": {"a": "b", "c": ""}, "podGroup": "g"},
            "priority": -3,
            "schedulerName": "batch",
        },
    ),
    (
        "class",
        ["--memory", "1Gi", "--podgroup", "g", "--priority-class", "high", "--ttl", "90m"],
        {
            "resources": {"memory": "1Gi"},
            "owner": {"podGroup": "g"},
            "priorityClassName": "high",
            "ttlSeconds": 5400,
        },
    ),
    ("seconds", ["--cpu", "1", "--owner", "a=b", "--ttl", "60"], {"ttlSeconds": 60, "resources": {"cpu": "1"}}),
)
def test_the_spec(options: list[str], spec: dict[str, Any]) -> None:
    """Each option is a field."""
    result = reserve("room", "-n", "shop", "--dry-run", *options)
    assert result.exit_code == 0, result.output
    body = yaml.safe_load(result.stdout)
    expected = {"count": 1, "owner": {"labels": {"a": "b"}}, "schedulerName": "bayplan"} | spec
    assert (body["metadata"], body["spec"]) == ({"name": "room", "namespace": "shop"}, expected)


@table(
    "options, message",
    ("requests", ["x", "--owner", "a=b"], "specify the requests of one pod with --cpu, --memory or --requests"),
    ("owner", ["x", "--cpu", "1"], "specify the pods that use the room with --owner, --podgroup or both"),
    ("form", ["x", "--cpu", "1", "--owner", "a"], '--owner: "a" must have the form LABEL=VALUE, such as app=train'),
    ("twice", ["x", "--requests", "cpu=1,cpu=2", "--owner", "a=b"], "--requests: cpu is repeated"),
    ("both", ["x", "--cpu", "1", "--requests", "cpu=2", "--owner", "a=b"], "--requests and --cpu both specify cpu"),
    ("priorities", [*TRAIN, "--priority", "1", "--priority-class", "a"], "only one of --priority and"),
    ("no time", [*TRAIN, "--ttl", "0"], "must be whole seconds, at least 1"),
    ("milliseconds", [*TRAIN, "--ttl", "1500ms"], "must be whole seconds, at least 1"),
    ("not a time", [*TRAIN, "--ttl", "soon"], 'write numbers with units, such as "15s"'),
    ("amount", ["x", "--cpu", "much", "--owner", "a=b"], "spec.resources.cpu: must be an amount of 0 or more"),
    ("name", ["A_b", "--cpu", "1", "--owner", "a=b"], "metadata.name: Invalid value"),
    ("all", [*TRAIN, "-A"], "-A lists NodeReservations; leave out the name"),
    ("no name", ["--cpu", "1"], "--cpu describes a new NodeReservation; name it"),
    ("nothing to create", ["--dry-run"], "--dry-run describes a new NodeReservation; name it"),
    ("two namespaces", ["-n", "a", "-A"], "-n a selects one namespace and -A all"),
)
def test_bad_input(options: list[str], message: str) -> None:
    """The message names the option and the remedy, and nothing is sent."""
    result = reserve(*options)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        yield made


async def send(api: FakeApi, directory: Path, *options: str) -> Result:
    """Run the command on the server."""
    kubeconfig = write_kubeconfig(directory / "kubeconfig", api.base_url)
    return await asyncio.to_thread(reserve, *options, f"--kubeconfig={kubeconfig}")


@table(
    "status, message, expected",
    ("taken", 409, 'nodereservations "train" already exists', "there is a NodeReservation"),
    ("namespace", 404, 'namespaces "default" not found', 'there is no namespace "default"; correct -n, or create it'),
    ("not served", 404, "the server could not find the resource", "apply crds/nodereservations.yaml, or upgrade"),
    ("forbidden", 403, "User may not create", "does not accept NodeReservation"),
    ("expired token", 401, "Unauthorized", f"HTTP 401: Unauthorized; {RENEW}"),
    ("webhook", 422, 'admission webhook "validate.bayplan.dev" denied the request', "denied the request"),
)
async def test_rejected(api: FakeApi, tmp_path: Path, status: int, message: str, expected: str) -> None:
    """The error has the reason of the API server, and the remedy."""
    api.on("POST", IN_DEFAULT, Response(status, {"kind": "Status", "message": message}))
    result = await send(api, tmp_path, *TRAIN)
    assert (result.exit_code, expected in result.stderr, result.stdout) == (1, True, ""), result.stderr


def reservation(name: str, spec: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    own = {"count": 4, "resources": {"cpu": 1}, "owner": {"labels": {"a": "b"}}, "ttlSeconds": 60, **(spec or {})}
    metadata = {"name": name, "namespace": "default", "creationTimestamp": "2026-11-28T12:00:00Z"}
    return {"metadata": metadata, "spec": own, **fields}


def condition(status: str, reason: str, message: str) -> dict[str, str]:
    time = "2026-11-28T12:00:05Z"
    return {"type": "Reserved", "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


HELD = {
    "phase": "Reserved",
    "reserved": 3,
    "consumed": 1,
    "nodes": [{"name": "node-1", "pods": 2}, {"name": "node-2", "pods": 1}],
    "conditions": [condition("True", "RoomHeld", "Room is held for 3 pods")],
}
PENDING = {"phase": "Pending", "conditions": [condition("False", "NoRoom", "0/2 nodes are available")]}


async def test_the_list(api: FakeApi, tmp_path: Path) -> None:
    """Each row has phase, nodes and the time of expiry; an object without a status and an unreadable one are listed."""
    objects = [
        reservation("b", status=PENDING, spec={"ttlSeconds": None}),
        reservation("a", status=HELD),
        reservation("new"),
        reservation("other", spec={"count": "many"}),
    ]
    api.on("GET", LIST, Response(body={"metadata": {"resourceVersion": "1"}, "items": objects}))
    result = await send(api, tmp_path)
    assert result.exit_code == 0, result.output
    assert [" ".join(line.split()) for line in result.stdout.splitlines()[:4]] == [
        "NAMESPACE NAME PHASE COUNT BOUND HELD NODES EXPIRES REASON",
        "default a Reserved 4 1 3 node-1 (2), node-2 (1) 2026-11-28T12:01:00Z RoomHeld",
        "default b Pending 4 0 0 - - NoRoom: 0/2 nodes are available",
        "default new - 4 0 0 - 2026-11-28T12:01:00Z -",
    ]
    assert "InvalidSpec: spec.count" in result.stdout
    assert "note: 2 without a phase: no operator has read them" in result.stderr
    document = json.loads((await send(api, tmp_path, "-o", "json")).stdout)
    assert document["reservations"][0] == {
        "namespace": "default",
        "name": "a",
        "phase": "Reserved",
        "count": 4,
        "reserved": 3,
        "consumed": 1,
        "nodes": {"node-1": 2, "node-2": 1},
        "until": "2026-11-28T12:01:00Z",
        "reason": "RoomHeld",
        "message": "Room is held for 3 pods",
        "priority": "0",
        "isImpossible": False,
    }


async def test_an_empty_list_of_a_namespace(api: FakeApi, tmp_path: Path) -> None:
    """With -n only that namespace is read, and an empty list is no empty table."""
    api.on("GET", IN_DEFAULT, Response(body={"metadata": {"resourceVersion": "1"}, "items": []}))
    result = await send(api, tmp_path, "-n", "default")
    assert (result.exit_code, result.stdout) == (0, "no NodeReservations\n")


@table(
    "status, expected",
    ("not served", 404, "the API server does not serve nodereservations; apply crds/nodereservations.yaml"),
    ("forbidden", 403, "you may not list nodereservations in all namespaces; name one with -n"),
    ("expired token", 401, f"GET {LIST}: HTTP 401: m; {RENEW}"),
)
async def test_the_list_is_not_readable(api: FakeApi, tmp_path: Path, status: int, expected: str) -> None:
    """The error names the remedy."""
    api.on("GET", LIST, Response(status, {"kind": "Status", "message": "m"}))
    result = await send(api, tmp_path)
    assert (result.exit_code, expected in result.stderr) == (1, True), result.stderr
