"""Tests of ``bayplan rebalance`` on files."""

from __future__ import annotations

import json

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.tables import table

CLUSTER = "examples/rebalance/cluster.yaml"


def rebalance(*options: str) -> Result:
    """Run the command on the example."""
    return CliRunner().invoke(bayplan, ["rebalance", "-f", CLUSTER, *options])


def test_a_plan() -> None:
    """The document has the moves with their costs, the gain, the nodes before and after, and what is left alone."""
    result = rebalance("--dry-run", "--consolidate", "-o", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [(each["pod"], each["source"], each["target"], each["cost"]) for each in document["moves"]] == [
        ("shop/web-1", "node-1", "node-2", 1),
        ("shop/api-1", "node-3", "node-4", 1),
    ]
    assert document["gain"] == {
        "nodesEmptied": ["node-1", "node-3"],
        "gangFits": None,
        "piecesBefore": None,
        "piecesAfter": None,
        "excessBefore": None,
        "excessAfter": None,
    }
    assert document["nodes"][0] == {"node": "node-1", "podsBefore": 1, "podsAfter": 0}
    assert document["leftAlone"] == [
        {"reason": "its annotation safe-to-evict is false", "count": 1, "pods": ["shop/cache-0"]},
        {"reason": "no other node has room for it, with the moves before", "count": 1, "pods": ["shop/web-2"]},
    ]


@table(
    "options, headline, code",
    ("consolidate", ["--consolidate"], "2 nodes would be empty after 2 moves", 0),
    ("one-move", ["--consolidate", "--max-moves", "1"], "1 node would be empty after 1 move", 0),
    ("scope", ["--consolidate", "-n", "ml"], "No moves: none gains anything", 10),
    ("labels", ["--consolidate", "-l", "app=web"], "2 nodes would be empty after 2 moves", 0),
    ("drain", ["--drain", "node-1"], "1 pod would be moved, and 1 node would be empty", 0),
    ("pieces", ["--defragment", "cpu=4"], "2 pieces of 4 cpu would be free instead of 0 after 2 moves", 0),
    ("gang", ["--make-room", "ml/train"], "Gang ml/train would fit after 2 moves", 0),
)
def test_the_headline(options: list[str], headline: str, code: int) -> None:
    """The first line has the result, and the exit code whether there are moves."""
    result = rebalance("--dry-run", *options)
    assert (result.stdout.splitlines()[0], result.exit_code) == (headline, code)


def test_the_room_for_a_gang() -> None:
    """The members are listed with the nodes that they have after the moves."""
    shown = rebalance("--dry-run", "--make-room", "ml/train").stdout.partition("Room for the gang after the moves")[2]
    document = json.loads(rebalance("--dry-run", "--make-room", "ml/train", "-o", "json").stdout)
    assert document["room"]
    for each in document["room"]:
        assert f"{each['pod']}  {each['node']}" in shown


def test_html() -> None:
    """The plan is one page with the moves."""
    result = rebalance("--dry-run", "--consolidate", "-o", "html")
    assert result.exit_code == 0
    assert "<h1>Plan of moves</h1>" in result.stdout
    assert "<td>shop/web-1</td><td>node-1</td><td>node-2</td>" in result.stdout


@table(
    "options, message",
    ("no-dry-run", ["--consolidate"], "this command makes no moves; add --dry-run"),
    ("no-objective", ["--dry-run"], "specify one of --consolidate"),
    ("two-objectives", ["--dry-run", "--consolidate", "--drain", "node-1"], "specify one of --consolidate"),
    ("node", ["--dry-run", "--drain", "x"], "--drain: there is no node x; correct the name"),
    ("gang", ["--dry-run", "--make-room", "x"], '--make-room: there is no PodGroup "x"; write NAMESPACE/NAME'),
    ("piece", ["--dry-run", "--defragment", "cpu=x"], '--defragment: "cpu=x" must have the form nvidia.com/gpu=8'),
    ("selector", ["--dry-run", "--consolidate", "-l", "a in"], '"a in" is not a label selector'),
    ("context", ["--dry-run", "--consolidate", "--context", "x"], "leave them out with -f"),
)
def test_bad_input(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the option and the remedy."""
    result = rebalance(*options)
    assert result.exit_code == 2
    assert message in result.output + str(result.exception) + capsys.readouterr().err
