"""Law of files: whatever a file holds, a command that reads it ends with a documented exit code and a message.

Files are near-valid: objects of all kinds that are mutated along their schema, configurations, settings, conformance
cases, and records whose frames are mutated and then get valid checksums.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.recording import open_record
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.recording.record_file import RecordHeader, frame_of, start_of_file
from tests.operator.replaying.recorded_run import record_run
from tests.support.mutated_objects import mutated_object
from tests.support.presence import present

_HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    2**63,
    2**64,
    10**30,
    "",
    "x",
    "\x1b[2J",
    "a" * 300,
    [],
    {},
    [[]],
    {"a": None},
    [None],
    {"kind": "Pod"},
)
_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"disk": "ssd"}},
    "status": {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "20"}},
}
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "target", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
_POD_TEMPLATE = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
    "spec": {
        "containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    },
}
_CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
_JOB = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": _POD_TEMPLATE}
_WORKLOADS: tuple[dict[str, Any], ...] = (
    {"apiVersion": "batch/v1", "kind": "Job", "spec": _JOB},
    {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": _JOB}}},
    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, "template": _POD_TEMPLATE}},
    {"apiVersion": "v1", "kind": "ReplicationController", "spec": {"replicas": 2, "template": _POD_TEMPLATE}},
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {"ordinals": {"start": 1}, "template": _POD_TEMPLATE, "volumeClaimTemplates": [_CLAIM]},
    },
    {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": {
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": 2,
                    "dependsOn": [],
                    "template": {
                        "metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}},
                        "spec": _JOB,
                    },
                }
            ],
            "volumeClaimPolicies": [{"templates": [_CLAIM]}],
        },
    },
    {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 3,
                "leaderTemplate": _POD_TEMPLATE,
                "workerTemplate": _POD_TEMPLATE,
                "volumeClaimTemplates": [_CLAIM],
            },
        },
    },
)
_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": True, "leaseDuration": "15s"},
    "clientConnection": {"qps": 50, "burst": 100},
    "profiles": [
        {
            "schedulerName": "batch",
            "plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 2}], "disabled": [{"name": "*"}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
        }
    ],
    "extenders": [{"urlPrefix": "http://127.0.0.1:9", "filterVerb": "f", "managedResources": [{"name": "a.com/x"}]}],
}
_PROFILE = {
    "apiVersion": "bayplan.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": "batch"},
    "spec": {**_CONFIGURATION["profiles"][0], "pluginConfigRefs": []},  # type: ignore[index]  # a dict of dicts
}
_SETTINGS = {
    "clientQps": 50,
    "leaderElection": {"leaderElect": True},
    "featureGates": {},
    "serveAddress": "127.0.0.1:0",
}
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}


# -- contents ---------------------------------------------------------------------------------------------------------


def mutated(value: Any, chance: random.Random) -> Any:
    """Return a copy of plain data with one to three hostile values, lost values or repeated entries."""
    root = {"": copy.deepcopy(value)}
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(_places(root)))
        choice = chance.random()
        if choice < 0.7:
            container[key] = copy.deepcopy(chance.choice(_HOSTILE))
        elif choice < 0.85 and container is not root:
            del container[key]
        elif isinstance(container[key], list):
            container[key] = container[key] * 2
        elif isinstance(container[key], dict):
            container[key] = {**container[key], chance.choice(("x", "metadata", "spec", "")): chance.choice(_HOSTILE)}
    return root[""]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def manifests(chance: random.Random) -> bytes:
    """Return a cluster with mutated objects."""
    documents = [_NODE, _POD, *(mutated_object(chance) for _ in range(3))]
    if chance.random() < 0.5:
        documents.append(mutated(chance.choice((_PROFILE, _CONFIGURATION, documents[-1])), chance))
    if chance.random() < 0.2:
        documents = [mutated({"apiVersion": "v1", "kind": "List", "items": documents}, chance)]
    return _as_text(documents, chance)


def workloads(chance: random.Random) -> bytes:
    """Return a mutated workload, and sometimes objects that it names."""
    annotations = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "zone"} if chance.random() < 0.5 else {}
    meta = {"name": "w", "namespace": "n", "labels": {}, "annotations": annotations}
    documents = [mutated({**chance.choice(_WORKLOADS), "metadata": meta}, chance)]
    if chance.random() < 0.5:
        claim = {**_CLAIM, "apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": meta, "spec": {"minMember": 2}}
        documents.append(mutated(chance.choice((claim, group)), chance))
    return _as_text(documents, chance)


def _as_text(documents: list[Any], chance: random.Random) -> bytes:
    if len(documents) == 1 and chance.random() < 0.3:
        return json.dumps(documents[0]).encode()
    text = yaml.safe_dump_all(documents, allow_unicode=True)
    if chance.random() < 0.1:
        place = chance.randrange(len(text))
        text = (
            text[:place]
            + chance.choice(("\x00", "&a *a", "[" * 200, "\t", ": :", "!!python/object:os.system x", "%"))
            + text[place:]
        )
    return text.encode("utf-8", "replace")


def _of(valid: Any) -> Callable[[random.Random], bytes]:
    return lambda chance: _as_text([mutated(valid, chance)], chance)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordHeader, list[tuple[int, list[Any]]]]:
    """Return a record as plain data."""
    directory = tmp_path_factory.mktemp("record")
    record_run(directory, nodes=3, pods=6)
    record = open_record(directory)
    plain = [
        (frame.wall_microseconds, msgspec.json.decode(msgspec.json.encode(list(frame.entries))))
        for frame in record.frames()
    ]
    return record.header, plain


def mutated_record(header: RecordHeader, plain: list[tuple[int, list[Any]]], chance: random.Random) -> bytes:
    """Return a record with mutated frames that have valid checksums."""
    changed = msgspec.json.decode(msgspec.json.encode(header))
    if chance.random() < 0.2:
        changed = mutated(changed, chance)
    try:
        written = msgspec.convert(changed, RecordHeader)
    except msgspec.ValidationError:
        written = header
    content = start_of_file(written, 0)
    for wall, entries in plain:
        time, given_entries = wall, entries
        if chance.random() < 0.2:
            time = chance.choice((0, 1, 2**63, 2**64 - 1, 10**19))
        if chance.random() < 0.5:
            given_entries = mutated(entries, chance)
        # A frame that is not a list of entries becomes a list of a number.
        text = json.dumps(given_entries)
        encoded = text.encode()[1:-1] if text.startswith("[") else b"1"
        content += frame_of((encoded or b"1") + b",", time)
    return content


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reader:
    """A command with a file.

    Attributes:
        arguments: The arguments; ``FILE`` is replaced by the path.
        content: Generates the file; None for a record.
    """

    arguments: tuple[str, ...]
    content: Callable[[random.Random], bytes] | None


_BUNDLE = ("bundle", "--server", "127.0.0.1:1", "--output", "FILE.out")
_NODES = str(Path(__file__).resolve().parents[2] / "examples" / "simulate" / "cluster.yaml")
_EXPLAIN = ("explain", "--pod", "default/target")
READERS = {
    "simulate files": Reader(("simulate", "FILE", "--pods", "--nodes", "--gangs"), manifests),
    "simulate files, allowed": Reader(("simulate", "FILE", "--allow-invalid", "-o", "json"), manifests),
    "explain files": Reader((*_EXPLAIN, "-f", "FILE"), manifests),
    "explain files, allowed": Reader((*_EXPLAIN, "-f", "FILE", "--allow-invalid", "--others-placed"), manifests),
    "explain kubeconfig": Reader((*_EXPLAIN, "--offline", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "status kubeconfig": Reader(("status", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "fit files": Reader(("fit", "-f", "FILE", "--nodes-from", "FILE"), manifests),
    "fit files, workloads": Reader(("fit", "-f", "FILE", "--nodes-from", _NODES), workloads),
    "fit files, count": Reader(("fit", "-f", "FILE", "--nodes-from", _NODES, "--count", "3"), workloads),
    "fit nodes_from": Reader(("fit", "-f", "FILE", "--nodes-from", "FILE", "--max-new", "2"), manifests),
    "fit node_template": Reader(("fit", "-f", "FILE", "--nodes-from", "FILE", "--node-template", "FILE"), manifests),
    "fit kubeconfig": Reader(("fit", "-f", "FILE", "--offline", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "rebalance files": Reader(("rebalance", "--dry-run", "-f", "FILE", "--consolidate"), manifests),
    "rebalance kubeconfig": Reader(
        ("rebalance", "--dry-run", "--kubeconfig", "FILE", "--consolidate"), _of(_KUBECONFIG)
    ),
    "reserve kubeconfig": Reader(("reserve", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "diff files": Reader(("diff", "batch", "batch", "--cluster", "FILE"), manifests),
    "diff before": Reader(("diff", "FILE", "FILE", "--cluster", "FILE", "--allow-invalid"), manifests),
    "diff kubeconfig": Reader(("diff", "a", "b", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "validate files": Reader(("validate", "FILE"), manifests),
    "validate files, config": Reader(("validate", "FILE"), _of(_CONFIGURATION)),
    "validate files, profile": Reader(("validate", "FILE"), _of(_PROFILE)),
    "import-config file": Reader(("import-config", "FILE"), _of(_CONFIGURATION)),
    "run config_file": Reader(("run", "--config", "FILE", "--write-config-to", "-"), _of(_CONFIGURATION)),
    "run settings_file": Reader(("run", "--settings", "FILE", "--write-config-to", "-"), _of(_SETTINGS)),
    "replay path": Reader(("replay", "FILE"), None),
    "replay path, until": Reader(("replay", "FILE", "--until", "default/large"), None),
    "record show path": Reader(("record", "show", "FILE"), None),
    "record export path": Reader(("record", "export", "FILE", "FILE.out", "--pod", "default/large"), None),
    "bundle kubeconfig": Reader((*_BUNDLE, "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
    "bundle record": Reader((*_BUNDLE, "--record", "FILE"), None),
    "history kubeconfig": Reader(("history", "a", "--kubeconfig", "FILE"), _of(_KUBECONFIG)),
}
NOT_READ = {
    "explain file_pod": "is the name of a pod",
    "import-config output": "is written",
    "bundle output": "is written",
    "record export target": "is written",
    "replay profile": "is read as by diff before, after a record",
    "rollback kubeconfig": "is read as by history",
    "promote kubeconfig": "is read as by history",
    "diff after": "is read as by diff before",
    "run write_config_to": "is written",
    "run kubeconfig": "is read as by history, and the operator starts",
    "run record": "is a directory that is written",
    "run tls_cert_file": "is read when the operator serves, by tests/operator/serving",
    "run tls_private_key_file": "is read when the operator serves, by tests/operator/serving",
    "run extender_files_directory": "is read when an extender is made, by tests/operator/extenders",
}


def file_parameters(group: click.Group, prefix: str = "") -> set[str]:
    """Return the parameters of all commands that take a file, from their types and names."""
    found = set()
    for name in group.list_commands(click.Context(group)):
        command = present(group.get_command(click.Context(group), name))
        if isinstance(command, click.Group):
            found |= file_parameters(command, f"{prefix}{name} ")
            continue
        for parameter in command.params:
            words = f"{parameter.make_metavar(click.Context(command))} {parameter.name}".lower()
            if isinstance(parameter.type, click.Path) or re.search(r"(?<!pro)file|directory", words):
                found.add(f"{prefix}{name} {parameter.name}")
    return found


def test_every_parameter_with_a_file_is_in_a_table() -> None:
    """A new command or option that reads a file is fuzzed, or has a reason."""
    tables = {name.partition(",")[0] for name in READERS} | set(NOT_READ)
    # A profile of diff is a name or a file.
    assert file_parameters(bayplan) == tables - {"diff before", "diff after"}


def check(reader: Reader, content: bytes, path: Path) -> None:
    """Run a command on a file; it must end with a message and an exit code of the documentation."""
    file = path / "hostile"
    file.write_bytes(content)
    (path / "hostile.out").unlink(missing_ok=True)
    arguments = [each.replace("FILE", str(file)) for each in reader.arguments]
    try:
        result = CliRunner().invoke(bayplan, arguments)
    finally:
        asyncio.set_event_loop(None)
    problem = result.exception if not isinstance(result.exception, SystemExit) else None
    trace = "".join(traceback.format_exception(problem)) if problem is not None else ""
    assert problem is None, f"{arguments}\n{trace}\n{content[:4000]!r}"
    answers = range(10, 15) if arguments[0] in ("fit", "rebalance") else ()
    assert result.exit_code in (0, 1, 2, *answers), (arguments, result.exit_code)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_a_hostile_file_is_a_message(
    name: str,
    chance: random.Random,
    frames: tuple[RecordHeader, list[tuple[int, list[Any]]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No command ends with a traceback."""
    reader = READERS[name]
    content = mutated_record(*frames, chance) if reader.content is None else reader.content(chance)
    check(reader, content, tmp_path_factory.getbasetemp())


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=1000, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_a_thousand_hostile_files_are_messages(
    name: str,
    chance: random.Random,
    frames: tuple[RecordHeader, list[tuple[int, list[Any]]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No command ends with a traceback, in a longer run."""
    test_a_hostile_file_is_a_message.hypothesis.inner_test(name, chance, frames, tmp_path_factory)
