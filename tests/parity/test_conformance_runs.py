"""Tests of reading and running conformance cases, in several processes, and of their results."""

import gzip
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.extension_points import PostFilterPreview, PostFilterResult, PreemptionCandidate
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.runtime.post_filtering import PostFilterOutcome
from scheduler_core.runtime.scoring import PluginScores
from scheduler_core.snapshot.interning import ResourceNames
from scheduler_core.snapshot.pod_info import PodInfo
from tests.parity.conformance.attempt import attempt_case
from tests.parity.conformance.cases import IN_TREE_NAMES, decode_case, profile_of, read_lines
from tests.parity.conformance.results import result_document, result_line
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


def test_one_process_returns_results_line_by_line(tmp_path: Path) -> None:
    """One process returns each result before it reads the next line."""
    found = run_cases(write_lines(tmp_path, [case("first"), case("second")]))
    assert names([next(found)]) == ["first"]


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


def test_running_pods_use_resources() -> None:
    """A running pod uses resources of its node."""
    found = examine_case(
        pod=pod_json("p"), nodes=[node_json("full"), node_json("free")], pods=[pod_json("r", "4", nodeName="full")]
    )
    assert found.feasible == ("free",)


def test_terminated_pods_use_no_resources() -> None:
    """A terminated pod uses no resources."""
    terminated = pod_json("r", "4", nodeName="n", status={"phase": "Failed"})
    assert examine_case(pod=pod_json("p"), nodes=[node_json("n")], pods=[terminated]).feasible == ("n",)


def test_nominated_pods_use_resources() -> None:
    """The requests of a nominated pod with higher priority are not free."""
    nominated = pod_json("r", "4", priority=10, status={"nominatedNodeName": "n"})
    found = examine_case(pod=pod_json("p", priority=1), nodes=[node_json("n")], pods=[nominated])
    assert found.rejected["n"].reasons == ("Insufficient cpu",)


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


def test_cases_are_independent() -> None:
    """Each case has its own cluster."""
    examine_case(pod=pod_json("p"), nodes=[node_json("n")], pods=[pod_json("r", "4", nodeName="n")])
    assert examine_case(pod=pod_json("p"), nodes=[node_json("n")]).feasible == ("n",)


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


NOT_RUN: dict[str, Any] = {
    "gated": None,
    "prefilter": None,
    "prefilterNodes": None,
    "nominatedOnly": False,
    "filter": {},
    "feasible": [],
    "scores": {},
    "totals": {},
    "best": [],
    "message": None,
    "postFilterCode": "",
    "postFilter": None,
    "preemptionMessage": None,
    "candidates": {},
    "clearedNominations": [],
}


def examination(**found: Any) -> Examination:
    return Examination(PodInfo(pod(), ResourceNames()), **found)


def named_pod(name: str) -> PodInfo:
    return PodInfo(pod(name), ResourceNames())


def scores(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@table(
    "found, fields",
    ("empty", examination(), {}),
    (
        "gated",
        examination(gate=Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("b", "a"), "SchedulingGates")),
        {"gated": {"code": "UnschedulableAndUnresolvable", "plugin": "SchedulingGates", "reasons": ["a", "b"]}},
    ),
    (
        "rejected as a whole",
        examination(
            pre_filter=Status(Code.UNSCHEDULABLE, ("no",), "P"), pre_filter_nodes=frozenset(), message="0/1 no."
        ),
        {"prefilter": {"status": "Unschedulable", "plugin": "P", "reasons": ["no"]}, "message": "0/1 no."},
    ),
    (
        "rejected by nodes",
        examination(
            pre_filter_nodes=frozenset({"b", "a"}),
            rejected={"b": Status(Code.UNSCHEDULABLE, ("y", "x"), "F")},
            message="0/1 no.",
        ),
        {
            "prefilterNodes": ["a", "b"],
            "filter": {"b": {"code": "Unschedulable", "plugin": "F", "reasons": ["x", "y"]}},
            "message": "0/1 no.",
        },
    ),
    (
        "scored",
        examination(
            feasible=("b", "a"),
            scores={"S": PluginScores(scores(7, 3), scores(100, 42), scores(200, 84))},
            totals=scores(200, 84),
            best=("b",),
            nominated_only=True,
        ),
        {
            "nominatedOnly": True,
            "feasible": ["a", "b"],
            "scores": {"S": {"b": {"raw": 7, "weighted": 200}, "a": {"raw": 3, "weighted": 84}}},
            "totals": {"b": 200, "a": 84},
            "best": ["b"],
        },
    ),
    ("not scored", examination(feasible=("a",), best=("a",)), {"feasible": ["a"], "best": ["a"]}),
    (
        "preempting",
        examination(
            message="0/1 no. preempting",
            post_filter=PostFilterOutcome(Status(Code.SUCCESS, ("preempting",)), "a"),
            preemption=PostFilterPreview(
                PostFilterResult(SUCCESS, "a"),
                (
                    PreemptionCandidate("a", (named_pod("y"), named_pod("x")), 1),
                    PreemptionCandidate("b", (named_pod("z"),)),
                ),
                (named_pod("y"), named_pod("x")),
                (named_pod("w"),),
            ),
        ),
        {
            "message": "0/1 no. preempting",
            "postFilterCode": "Success",
            "postFilter": {"nominatedNode": "a", "victims": ["default/x", "default/y"]},
            "preemptionMessage": "preempting",
            "candidates": {
                "a": {"victims": ["default/y", "default/x"], "pdbViolations": 1},
                "b": {"victims": ["default/z"], "pdbViolations": 0},
            },
            "clearedNominations": ["default/w"],
        },
    ),
    (
        "not preempting",
        examination(message="0/1 no. x", post_filter=PostFilterOutcome(Status(Code.UNSCHEDULABLE, ("x",)), "")),
        {"message": "0/1 no. x", "postFilterCode": "Unschedulable", "preemptionMessage": "x"},
    ),
    ("error", examination(error="no luck", message="no luck"), {"error": "no luck", "message": "no luck"}),
)
def test_result_document(found: Examination, fields: dict[str, Any]) -> None:
    """Each part of an examination has its field, and parts that were not reached are null or empty."""
    assert result_document("c", found) == {"name": "c", **NOT_RUN, **fields}


def test_a_result_is_one_line() -> None:
    """A result is one line of JSON."""
    line = result_line("c", examination())
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"name": "c", **NOT_RUN}


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
