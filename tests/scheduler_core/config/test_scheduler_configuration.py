"""KubeSchedulerConfiguration: defaults, top-level rules, and conversion to profiles."""

from __future__ import annotations

from typing import Any

from scheduler_core.config.config_model import seconds
from scheduler_core.config.scheduler_configuration import KubeSchedulerConfiguration, parse_configuration
from tests.support.problems import paths_in, problems_in
from tests.support.tables import table


def document(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def read(**fields: Any) -> KubeSchedulerConfiguration:
    return parse_configuration(document(**fields))


def sorted_by(name: str, plugin: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    config = [] if args is None else [{"name": plugin, "args": args}]
    plugins = {"queueSort": {"enabled": [{"name": plugin}], "disabled": [{"name": "*"}]}}
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": config}


def test_defaults() -> None:
    """An empty configuration has kube-scheduler's defaults."""
    made = read()
    assert [profile.scheduler_name for profile in made.profiles] == ["default-scheduler"]
    assert (made.parallelism, made.percentage_of_nodes_to_score) == (16, 0)
    assert (made.pod_initial_backoff_seconds, made.pod_max_backoff_seconds) == (1, 10)
    assert (made.enable_profiling, made.enable_contention_profiling, made.delay_cache_until_active) == (
        True,
        True,
        False,
    )
    assert (made.client_connection.qps, made.client_connection.burst) == (50.0, 100)
    election = made.leader_election
    assert (election.leader_elect, election.resource_lock) == (True, "leases")
    assert (election.lease_duration, election.renew_deadline, election.retry_period) == tuple(map(seconds, (15, 10, 2)))
    assert (election.resource_namespace, election.resource_name) == ("kube-system", "kube-scheduler")


@table(
    "fields, expected",
    ("with-profiling", {}, True),
    ("without-profiling", {"enableProfiling": False}, None),
    ("explicitly-off", {"enableContentionProfiling": False}, False),
)
def test_contention_profiling(fields: dict[str, Any], expected: bool | None) -> None:
    """Contention profiling is on by default if profiling is on."""
    assert read(**fields).enable_contention_profiling is expected


def test_profile_configs() -> None:
    """Top-level values apply to each profile; a profile's own percentageOfNodesToScore overrides the top level."""
    made = read(
        percentageOfNodesToScore=30,
        podMaxBackoffSeconds=20,
        extenders=[{"urlPrefix": "http://extender"}],
        profiles=[{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 50}],
    )
    one, other = made.profile_configs()
    assert (one.scheduler_name, one.percentage_of_nodes_to_score, one.pod_max_backoff_seconds) == ("a", 30, 20)
    assert (other.scheduler_name, other.percentage_of_nodes_to_score) == ("b", 50)
    assert one.extenders == other.extenders == made.extenders
    assert read().profile_configs()[0].percentage_of_nodes_to_score == 0


@table(
    "fields",
    ("no-profiles", {"profiles": []}),
    ("one-unnamed-profile", {"profiles": [{"pluginConfig": []}]}),
    ("equal-backoffs", {"podMaxBackoffSeconds": 1}),
    ("election-off-is-not-validated", {"leaderElection": {"leaderElect": False, "resourceLock": "endpoints"}}),
    ("zero-is-the-default", {"leaderElection": {"leaseDuration": "0s"}}),
    ("one-queue-sort", {"profiles": [sorted_by("a", "S", {"x": 1}), sorted_by("b", "S", {"x": 1})]}),
    ("placement-empty", {"profiles": [{"plugins": {"placementScore": {}, "placementGenerate": None}}]}),
    ("placement-off", {"profiles": [{"plugins": {"placementScore": {"disabled": [{"name": "*"}]}}}]}),
    ("args-of-another-plugin", {"profiles": [{"pluginConfig": [{"name": "Own", "args": {"free": [1]}}]}]}),
)
def test_valid_configurations(fields: dict[str, Any]) -> None:
    """Configurations that kube-scheduler accepts are valid."""
    assert problems_in(lambda: read(**fields)) == []


def test_points_of_the_group_cycle_are_noted_and_omitted() -> None:
    """Each plugin of the group cycle is accepted with a note and omitted from the profile."""
    plugins = {
        "placementGenerate": {"enabled": [{"name": "TopologyPlacementGenerator"}]},
        "placementScore": {"enabled": [{"name": "NodeResourcesFit", "weight": 3}]},
        "podGroupPostFilter": {"enabled": [{"name": "DefaultPreemption"}]},
        "permit": {"enabled": [{"name": "GangScheduling"}]},
    }
    made = read(profiles=[{"plugins": plugins}])
    assert [note.path.removeprefix("profiles[0].plugins.") for note in made.notes()] == [
        "permit.enabled[0]",
        "placementGenerate.enabled[0]",
        "placementScore.enabled[0]",
        "podGroupPostFilter.enabled[0]",
    ]
    assert set(made.profile_configs()[0].document()["plugins"]) == {"permit"}


@table(
    "fields, expected",
    ("version", {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, ["apiVersion: must be"]),
    ("kind", {"kind": "Scheduler"}, ['kind: must be "KubeSchedulerConfiguration", not "Scheduler"']),
    ("parallelism", {"parallelism": 0}, ["parallelism: must be greater than 0, not 0"]),
    ("percentage", {"percentageOfNodesToScore": 101}, ["percentageOfNodesToScore: must be at most 100"]),
    ("initial", {"podInitialBackoffSeconds": 0}, ["podInitialBackoffSeconds: must be greater than 0"]),
    ("max-backoff", {"podMaxBackoffSeconds": 0}, ["podMaxBackoffSeconds: must be at least podInitialB"]),
    (
        "duplicate-name",
        {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
        ['profiles[1].schedulerName: "a" is already used by an earlier profile'],
    ),
    ("name-missing", {"profiles": [{"schedulerName": "a"}, {}]}, ["profiles[1].schedulerName: is required with"]),
    ("name-empty", {"profiles": [{"schedulerName": ""}]}, ["profiles[0].schedulerName: is required with"]),
    (
        "percentage-of-a-profile",
        {"profiles": [{"schedulerName": "a", "percentageOfNodesToScore": -1}]},
        ["profiles[0].percentageOfNodesToScore: must be at least 0"],
    ),
    (
        "configured-twice",
        {"profiles": [{"pluginConfig": [{"name": "Own"}, {"name": "Own"}]}]},
        ['profiles[0].pluginConfig[1].name: "Own" is already configured by'],
    ),
    (
        "args",
        {"profiles": [{"pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": -1}}]}]},
        ["profiles[0].pluginConfig[0].args.bindTimeoutSeconds: must be at least 0"],
    ),
    (
        "two-queue-sorts",
        {"profiles": [sorted_by("a", "S"), sorted_by("b", "T")]},
        ["profiles[1].plugins.queueSort: must be the same in all profiles"],
    ),
    (
        "queue-sort-args",
        {"profiles": [sorted_by("a", "S", {"x": 1}), sorted_by("b", "S", {"x": 2})]},
        ["profiles[1].pluginConfig: the args of the queueSort plugin must be the same"],
    ),
    (
        "placement",
        {"profiles": [{"plugins": {"placementScore": {"enabled": [{"name": "A"}]}}}]},
        ["profiles[0].plugins.placementScore.enabled[0].name: Bayplan does the work of NodeResourcesFit, PodGroup"],
    ),
    (
        "placement-disabled",
        {"profiles": [{"plugins": {"placementScore": {"disabled": [{"name": "PodGroupPodsCount"}]}}}]},
        ['profiles[0].plugins.placementScore.disabled[0].name: "PodGroupPodsCount" cannot be disabled here'],
    ),
    (
        "lease-no-longer-than-its-renewal",
        {"leaderElection": {"leaseDuration": "10s"}},
        ["leaderElection.leaseDuration: must be greater than renewDeadline (10s), not 10s"],
    ),
    ("retry", {"leaderElection": {"retryPeriod": "-1s"}}, ["leaderElection.retryPeriod: must be greater than 0s"]),
    ("lock", {"leaderElection": {"resourceLock": "endpoints"}}, ['leaderElection.resourceLock: must be "leases"']),
    ("burst", {"clientConnection": {"burst": -1}}, ["clientConnection.burst: must be at least 0, not -1"]),
    (
        "extender",
        {"extenders": [{"urlPrefix": "http://e", "prioritizeVerb": "p"}]},
        ["extenders[0].weight: must be at least 1"],
    ),
    ("typo", {"paralelism": 4}, ["paralelism: unknown field"]),
    ("empty-mapping-for-a-list", {"profiles": {}}, ["profiles: must be a list, not a mapping"]),
)
def test_invalid_configurations(fields: dict[str, Any], expected: list[str]) -> None:
    """Configurations that kube-scheduler rejects are reported once, with the field path."""
    found = problems_in(lambda: read(**fields))
    assert len(found) == len(expected)
    assert all(problem.startswith(words) for problem, words in zip(found, expected, strict=True))


def test_all_problems_at_once() -> None:
    """All problems of a file are reported, including those of args, with the paths of the original file."""
    faults = {
        "kind": "Scheduler",
        "parallelism": 0,
        "podMaxBackoffSeconds": 0,
        "profiles": [
            {"schedulerName": "a", "plugins": {"score": {"enabled": [{"name": "A", "weight": -1}, {"name": "*"}]}}},
            {
                "schedulerName": "a",
                "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}],
            },
        ],
        "extenders": [{"urlPrefix": "http://e", "bindVerb": "b"}, {"bindVerb": "b", "urlPrefix": "http://f"}],
    }
    assert sorted(paths_in(lambda: parse_configuration(document(**faults)))) == [
        "extenders[1].bindVerb",
        "kind",
        "parallelism",
        "podMaxBackoffSeconds",
        "profiles[0].plugins.score.enabled[0].weight",
        "profiles[0].plugins.score.enabled[1].name",
        "profiles[1].pluginConfig[0].args.hardPodAffinityWeight",
        "profiles[1].schedulerName",
    ]


@table(
    "profiles",
    ("text", "a"),
    ("null-entry", [None]),
    ("text-for-a-list", [{"pluginConfig": "x"}]),
    ("number-for-an-entry", [{"pluginConfig": [3]}]),
    ("number-for-a-name", [{"pluginConfig": [{"name": 3, "args": []}]}]),
    ("list-for-plugins", [{"plugins": ["x"]}]),
)
def test_values_of_other_types(profiles: object) -> None:
    """Values of another type are reported as problems and raise nothing else."""
    assert problems_in(lambda: read(profiles=profiles))
