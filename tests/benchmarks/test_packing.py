"""The packing benchmark with a small trace: outcomes, and errors that name file, row and column."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from bayplan_example_plugins.gpu_shares.args import TypicalPod

from benchmarks.packing.__main__ import PROFILES, main
from benchmarks.packing.trace import (
    NODES_FILE,
    PODS_FILE,
    Trace,
    TraceError,
    TraceNode,
    TracePod,
    in_order,
    read_trace,
    sampled,
    typical_pods,
)
from tests.support.tables import table

NODE = {"sn": "node-0", "cpu_milli": "32000", "memory_mib": "65536", "gpu": "2", "model": "A"}
POD = {
    "name": "pod-0",
    "cpu_milli": "4000",
    "memory_mib": "8192",
    "num_gpu": "1",
    "gpu_milli": "500",
    "gpu_spec": "",
    "qos": "LS",
    "creation_time": "0",
}


def write(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def nodes() -> list[dict[str, str]]:
    found = [{**NODE, "sn": f"node-{number}"} for number in range(6)]
    found += [{**NODE, "sn": f"big-{number}", "gpu": "4", "model": "B"} for number in range(2)]
    return [*found, {**NODE, "sn": "plain", "gpu": "0", "model": "nan"}]


def pods() -> list[dict[str, str]]:
    rng = random.Random(1)
    found = []
    for number in range(60):
        gpus, milli = rng.choice([(0, 0), (1, 300), (1, 500), (1, 700), (1, 1000), (2, 1000)])
        row = {**POD, "name": f"pod-{number}", "num_gpu": str(gpus), "gpu_milli": str(milli)}
        row["gpu_spec"] = "B" if number % 10 == 3 else "A|B" if number % 10 == 4 else ""
        row["creation_time"] = str(1000 - number)
        found.append(row)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a trace of 8 nodes with 20 GPUs, one node without GPUs, and 60 pods."""
    write(tmp_path / NODES_FILE, nodes())
    write(tmp_path / PODS_FILE, pods())
    return tmp_path


def test_all_profiles_are_replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same pods arrive for each profile, and allocated plus fragmented GPUs never exceed the capacity."""
    assert main([str(folder), "--draws", "2", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["profile"] for row in document["summary"]} == set(PROFILES)
    assert [(each["seed"], each["profile"]) for each in document["outcomes"]] == [
        (seed, name) for seed in range(2) for name in PROFILES
    ]
    for seed in range(2):
        own = [each for each in document["outcomes"] if each["seed"] == seed]
        assert len({(each["arrived"], each["arrived_gpus"]) for each in own}) == 1
    for each in document["outcomes"]:
        assert each["capacity_gpus"] == 20
        assert 20 <= each["arrived_gpus"] < 22
        assert 10 < each["allocated_gpus"] <= 20
        assert each["pending"] > 0 or each["allocated_gpus"] == each["arrived_gpus"]
        assert 0 <= each["fragmented_gpus"] <= 20 - each["allocated_gpus"] + 1e-9


def test_the_table_has_the_published_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published figures are shown only for the default trace at full load."""
    assert main([str(folder), "--draws", "1", "--profiles", "Fragmentation"]) == 0
    assert "95.2" in capsys.readouterr().out
    assert main([str(folder), "--draws", "1", "--profiles", "Fragmentation", "--load", "50"]) == 0
    assert "95.2" not in capsys.readouterr().out


def test_light_load_is_fully_allocated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At a third of the capacity, in the order of the trace, no pod is pending."""
    arguments = [str(folder), "--load", "30", "--arrivals", "trace", "--draws", "1", "-o", "json"]
    assert main(arguments) == 0
    for each in json.loads(capsys.readouterr().out)["outcomes"]:
        assert (each["pending"], each["allocated_gpus"]) == (0, each["arrived_gpus"])


def test_stored_results_are_not_computed_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run reads the outcomes of the same arrivals and adds the missing ones."""
    stored = folder / "results.jsonl"
    arguments = [str(folder), "--profiles", "BestFit", "--results", str(stored), "-o", "json"]
    assert main([*arguments, "--draws", "1"]) == 0
    first = json.loads(capsys.readouterr().out)["outcomes"]
    assert main([*arguments, "--draws", "2"]) == 0
    second = json.loads(capsys.readouterr().out)["outcomes"]
    assert second[:1] == first
    assert len(second) == len(stored.read_text().splitlines()) == 2
    assert main([*arguments, "--draws", "1", "--load", "50"]) == 0
    other = json.loads(capsys.readouterr().out)["outcomes"]
    assert other[0]["arrived_gpus"] < first[0]["arrived_gpus"]


@table(
    "file, changes, message",
    ("text", PODS_FILE, {"cpu_milli": "4 cores"}, 'row 3, column "cpu_milli": unsupported value'),
    ("negative", PODS_FILE, {"cpu_milli": "-1"}, 'row 3, column "cpu_milli": unsupported value'),
    ("empty", PODS_FILE, {"memory_mib": ""}, 'row 3, column "memory_mib": unsupported value ""'),
    ("above one GPU", PODS_FILE, {"gpu_milli": "1001"}, 'row 3, column "gpu_milli".*at most 1000'),
    ("zero GPU", PODS_FILE, {"gpu_milli": "0"}, 'row 3, column "gpu_milli": is 0 although'),
    ("fractions of two GPUs", PODS_FILE, {"num_gpu": "2"}, 'row 3, column "gpu_milli".*several GPUs are whole'),
    ("time", PODS_FILE, {"creation_time": "soon"}, 'row 3, column "creation_time"'),
    ("repeated", PODS_FILE, {"name": "pod-0"}, 'row 3, column "name": "pod-0" is in an earlier row'),
    ("half a GPU", NODES_FILE, {"gpu": "2.5"}, 'row 3, column "gpu": unsupported value "2.5"'),
    ("too many GPUs", NODES_FILE, {"gpu": "65"}, 'row 3, column "gpu".*at most 64'),
    ("no name", NODES_FILE, {"sn": ""}, 'row 3, column "sn": is empty'),
    ("too large", NODES_FILE, {"cpu_milli": "9" * 30}, 'row 3, column "cpu_milli".*at most'),
)
def test_an_invalid_cell_is_reported(folder: Path, file: str, changes: dict[str, str], message: str) -> None:
    """The error has the file, the row as an editor numbers it, the column and the remedy."""
    rows = nodes() if file == NODES_FILE else pods()
    rows[1] = (
        {**rows[1], "num_gpu": "1", "gpu_milli": "500", **changes} if file == PODS_FILE else {**rows[1], **changes}
    )
    write(folder / file, rows)
    with pytest.raises(TraceError, match=f"{folder / file}: {message}"):
        read_trace(folder)


@table(
    "text, message",
    ("empty file", "", 'row 1: the header lacks the columns "sn", "cpu_milli"'),
    ("no column", "sn,cpu_milli,memory_mib,model\n", 'row 1: the header lacks the columns "gpu"'),
    ("two columns", "sn,cpu_milli,memory_mib,gpu,model,gpu\n", 'row 1, column "gpu": is there twice'),
    ("no rows", "sn,cpu_milli,memory_mib,gpu,model\n", "row 2: the file has no rows"),
    ("short", "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1\n", 'row 2, column "model": the row has 4 columns'),
    ("long", "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,1,A,B\n", 'row 2, column "model": the row has 6'),
    ("no GPU", "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n", 'column "gpu": no node has a GPU'),
    ("quote", 'sn,cpu_milli,memory_mib,gpu,model\n"n,1\n', "row 2: .*; correct the row"),
)
def test_an_invalid_file_is_reported(folder: Path, text: str, message: str) -> None:
    """A file without the expected rows or columns is an error with a message, not an unhandled exception."""
    (folder / NODES_FILE).write_text(text)
    with pytest.raises(TraceError, match=message):
        read_trace(folder)


def test_an_unreadable_file_is_reported(folder: Path) -> None:
    """Bytes that are not UTF-8, and a folder instead of a file, are errors."""
    (folder / NODES_FILE).write_bytes(b"sn,cpu_milli\n\xff\xfe")
    with pytest.raises(TraceError, match=f"{NODES_FILE}: is not UTF-8 text"):
        read_trace(folder)
    (folder / NODES_FILE).unlink()
    (folder / NODES_FILE).mkdir()
    with pytest.raises(TraceError, match=f"{NODES_FILE}: cannot be read"):
        read_trace(folder)


def test_a_missing_folder_ends_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the missing file and where to copy it from."""
    assert main([str(tmp_path / "nowhere")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{tmp_path / 'nowhere' / NODES_FILE}: the file does not exist; copy it from" in shown.err


@table(
    "arguments, message",
    ("profile", ["--profiles", "BestFit,WorstFit"], 'unknown profile "WorstFit"'),
    ("draws", ["--draws", "0"], "--draws: 0: must be at least 1"),
    ("load", ["--load", "0"], "--load: 0: must be more than 0"),
)
def test_invalid_arguments_are_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """The error names the argument and its value."""
    with pytest.raises(SystemExit):
        main([str(folder), *arguments])
    assert message in capsys.readouterr().err


def test_columns_may_be_in_any_order(folder: Path) -> None:
    """Columns are found by their header, and unknown ones are ignored."""
    expected = read_trace(folder)
    write(folder / NODES_FILE, [{"zone": "z", **dict(reversed(row.items()))} for row in nodes()])
    assert read_trace(folder) == expected


def kinds(*counted: tuple[int, int]) -> list[TracePod]:
    return [TracePod(f"p{gpu}-{number}", 1000, 1, gpu, (), number) for gpu, count in counted for number in range(count)]


def test_typical_pods_are_the_most_frequent() -> None:
    """Kinds of pods are taken by frequency until they cover 95 % of the pods."""
    found = typical_pods(kinds((100, 2), (500, 30), (1000, 65), (2000, 3)))
    assert found == (
        TypicalPod(cpu_milli=1000, gpu_milli=1000, weight=65),
        TypicalPod(cpu_milli=1000, gpu_milli=500, weight=30),
    )


def test_arrivals_reach_the_load() -> None:
    """Random arrivals are repeatable and end with the pod that reaches the load; a trace has its own order."""
    trace = Trace((TraceNode("n", 1, 1, 4, "A"),), tuple(kinds((500, 5), (1000, 3))))
    for seed in range(20):
        arrivals = sampled(trace, seed, 1.0)
        assert arrivals == sampled(trace, seed, 1.0)
        total = sum(pod.gpu_milli for pod in arrivals)
        assert total >= 4000 > total - arrivals[-1].gpu_milli
    assert len({tuple(pod.name for pod in sampled(trace, seed, 1.0)) for seed in range(20)}) > 10
    assert in_order(trace, 0.5) == list(trace.pods[:4])
    assert in_order(trace, 9) == list(trace.pods)
