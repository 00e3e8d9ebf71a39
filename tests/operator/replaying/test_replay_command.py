"""Tests of ``bayplan replay`` and ``bayplan record`` on records of a cluster in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.recording.record_file import RecordReader, frame_of, start_of_file
from tests.operator.replaying.recorded_run import LARGE, record_long_searches, record_parts, record_run

PACKING = """\
apiVersion: bayplan.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: default-scheduler}
spec:
  pluginConfig:
    - name: NodeResourcesFit
      args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""


def run(*arguments: object) -> Result:
    """Run a command."""
    return CliRunner().invoke(bayplan, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small record."""
    return record_run(tmp_path_factory.mktemp("record"))


def test_all_decisions_are_equal(file: Path) -> None:
    """The output has the number and the kinds of decisions."""
    found = run("replay", file)
    assert found.exit_code == 0, found.output
    assert found.output.startswith("41 decisions, all equal (40 placements, 1 rejections; recorded by Bayplan 1.0, ")


@pytest.mark.parametrize(
    ("count", "recorded"),
    [
        pytest.param(300, {"has_clients": True}, id="slices beside clients"),
        pytest.param(4_000, {"nodes": 100}, id="4,000"),
        pytest.param(20_000, {"nodes": 100}, id="20,000", marks=pytest.mark.nightly),
    ],
)
def test_many_decisions_are_equal(tmp_path: Path, count: int, recorded: dict[str, Any]) -> None:
    """Each decision is computed again; turns of the event loop for clients between slices are not in the record."""
    found = run("replay", record_run(tmp_path, pods=count, **recorded))
    assert found.exit_code == 0, found.output
    assert found.output.startswith(f"{count + 1} decisions, all equal")


@pytest.mark.parametrize("is_explained", [False, True], ids=["alone", "explained"])
def test_cycles_in_slices_are_replayed(tmp_path: Path, *, is_explained: bool) -> None:
    """A replay interrupts cycles where they were interrupted, and gives up the same ones after the same steps."""
    file, slices = record_long_searches(tmp_path, is_explained=is_explained)
    assert slices > 6
    shown = run("record", "show", file).output
    assert "given up after 9000 steps" in shown
    replayed = run("replay", file)
    assert replayed.exit_code == 0, replayed.output


def test_attempts_in_parts_are_replayed(tmp_path: Path) -> None:
    """Parts end where they ended, so that attempts that share what is stored are charged for the same steps."""
    file, parts = record_parts(tmp_path)
    assert parts > 3
    shown = run("record", "show", file).output
    assert "given up" not in shown, "one attempt alone would be given up"
    replayed = run("replay", file)
    assert replayed.exit_code == 0, replayed.output


def test_a_decision_is_explained(file: Path) -> None:
    """With --until the pod is explained with the state of its decision."""
    shown = json.loads(run("record", "show", file, "--pod", "default/p7", "-o", "json").output)
    explained = json.loads(run("replay", file, "--until", "default/p7", "-o", "json").output)
    assert explained["node"] == shown["node"]
    assert shown["decision"] == "Placed"
    assert "Insufficient cpu" in run("replay", file, "--until", LARGE).output


def test_interactive_explanations(file: Path) -> None:
    """Interactively, other pods are explained with the same state, and unknown names are reported."""
    entered = "default/p3\ndefault/p9\npodgroup/default/none\nnonsense\n\ndefault/p4\n"
    arguments = ["replay", str(file), "--until", "default/p7", "--interactive"]
    found = CliRunner().invoke(bayplan, arguments, input=entered)
    assert found.exit_code == 0, found.output
    shown = [line for line in found.output.splitlines() if line.startswith("Pod ")]
    assert [line.split()[1] for line in shown] == ["default/p7", "default/p3", "default/p9"]
    assert "is being bound to node" in shown[1]
    assert "would be scheduled to node" in shown[2]
    assert "podgroup/default/none" in found.output
    assert "nonsense" in found.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--until", "default/missing"], "has no decision 1 on pod default/missing"),
        (["--until", "default/p7", "--attempt", "2"], "has no decision 2 on pod default/p7"),
        (["--until", "podgroup/p7"], "decisions of a record are on pods"),
        (["--until", "shop/p7", "-n", "default"], '"shop/p7" is in namespace shop, and -n is default'),
        (["--interactive"], "requires --until"),
    ],
)
def test_invalid_options(file: Path, arguments: list[str], message: str) -> None:
    """An invalid option is an error with the remedy."""
    found = run("replay", file, *arguments)
    assert found.exit_code == 2
    assert message in found.output


def test_namespaces_of_names(file: Path, tmp_path: Path) -> None:
    """A pod without a namespace is in that of -n, otherwise in "default"; -n alone selects the decisions of one."""
    every = run("record", "show", file).output
    assert run("record", "show", file, "-A").output == run("record", "show", file, "-n", "default").output == every
    assert run("record", "show", file, "-n", "shop").output == ""
    one = run("record", "show", file, "--pod", "default/p7").output
    assert 0 < len(one) < len(every)
    assert run("record", "show", file, "--pod", "p7").output == one
    assert run("record", "show", file, "--pod", "p7", "-n", "shop").output == ""
    assert run("record", "show", file, "-A", "-n", "shop").exit_code == 2
    exported = [
        run("record", "export", file, tmp_path / name.replace("/", "-"), "--pod", name) for name in ("p7", "default/p7")
    ]
    assert [each.exit_code for each in exported] == [0, 0]
    assert (tmp_path / "p7").read_bytes() == (tmp_path / "default-p7").read_bytes()
    assert (
        run("record", "export", file, tmp_path / "none", "--until", "2000-01-01T00:00:00Z", "-n", "shop").exit_code == 2
    )
    until = [run("replay", file, "--until", name, "-o", "json").output for name in ("p7", "default/p7")]
    assert until[0] == until[1] != ""
    assert "on pod shop/p7" in run("replay", file, "--until", "p7", "-n", "shop").output


def test_another_profile_is_compared(file: Path, tmp_path: Path) -> None:
    """The decisions of another profile are compared with the recorded ones on the same state."""
    (tmp_path / "packing.yaml").write_text(PACKING)
    found = run("replay", file, "--profile", tmp_path / "packing.yaml")
    assert found.exit_code == 0, found.output
    assert "41 decisions, all equal" in found.output
    assert "OtherNode" in found.output
    assert "default/p" in found.output
    (tmp_path / "other.yaml").write_text(PACKING.replace("default-scheduler", "unused"))
    missing = run("replay", file, "--profile", tmp_path / "other.yaml")
    assert missing.exit_code == 2
    assert 'no decision of schedulerName "unused"' in missing.output


def test_an_exported_record_is_replayed(file: Path, tmp_path: Path) -> None:
    """An exported record ends after the pod's decisions and replays without differences."""
    target = tmp_path / "cut.bpr"
    assert run("record", "export", file, target, "--pod", "default/p7").exit_code == 0
    assert target.stat().st_size < file.stat().st_size
    found = run("replay", target)
    assert found.exit_code == 0, found.output
    assert int(found.output.split()[0]) >= 8
    assert run("record", "export", file, target, "--pod", "default/missing").exit_code == 2
    assert run("record", "export", file, target, "--until", "2000-01-01T00:00:00Z").exit_code == 2


def test_a_truncated_record_is_replayed(file: Path, tmp_path: Path) -> None:
    """A truncated record is replayed up to its end, with a note."""
    cut = tmp_path / "cut.bpr"
    cut.write_bytes(file.read_bytes()[:-9])
    found = run("replay", cut)
    assert found.exit_code == 0, found.output
    assert "note: " in found.output
    assert "the file ends within a frame" in found.output


def test_the_first_changed_decision_is_shown(file: Path, tmp_path: Path) -> None:
    """The first different decision is shown with both sides, and the exit code is 1."""
    with file.open("rb") as content:
        reader = RecordReader(content, str(file))
        payloads = [b"".join(_encoded(entry) for entry in frame.entries) for frame in reader.frames()]
    changed = tmp_path / "changed.bpr"
    frames = b"".join(frame_of(each.replace(b'"0/5 nodes', b'"1/5 nodes'), 1) for each in payloads)
    changed.write_bytes(start_of_file(reader.header, 1) + frames)
    found = run("replay", changed)
    assert found.exit_code == 1, found.output
    assert "1 diagnoses that changed" in found.output
    assert "recorded: pod default/large is rejected by profile default-scheduler: 1/5 nodes" in found.output
    assert "computed: pod default/large is rejected by profile default-scheduler: 0/5 nodes" in found.output


def test_every_other_node_is_listed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod with another node is listed, and the replay continues from the recorded node."""
    score = NodeResourcesFit.score

    def reversed_score(self: NodeResourcesFit, *arguments: Any) -> Any:
        return 100 - score(self, *arguments)

    monkeypatch.setattr(NodeResourcesFit, "score", reversed_score)
    found = run("replay", file)
    assert found.exit_code == 1, found.output
    moved = re.findall(r"recorded: pod (\S+) on node (n\d),.*\ncomputed: pod (\S+) on node (n\d),", found.output)
    assert len(moved) > 5
    assert all(pod == other and node != chosen for pod, node, other, chosen in moved)
    equal = int(found.output.split()[0])
    assert equal + len(moved) == 41, found.output
    assert f"{len(moved)} of them on other nodes, 0 diagnoses that changed" in found.output
    assert "are equal, then one differs" not in found.output


def _encoded(entry: object) -> bytes:
    return msgspec.json.encode(entry) + b","
