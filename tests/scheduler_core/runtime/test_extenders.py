"""Which extenders are called, in which order, and how their responses and errors are handled."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.errors import ExtenderError
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.status import Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ExtenderVerdict, NodeVictims
from scheduler_core.runtime.extenders import (
    ExtenderRunner,
    PreemptionConsultation,
    binder_of,
    in_calling_order,
    run_extender_filters,
    run_extender_scores,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import container, node, pod
from tests.support.scheduling import rig
from tests.support.scripted_extender import ScriptedExtender, extender, passes_only
from tests.support.tables import table

MANAGED = {"managedResources": [{"name": "example.com/licence"}, {"name": "example.com/dongle"}]}
NAMES = ("a", "b", "c")


def runner(client: ScriptedExtender, **fields: object) -> ExtenderRunner:
    return ExtenderRunner(extender(client.url, **fields), client)


def compiled(wanted: Pod) -> PodInfo:
    return rig().context.cache.columns.compile_pod(wanted)


POD = compiled(pod("web"))


@table(
    "wanted, expected",
    ("no resources", pod(), False),
    ("another resource", pod(requests={"cpu": "1"}), False),
    ("request", pod(requests={"example.com/licence": "1"}), True),
    ("request of 0", pod(requests={"example.com/licence": "0"}), True),
    ("limit", pod(containers=[container(limits={"example.com/dongle": "1"})]), True),
    (
        "request of an init container",
        pod(containers=[container()], init_containers=[container(requests={"example.com/dongle": "1"})]),
        True,
    ),
    (
        "limit of an init container",
        pod(containers=[container()], init_containers=[container(limits={"example.com/licence": "1"})]),
        True,
    ),
    ("overhead", pod(overhead={"example.com/licence": "1"}), False),
)
def test_an_extender_with_managed_resources_is_called_if_one_is_requested(wanted: Pod, expected: bool) -> None:
    """An extender is called for pods that request a managed resource, of any amount, or if it manages none."""
    assert runner(ScriptedExtender(), **MANAGED).is_interested(wanted) is expected
    assert runner(ScriptedExtender()).is_interested(wanted)


def test_ignorable_extenders_come_last() -> None:
    """Ignorable extenders are called last, otherwise in the order of the configuration."""
    names = ["i1", "n1", "i2", "n2"]
    runners = [runner(ScriptedExtender(name), ignorable=name.startswith("i")) for name in names]
    assert [each.config.url_prefix for each in in_calling_order(runners)] == ["n1", "n2", "i1", "i2"]


async def filtered(*runners: ExtenderRunner) -> tuple[list[str], dict[str, Status]]:
    rejections: dict[str, Status] = {}
    left = await run_extender_filters(runners, POD, NAMES, rejections)
    return list(left), rejections


async def test_each_extender_filters_the_remaining_nodes() -> None:
    """Each extender gets the remaining nodes, and is not called if none remains."""
    first, second, third = (
        ScriptedExtender("1", passes_only("b", "c")),
        ScriptedExtender("2", passes_only()),
        ScriptedExtender("3"),
    )
    assert await filtered(*map(runner, (first, second, third))) == ([], {})
    assert (first.calls, second.calls, third.calls) == ([("filter", NAMES)], [("filter", ("b", "c"))], [])


@table("fields", ("without a filter", {"filterVerb": ""}), ("not interested", MANAGED))
async def test_uninterested_extenders_are_not_called(fields: dict[str, object]) -> None:
    """An extender without filterVerb, or without interest in the pod, is not called."""
    client = ScriptedExtender(on_filter=passes_only())
    assert await filtered(runner(client, **fields)) == (list(NAMES), {})
    assert client.calls == []


async def test_reasons_of_extenders_are_stored() -> None:
    """Unresolvable reasons take precedence over others, and later reasons over earlier ones."""
    first = ScriptedExtender("1", passes_only("b", "c", failed={"a": "full", "x": "odd"}, unresolvable={"a": "broken"}))
    second = ScriptedExtender("2", passes_only("c", failed={"b": "busy", "a": "still"}))
    left, rejections = await filtered(runner(first), runner(second))
    assert left == ["c"]
    assert rejections == {"a": unschedulable("still"), "b": unschedulable("busy"), "x": unschedulable("odd")}
    _, rejections = await filtered(runner(first))
    assert rejections["a"] == unresolvable("broken")


@pytest.mark.parametrize("is_unknown", [False, True], ids=["unavailable", "unknown node"])
async def test_an_error_counts_unless_the_extender_is_ignorable(is_unknown: bool) -> None:
    """An extender's error is raised; for an ignorable extender all nodes remain without reasons."""
    client = ScriptedExtender("e")
    if is_unknown:
        client.on_filter = lambda _: ExtenderVerdict(("z", "y"), {"a": "full"})
    else:
        client.fail("filter")
    assert await filtered(runner(client, ignorable=True)) == (list(NAMES), {})
    with pytest.raises(
        ExtenderError, match='node "y", which was not in the request' if is_unknown else "extender e: away"
    ):
        await filtered(runner(client))


@table(
    "weight, scores, expected",
    ("scaled", 1, {"a": 10, "b": 0, "c": 3}, [100, 0, 30]),
    ("weighted, a node without a score", 7, {"a": 1, "c": 2}, [70, 0, 140]),
    ("unknown node", 1, {"a": 1, "z": 9}, [10, 0, 0]),
    ("beyond the range", 2, {"a": -3, "b": 11}, [-60, 220, 0]),
    ("wraps like int64", 2**62, {"a": 1}, [(2**62 * 10 + 2**63) % 2**64 - 2**63, 0, 0]),
)
async def test_scores_are_scaled_and_weighted(weight: int, scores: dict[str, int], expected: list[int]) -> None:
    """Scores of 0 to 10 are scaled to 0 to 100 and multiplied by the weight."""
    client = ScriptedExtender(scores=scores)
    assert (await run_extender_scores([runner(client, weight=weight)], POD, NAMES)).tolist() == expected


async def test_scores_are_added_and_errors_are_ignored() -> None:
    """Scores of all interested extenders are added; an error is ignored, also of an extender that is not ignorable."""
    good, bad = ScriptedExtender("good", scores={"a": 1}), ScriptedExtender("bad", scores={"a": 5})
    without_verb, idle = ScriptedExtender("without-verb"), ScriptedExtender("idle")
    bad.fail("prioritize")
    runners = [runner(good, weight=3), runner(bad), runner(without_verb, prioritizeVerb=""), runner(idle, **MANAGED)]
    assert (await run_extender_scores([*runners, runner(good)], POD, NAMES)).tolist() == [40, 0, 0]
    assert (without_verb.calls, idle.calls) == ([], [])


async def test_extenders_score_concurrently() -> None:
    """A slow extender does not delay the calls of the others."""
    clients = [ScriptedExtender(name, scores={"a": 1}) for name in "12"]
    for client in clients:
        client.hold()
    scoring = asyncio.ensure_future(run_extender_scores([runner(client) for client in clients], POD, NAMES))
    for _ in range(5):
        await asyncio.sleep(0)
    assert [client.called_verbs() for client in clients] == [["prioritize"], ["prioritize"]]
    for client in clients:
        client.release()
    assert (await scoring).tolist() == [20, 0, 0]


def test_the_first_interested_binder_binds() -> None:
    """The first interested extender with a bindVerb binds."""
    binder = runner(ScriptedExtender("b"), bindVerb="bind", **MANAGED)
    runners = [runner(ScriptedExtender("f")), binder]
    assert binder_of(runners, pod(requests={"example.com/licence": "1"})) is binder
    assert binder_of(runners, pod()) is None


# -- preemption -----------------------------------------------------------------------------------------------------

VICTIMS = {name: pod(f"v-{name}", node_name=name) for name in NAMES}
EXTRA = pod("extra", node_name="a")


def running() -> tuple[NodeColumns, list[PreemptionCandidate]]:
    """Return nodes with a victim each, and the preemption candidates b and a."""
    made = rig()
    made.add(*(node(name) for name in NAMES), *VICTIMS.values(), EXTRA)
    columns = made.columns
    infos = {info.key: info for pods in columns.pods for info in pods.values()}
    return columns, [PreemptionCandidate(name, (infos[VICTIMS[name].key],), number) for number, name in enumerate("ba")]


async def left_by(*runners: ExtenderRunner) -> list[tuple[str, list[str], int]]:
    columns, candidates = running()
    left = await PreemptionConsultation(runners, columns).process_preemption(POD, candidates)
    return [(each.node_name, [info.pod.metadata.name for info in each.victims], each.pdb_violations) for each in left]


FOUND = [("b", ["v-b"], 0), ("a", ["v-a"], 1)]


@table(
    "answer, expected",
    ("all candidates", {"a": NodeVictims((VICTIMS["a"],), 1), "b": NodeVictims((VICTIMS["b"],))}, FOUND),
    ("one candidate with other PDB violations", {"a": NodeVictims((VICTIMS["a"],), 4)}, [("a", ["v-a"], 4)]),
    ("other victims", {"a": NodeVictims((EXTRA, VICTIMS["a"]))}, [("a", ["extra", "v-a"], 0)]),
    (
        "another node",
        {"c": NodeVictims((VICTIMS["c"],)), "b": NodeVictims((VICTIMS["b"],))},
        [FOUND[0], ("c", ["v-c"], 0)],
    ),
    ("no candidates", {}, []),
)
async def test_an_extender_replaces_the_candidates(
    answer: dict[str, NodeVictims], expected: list[tuple[str, list[str], int]]
) -> None:
    """The nodes, victims and violation counts in an extender's response replace the candidates."""
    assert await left_by(runner(ScriptedExtender(on_preempt=lambda _: answer))) == expected


async def test_preemption_calls_extenders_sequentially() -> None:
    """Each interested extender gets the remaining candidates, and is not called if none remains."""
    first, second = ScriptedExtender("1", on_preempt=lambda candidates: {"a": candidates["a"]}), ScriptedExtender("2")
    without_verb, last = ScriptedExtender("without-verb"), ScriptedExtender("last")
    second.on_preempt = lambda _: {}
    assert (
        await left_by(
            runner(without_verb, preemptVerb=""), runner(without_verb, **MANAGED), *map(runner, (first, second, last))
        )
        == []
    )
    assert (first.calls, second.calls) == ([("preempt", ("b", "a"))], [("preempt", ("a",))])
    assert (without_verb.calls, last.calls) == ([], [])


@table(
    "answer, message, ignored",
    ("error", None, "extender e: away", FOUND),
    ("an unknown node", {"z": NodeVictims((EXTRA,))}, 'node "z", which does not exist', FOUND),
    ("victim on another node", {"b": NodeVictims((EXTRA,))}, "where it does not run", FOUND),
    (
        "a node without victims",
        {"a": NodeVictims((VICTIMS["a"],), 1), "b": NodeVictims(())},
        'expected at least one victim pod on node "b"',
        FOUND[1:],
    ),
)
async def test_a_preemption_error_is_raised_unless_the_extender_is_ignorable(
    answer: dict[str, NodeVictims] | None, message: str, ignored: list[tuple[str, list[str], int]]
) -> None:
    """An invalid response is an error. The error of an ignorable extender leaves all candidates with victims."""
    client = ScriptedExtender("e")
    if answer is None:
        client.fail("preempt")
    else:
        client.on_preempt = lambda _: answer
    assert await left_by(runner(client, ignorable=True)) == ignored
    with pytest.raises(ExtenderError, match=message):
        await left_by(runner(client))
