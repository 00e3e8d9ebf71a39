"""Tests of reading conformance cases."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from tests.parity.conformance.cases import IN_TREE_NAMES, decode_case, profile_of, read_lines
from tests.support.tables import table

CASE = {"name": "c", "pod": {"metadata": {"name": "p"}}}
LINES = b'{"a": 1}\n\n{"b": 2}\n'


def with_profile(**profile: Any) -> bytes:
    """Return a case whose configuration has one profile."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return json.dumps({**CASE, "profile": configuration}).encode()


@table("content", ("plain", LINES), ("gzip", gzip.compress(LINES)))
def test_read_lines_of_files(tmp_path: Path, content: bytes) -> None:
    """Plain and compressed files are read, and empty lines are skipped."""
    file = tmp_path / "cases"
    file.write_bytes(content)
    assert list(read_lines(str(file))) == [b'{"a": 1}\n', b'{"b": 2}\n']


@table("content", ("plain", LINES), ("gzip", gzip.compress(LINES)))
def test_read_lines_of_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A dash means standard input, compressed or not."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert len(list(read_lines("-"))) == 2


@table(
    "name, words",
    ("missing file", "gone.jsonl", "No such file or directory"),
    ("truncated file", "cut.jsonl.gz", "end-of-stream"),
)
def test_an_unreadable_file(tmp_path: Path, name: str, words: str) -> None:
    """A missing or truncated file is a problem with its name."""
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(LINES)[:-9])
    with pytest.raises(ConfigError, match=words) as caught:
        list(read_lines(str(tmp_path / name)))
    assert caught.value.problems[0].path.endswith(name)


@table(
    "document",
    ("case alone", CASE),
    ("wrapped case", {"case": CASE}),
    ("case and expected result", {"case": CASE, "expect": {"name": "c", "message": None}}),
)
def test_decode_case(document: dict[str, Any]) -> None:
    """A line is a case, or contains a case and its expected result."""
    case = decode_case(json.dumps(document).encode())
    assert (case.name, case.pod.metadata.name) == ("c", "p")


@table(
    "line, words",
    ("invalid JSON", b"{", "truncated"),
    ("no pod", b'{"case": {}}', "missing required field `pod`"),
    ("invalid pod", b'{"pod": {"metadata": {"name": 1}}}', "Expected `str`"),
    ("not an object", b"[]", "Expected `object`"),
)
def test_a_line_that_is_not_a_case(line: bytes, words: str) -> None:
    """A line that is not a case is an error."""
    with pytest.raises(ConfigError, match=words):
        decode_case(line)


def test_the_default_profile_is_used() -> None:
    """Without a configuration the default profile is used."""
    profile = profile_of(decode_case(json.dumps(CASE).encode()), in_tree_registry())
    assert profile.config.document() == {"schedulerName": "default-scheduler"}


def test_unregistered_plugins_are_removed() -> None:
    """A known plugin that is not registered is removed and reported once, and the rest of the profile stays."""
    enabled = [{"name": "NodeAffinity", "weight": 5}, {"name": "InterPodAffinity"}]
    line = with_profile(
        plugins={"score": {"enabled": enabled, "disabled": [{"name": "*"}]}, "preScore": {"enabled": enabled}}
    )
    registry = Registry(plugin for name in ("NodeAffinity", "NodeName") if (plugin := in_tree_registry().get(name)))
    profile = profile_of(decode_case(line), registry)
    assert profile.left_out == ("InterPodAffinity",)
    assert profile.config.document()["plugins"] == {
        "score": {"enabled": [{"name": "NodeAffinity", "weight": 5}], "disabled": [{"name": "*"}]},
        "preScore": {"enabled": [{"name": "NodeAffinity", "weight": 5}]},
    }


def test_unknown_plugins_stay() -> None:
    """An unknown plugin stays and is rejected when the profile is built."""
    line = with_profile(plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}})
    profile = profile_of(decode_case(line), in_tree_registry())
    assert profile.left_out == ()
    assert profile.config.plugins.score.enabled[0].name == "NoSuchPlugin"


def test_every_registered_plugin_is_known() -> None:
    """Every in-tree plugin has the name of a kube-scheduler plugin, except those of scheduler-plugins."""
    assert set(in_tree_registry()) - {"Coscheduling"} <= IN_TREE_NAMES


@table(
    "line, path",
    ("no profile for the pod", with_profile(schedulerName="another"), "profile.profiles"),
    ("invalid", with_profile(percentageOfNodesToScore=101), "profiles[0].percentageOfNodesToScore"),
)
def test_an_invalid_profile_is_a_problem(line: bytes, path: str) -> None:
    """A configuration that cannot be used is a problem with its path."""
    with pytest.raises(ConfigError) as caught:
        profile_of(decode_case(line), in_tree_registry())
    assert caught.value.problems[0].path == path
