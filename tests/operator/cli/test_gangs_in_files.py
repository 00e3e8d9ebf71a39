"""Tests of ``bayplan simulate`` and ``bayplan explain -f`` with gangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bayplan.cli import bayplan
from bayplan.cli.object_names import GroupName, PodName, object_name
from bayplan.explanation.documents import only_namespace
from click import UsageError
from click.testing import CliRunner, Result

from scheduler_core.errors import NotFoundError
from scheduler_core.model.pod_group import GroupSource
from tests.support.tables import table

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "simulate" / "gangs.yaml")
ZONE = "topology.kubernetes.io/zone"
LACKS = (
    f"1 of the 3 members that must be placed together fit in {ZONE}=a; with them in "
    f"place, for ml/train-1: 0/3 nodes are available: 1 node(s) were outside the gang's domain {ZONE}=a, 2 "
    f"Insufficient cpu; no domain of {ZONE} has room for them even without other pods: the largest, {ZONE}=a, has room "
    "for 2; add nodes to a domain, or change the group's topology or its members' requests. "
    "Nearest: a2 (needs 3 cpu, has 2), a1 (needs 3 cpu, has 0); it would fit on a2 with 1 cpu more."
)


def run(*arguments: str) -> Result:
    """Run a command that succeeds."""
    result = CliRunner().invoke(bayplan, arguments)
    assert result.exit_code == 0, result.stderr
    return result


def test_gangs_of_three_apis_are_simulated() -> None:
    """The table of gangs has the required and scheduled members, the domain and the reason."""
    lines = run("simulate", EXAMPLE).stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("GANG"))
    assert lines[start : start + 4] == [
        "GANG       NEEDED  MEMBERS  PLACED  DOMAIN  REASON",
        "ml/mpi          2        2       2  -",
        "ml/render       2        2       2  -",
        f"ml/train        3        3       0  -       {LACKS}",
    ]
    assert lines[0] == "4 of 7 pods scheduled to 3 of 3 nodes; 2 of 3 gangs scheduled; 3 unschedulable"


def test_simulated_gangs_in_the_document() -> None:
    """The document has each gang with its API."""
    document = json.loads(run("simulate", EXAMPLE, "-o", "json").stdout)
    assert [(gang["name"], gang["api"], gang["phase"]) for gang in document["gangs"]] == [
        ("mpi", "scheduling.x-k8s.io", "Scheduled"),
        ("render", "scheduling.k8s.io", "Scheduled"),
        ("train", "bayplan.dev", "Scheduling"),
    ]
    assert document["gangs"][2] == {
        "namespace": "ml",
        "name": "train",
        "api": "bayplan.dev",
        "minMember": 3,
        "members": 3,
        "placed": 0,
        "domain": None,
        "phase": "Scheduling",
        "reason": LACKS,
    }


def test_a_gang_is_explained() -> None:
    """The explanation of a gang has members, domains, nearest misses, events, preemption and new nodes."""
    text = run("explain", "-f", EXAMPLE, "--others-placed", "-n", "ml", "podgroup/train").stdout.splitlines()
    assert text[0] == (
        f"Gang ml/train does not fit: there are nodes for 1 of the 3 members that must be placed together in {ZONE}=a"
    )
    assert text[2:5] == [
        "Members of gang ml/train",
        "EXIST  GATED  WAITING  PLACED  SUCCEEDED  FAILED  MINIMUM  NEEDED",
        "3      0      3        0       0          0       3        3",
    ]
    assert "a2    NodeResourcesFit  needs 3 cpu, 2 free" in text
    assert "Preemption  no pod of lower priority runs where the gang could go" in text
    assert text[-1] == "New nodes  1 node like b1 would help, or 2 nodes like a1"


def test_a_member_is_explained_with_its_gang() -> None:
    """The explanation of a member has its gang, whose members are not scheduled with the other pods."""
    document = json.loads(run("explain", "-f", EXAMPLE, "--others-placed", "--pod", "ml/train-2", "-o", "json").stdout)
    assert (document["verdict"], document["node"]) == ("Unschedulable", None)
    assert document["gang"]["members"]["waiting"] == 3
    assert [place["fitting"] for place in document["gang"]["places"]] == [1, 1]


def test_a_missing_gang_is_an_error() -> None:
    """The error for a missing gang names the existing gangs."""
    result = CliRunner().invoke(bayplan, ["explain", "-f", EXAMPLE, "-n", "ml", "podgroup.bayplan.dev/mpi"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "bayplan: podgroup: PodGroup ml/mpi is not in the files; PodGroups: ml/mpi, ml/render, ml/train\n"
    )


@table(
    "text, expected",
    ("pod", "web-0", PodName("ml", "web-0")),
    ("pod with its kind", "pod/web-0", PodName("ml", "web-0")),
    ("PodGroup", "podgroup/train", GroupName("ml", "train")),
    ("plural", "podgroups/train", GroupName("ml", "train")),
    ("short name", "bpg/train", GroupName("ml", "train", GroupSource.BAYPLAN)),
    ("with its API", "podgroups.scheduling.k8s.io/train", GroupName("ml", "train", GroupSource.NATIVE)),
    ("pod with its namespace", "ml/web-0", PodName("ml", "web-0")),
    ("pod with its kind and namespace", "pod/ml/web-0", PodName("ml", "web-0")),
    ("PodGroup with its namespace", "bpg/ml/train", GroupName("ml", "train", GroupSource.BAYPLAN)),
)
def test_names(text: str, expected: PodName | GroupName) -> None:
    """Names have kubectl's syntax."""
    assert object_name("ml", text) == expected
    assert object_name(None, text, "ml") == expected


@table(
    "text, problem",
    ("Job", "job/train", '"job/train" does not name a pod or PodGroup'),
    ("no name", "podgroup/", "specify POD, NAMESPACE/POD, podgroup/NAME or podgroup/NAMESPACE/NAME"),
    ("too many parts", "shop/web/0", "does not name a pod or PodGroup"),
    ("empty namespace", "/web", "does not name a pod or PodGroup"),
    ("-n too", "shop/web", '"shop/web" is in namespace shop, and -n is ml; specify one of them'),
    ("unsupported API", "podgroup.volcano.sh/train", 'unsupported API of PodGroups "volcano.sh"'),
)
def test_names_of_other_kinds(text: str, problem: str) -> None:
    """A name of another kind is a usage error with the supported forms."""
    with pytest.raises(UsageError) as caught:
        object_name("ml", text)
    assert problem in str(caught.value)


def test_names_in_all_namespaces() -> None:
    """With -A the only pod or PodGroup of a name is explained; a namespace beside it is an error."""
    run = CliRunner().invoke
    for name in ("podgroup/mpi", "mpi-0"):
        explained = ["explain", "-f", EXAMPLE, "-o", "json"]
        with_namespace = run(bayplan, [*explained, "-n", "ml", name])
        assert (with_namespace.exit_code, run(bayplan, [*explained, "-A", name]).output) == (0, with_namespace.output)
    missing = run(bayplan, ["explain", "-f", EXAMPLE, "-A", "web"])
    assert missing.stderr == "bayplan: pod web not found in any namespace; check the name\n"
    both = run(bayplan, ["explain", "-f", EXAMPLE, "-A", "ml/mpi-0"])
    assert '"ml/mpi-0" is in namespace ml, and -A selects all; specify one of them' in both.stderr
    assert run(bayplan, ["explain", "-f", EXAMPLE, "-A", "-n", "ml", "mpi-0"]).exit_code == 2


def test_a_name_of_several_namespaces() -> None:
    """A name that several namespaces have is an error with the names to specify."""
    with pytest.raises(NotFoundError, match="several namespaces have this name: a/web, b/web; specify one of them"):
        only_namespace("pod", "web", {"b", "a"})
