"""Tests of reading conformance cases."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from bayplan.conformance.cases import IN_TREE_NAMES, decode_case, profile_of, read_lines

from scheduler_core.errors import ConfigError
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry

CASE = {"name": "c", "pod": {"metadata": {"name": "p"}}}
LINES = b'{"a": 1}\n\n{"b": 2}\n'


def with_profile(**profile: Any) -> bytes:
    """Return a case whose configuration has that one profile."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return json.dumps({**CASE, "profile": configuration}).encode()


@pytest.mark.parametrize(
    "content", [pytest.param(LINES, id="plain"), pytest.param(gzip.compress(LINES), id="gzip whatever its name")]
)
def test_reads_files(tmp_path: Path, content: bytes) -> None:
    """Plain and compressed files contain the same lines; empty ones are skipped."""
    file = tmp_path / "cases"
    file.write_bytes(content)
    assert list(read_lines(str(file))) == [b'{"a": 1}\n', b'{"b": 2}\n']


@pytest.mark.parametrize("content", [pytest.param(LINES, id="plain"), pytest.param(gzip.compress(LINES), id="gzip")])
def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A dash stands for standard input, compressed or not."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert len(list(read_lines("-"))) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("gone.jsonl", "No such file or directory", id="no file"),
        pytest.param("cut.jsonl.gz", "end-of-stream", id="half a file"),
    ],
)
def test_an_unreadable_file(tmp_path: Path, name: str, words: str) -> None:
    """A missing or broken file is a problem with its name."""
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(LINES)[:-9])
    with pytest.raises(ConfigError, match=words) as caught:
        list(read_lines(str(tmp_path / name)))
    assert caught.value.problems[0].path.endswith(name)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(CASE, id="bare"),
        pytest.param({"case": CASE}, id="case"),
        pytest.param({"case": CASE, "expect": {"name": "c", "message": None}}, id="case and answer"),
    ],
)
def test_decodes_a_case(document: dict[str, Any]) -> None:
    """A line is a case, or contains one beside the expected result."""
    case = decode_case(json.dumps(document).encode())
    assert (case.name, case.pod.metadata.name) == ("c", "p")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(b"{", "truncated", id="no JSON"),
        pytest.param(b'{"case": {}}', "missing required field `pod`", id="no pod"),
        pytest.param(b'{"pod": {"metadata": {"name": 1}}}', "Expected `str`", id="a bad pod"),
        pytest.param(b"[]", "Expected `object`", id="no object"),
    ],
)
def test_a_line_that_is_not_a_case(line: bytes, words: str) -> None:
    """The error says that it is not a case."""
    with pytest.raises(ConfigError, match=words):
        decode_case(line)


def test_no_profile_is_the_default_one() -> None:
    """Without a configuration the default profile is used."""
    profile = profile_of(decode_case(json.dumps(CASE).encode()), in_tree_registry())
    assert profile.config.document() == {"schedulerName": "default-scheduler"}


def test_leaves_out_plugins_that_are_known_and_not_built() -> None:
    """A known plugin that is not registered is removed and named once; the rest of the profile stays."""
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


def test_keeps_unknown_plugins() -> None:
    """An unknown name is not the reference's and is rejected when the profile is built."""
    line = with_profile(plugins={"score": {"enabled": [{"name": "NoSuchPlugin"}]}})
    profile = profile_of(decode_case(line), in_tree_registry())
    assert profile.left_out == ()
    assert profile.config.plugins.score.enabled[0].name == "NoSuchPlugin"


def test_every_registered_plugin_is_known() -> None:
    """Every in-tree plugin exists in kube-scheduler under the same name, except those of scheduler-plugins."""
    assert set(in_tree_registry()) - {"Coscheduling"} <= IN_TREE_NAMES


@pytest.mark.parametrize(
    ("line", "path"),
    [
        pytest.param(with_profile(schedulerName="another"), "profile.profiles", id="nobody serves the pod"),
        pytest.param(with_profile(percentageOfNodesToScore=101), "profiles[0].percentageOfNodesToScore", id="invalid"),
    ],
)
def test_an_invalid_profile(line: bytes, path: str) -> None:
    """A configuration that cannot be used is a problem with its path."""
    with pytest.raises(ConfigError) as caught:
        profile_of(decode_case(line), in_tree_registry())
    assert caught.value.problems[0].path == path
