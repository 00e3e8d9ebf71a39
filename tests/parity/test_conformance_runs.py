"""Tests of reading and running conformance cases, in several processes, and of ``python -m tests.parity.conformance``.

``test_conformance.py`` compares all parts of the results of thousands of cases.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scheduler_core.errors import ConfigError
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.extension_points import PostFilterPreview, PostFilterResult
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.runtime.post_filtering import PostFilterOutcome
from scheduler_core.snapshot.interning import ResourceNames
from scheduler_core.snapshot.pod_info import PodInfo
from tests.parity.conformance.__main__ import main
from tests.parity.conformance.attempt import attempt_case
from tests.parity.conformance.cases import IN_TREE_NAMES, decode_case, profile_of, read_lines
from tests.parity.conformance.results import result_line
from tests.parity.conformance.runs import CaseResults, run_cases
from tests.support.builders import pod
from tests.support.tables import table

MANY = 300


def write_lines(folder: Path, lines: Sequence[object]) -> str:
    """Write a file with one JSON document per line, strings unchanged, and return its path."""
    file = folder / "cases.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(file)


def case(name: str) -> dict[str, object]:
    """Return a case with a pod that fits on the only node."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"name": name, "nodes": [node], "pod": {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}}


def names(results: Sequence[CaseResults]) -> list[str]:
    """Return the names of the cases with a result, in order."""
    return [json.loads(line)["name"] for each in results for line in each.output.splitlines()]


@table(
    "workers, count",
    ("one-process", 1, 30),
    ("no-cases", 2, 0),
    ("too-few-for-several-processes", 2, 30),
    ("two-processes", 2, MANY),
    ("three-processes", 3, MANY),
)
def test_results_have_the_order_of_the_lines(tmp_path: Path, workers: int, count: int) -> None:
    """Results have the order of the lines, whatever the number of processes."""
    wanted = [f"case-{number}" for number in range(count)]
    assert names(list(run_cases(write_lines(tmp_path, [case(name) for name in wanted]), workers))) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_an_invalid_line_is_reported(tmp_path: Path, workers: int) -> None:
    """An invalid line is reported with its number and name, and the other lines have results."""
    lines: list[object] = [case(f"case-{number}") for number in range(MANY)]
    lines[200] = "{"
    lines[201] = case("odd") | {"profile": {"kind": "Nonsense"}}
    found = list(run_cases(write_lines(tmp_path, lines), workers))
    assert len(names(found)) == MANY - 2
    problems = [problem for each in found for problem in each.problems]
    assert [(number, name) for number, name, _ in problems] == [(201, ""), (202, "odd")]


def node_json(name: str, cpu: str = "4") -> dict[str, Any]:
    """Return a node with this much CPU."""
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}


def pod_json(name: str, cpu: str = "1", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that requests this much CPU."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def examine_case(**case: Any) -> Examination:
    """Run a case and return its examination."""
    line = json.dumps({"name": "c", **case}).encode()
    return attempt_case(decode_case(line), in_tree_registry(), default_plugins()).examination


def test_nominated_pods_of_other_profiles_use_resources() -> None:
    """The requests of a nominated pod of another profile of the case are not free, as in kube-scheduler."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}],
    }
    nominated = pod_json("r", "4", priority=10, schedulerName="a", status={"nominatedNodeName": "n"})
    pod = pod_json("p", priority=1, schedulerName="b")
    found = examine_case(pod=pod, nodes=[node_json("n")], pods=[nominated], profile=profile)
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


def test_all_nodes_are_evaluated() -> None:
    """All nodes are evaluated, whatever percentage the case's configuration has."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 1,
    }
    nodes = [node_json(f"n{number}") for number in range(120)]
    assert len(examine_case(pod=pod_json("p"), nodes=nodes, profile=profile).feasible) == 120


def test_problems_of_plugins_have_their_path_in_the_configuration() -> None:
    """A problem of a plugin has its path in the configuration."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": "a"},
            {"schedulerName": "b", "plugins": {"filter": {"enabled": [{"name": "Nobody"}]}}},
        ],
    }
    with pytest.raises(ConfigError) as caught:
        examine_case(pod=pod_json("p", schedulerName="b"), nodes=[node_json("n")], pods=[], profile=profile)
    assert [problem.path for problem in caught.value.problems] == ["profiles[1].plugins.filter.enabled[0].name"]


def test_what_the_cases_lack_is_part_of_the_result() -> None:
    """A result is one line of JSON, with errors, and with the nominations that a preemption would clear."""
    victim, withdrawn = (PodInfo(pod(name), ResourceNames()) for name in ("victim", "withdrawn"))
    plan = PostFilterPreview(PostFilterResult(SUCCESS, "a"), (), (victim,), (withdrawn,))
    found = Examination(
        PodInfo(pod(), ResourceNames()),
        error="no luck",
        post_filter=PostFilterOutcome(Status(Code.SUCCESS), "a"),
        preemption=plan,
    )
    line = result_line("c", found)
    assert (line[-1:], line.count(b"\n")) == (b"\n", 1)
    document = json.loads(line)
    assert (document["error"], document["clearedNominations"]) == ("no luck", ["default/withdrawn"])
    not_acting = replace(found, post_filter=PostFilterOutcome(Status(Code.UNSCHEDULABLE), ""))
    assert json.loads(result_line("c", not_acting))["clearedNominations"] == []


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


# -- the command ----------------------------------------------------------------------------------------------------


def run_command(text: str) -> Result:
    """Run the command on lines of cases."""
    return CliRunner().invoke(main, ["-"], input=text)


def line_of(name: str, **fields: object) -> str:
    return json.dumps({**CASE, "name": name, **fields}) + "\n"


def test_invalid_cases_are_skipped() -> None:
    """An invalid case is reported with its place, empty lines are skipped, and the exit code is 1."""
    result = run_command(line_of("first") + "\n{}\n" + line_of("third", profile={"kind": "x"}) + line_of("last"))
    assert result.exit_code == 1
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["first", "last"]
    errors = result.stderr.splitlines()
    assert errors[0].startswith("standard input, line 2: is not a case: ")
    assert errors[1].startswith("standard input, line 3 (third): ")
    assert errors[2] == "2 cases could not be run"


def test_an_unsupported_plugin_is_noted_once() -> None:
    """An unsupported plugin in the profiles of the cases is noted once."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "GangScheduling"}]}}}],
    }
    result = run_command(line_of("a", profile=profile) + line_of("b", profile=profile))
    assert result.exit_code == 0
    assert (
        result.stderr == "note: plugin GangScheduling is not supported and is removed from the profiles of the cases\n"
    )


def test_a_missing_file_is_invalid_input() -> None:
    """A missing file is invalid input."""
    result = CliRunner().invoke(main, ["gone.jsonl"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.jsonl: cannot be read" in result.stderr
