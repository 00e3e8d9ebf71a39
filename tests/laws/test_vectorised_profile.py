"""Law of vectorisation: results for all nodes at once equal results for one node at a time.

The default profile is compared with a plain implementation that shares no code with it.
"""

from __future__ import annotations

from hypothesis import given

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import score_feasible
from tests.support.plain_profile import PLUGINS, PlainNode, PlainPod, totals, verdict
from tests.support.presence import present
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import plugin_set, rig


@given(cluster=CLUSTERS, wanted=pods("wanted"))
def test_the_whole_profile(cluster: tuple[PlainNode, ...], wanted: PlainPod) -> None:
    """The rejecting plugin and reasons of each node, and the total scores of feasible nodes, are equal."""
    made = rig(defaults=Plugins(multi_point=plugin_set(*PLUGINS)))
    made.add(*(node.real() for node in cluster))
    made.add(*(other.real() for node in cluster for other in node.running_pods))
    made.add(wanted.real())
    instance = present(made.context.profiles.get("default-scheduler"))
    queued = made.pop()
    attempt = Attempt(queued, queued.info, instance, made.clock.now())

    found = made.scheduler.cycles.selection.find_feasible(attempt)

    statuses = [found.diagnosis.status_of(row) for row in range(len(cluster))]
    assert [(status.plugin, status.reasons) for status in statuses] == [verdict(wanted, node) for node in cluster]
    feasible = [node for node in cluster if verdict(wanted, node) == ("", ())]
    assert [made.context.cache.columns.node_name(int(row)) for row in found.rows] == [node.name for node in feasible]
    if feasible:
        table = score_feasible(made.context.cache.columns, attempt, found.rows)
        assert table.totals.tolist() == totals(wanted, feasible, cluster)
