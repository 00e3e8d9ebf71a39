"""Tests of ``bayplan validate``: problems, their lines, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.simulation.memory_cluster import offline_scheduler
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import ConfigError
from tests.support.invalid_manifests import INVALID_MANIFESTS, InvalidManifest
from tests.support.tables import table

ROOT = Path(__file__).resolve().parents[3]
API = "bayplan.dev/v1alpha1"


def manifest(kind: str, name: str, spec: object) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def run(*args: str, documents: list[Any] | None = None, code: int = 0) -> Result:
    """Run the command with documents on standard input."""
    text = yaml.safe_dump_all(documents or [])
    result = CliRunner().invoke(bayplan, ["validate", *args, *(["-"] if documents is not None else [])], input=text)
    assert result.exit_code == code, result.output
    return result


def findings(*documents: Any, flags: tuple[str, ...] = (), code: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("-o", "json", *flags, documents=list(documents), code=code).stdout)[
        "findings"
    ]
    return found


@pytest.mark.parametrize("refused", INVALID_MANIFESTS)
def test_invalid_manifests_are_rejected(refused: InvalidManifest) -> None:
    """An invalid manifest is reported with the field that the model or the API server names."""
    paths = {each["path"] for each in findings(refused.manifest()) if each["severity"] == "error"}
    for path in refused.model or (refused.server[0],):
        assert any(each == path or each.startswith(f"{path}.") for each in paths), paths


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_valid(path: Path) -> None:
    """The profiles in the examples are valid."""
    assert "no problems" in run(str(path)).stdout


@table(
    "profiles, paths",
    ("no profiles", [], []),
    ("another profile", ["low"], ["spec.scope.profiles[0]"]),
    ("the profile", ["low", "high"], []),
)
def test_profiles_of_a_plan_that_the_files_lack(profiles: list[str], paths: list[str]) -> None:
    """A profile that a RebalancePlan names is a warning if the files have others."""
    plan = manifest("RebalancePlan", "a", {"objective": "Consolidate", "scope": {"profiles": ["high"]}})
    found = findings(plan, *(manifest("SchedulerProfile", name, {}) for name in profiles), code=0)
    assert [each["path"] for each in found if each["severity"] == "warning"] == paths


@table(
    "template, paths",
    ("valid", {"spec": {"containers": [{"name": "a", "image": "b"}]}}, []),
    ("no image", {"spec": {"containers": [{"name": "a"}]}}, ["spec.template.spec.containers[0].image"]),
    (
        "label",
        {"metadata": {"labels": {"a b": "c"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
        ["spec.template.metadata.labels[a b]"],
    ),
)
def test_the_template_of_a_reservation(template: dict[str, Any], paths: list[str]) -> None:
    """Its problems are those of a pod, with the fields of the template."""
    found = findings(
        manifest("NodeReservation", "a", {"owner": {"labels": {"app": "a"}}, "template": template}), code=bool(paths)
    )
    assert [each["path"] for each in found if each["severity"] == "error"] == paths


@table(
    "gates, severity, words",
    ("gates that are not known", (), "note", "needs the feature gate {kind}, which is off by default; turn it on with"),
    ("gate is off", ("--feature-gates=ResultCache=true",), "warning", "has no effect: its feature gate {kind} is off"),
    ("gate is on", ("--feature-gates=AllAlpha=true",), None, ""),
)
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("NodeReservation", {"owner": {"labels": {"app": "a"}}, "resources": {"cpu": 1}}),
        ("RebalancePlan", {"objective": "Consolidate"}),
    ],
)
def test_objects_of_a_kind_that_the_operator_does_not_read(
    gates: tuple[str, ...], severity: str | None, words: str, kind: str, spec: dict[str, Any]
) -> None:
    """They are reported with the gate and how it is turned on."""
    found = findings(manifest(kind, "a", spec), code=0, flags=gates)
    assert [each["severity"] for each in found] == ([] if severity is None else [severity])
    for each in found:
        assert words.format(kind=kind) in each["message"]
        assert f"--feature-gates={kind}=true" in each["message"]
        assert f"settings.featureGates.{kind}=true" in each["message"]


@table(
    "others, paths",
    ("neither classes nor nodes", [], []),
    ("another class", ["low"], ["spec.priorityClassName"]),
    ("the class", ["high"], []),
    ("another label", [{"zones": "a"}], ["spec.topology.key"]),
    ("the label", [{"zone": "a"}, {}], []),
)
def test_names_of_a_group_that_the_files_lack(others: list[Any], paths: list[str]) -> None:
    """A PriorityClass or label that a group names is a warning if the files have others."""
    group = manifest("PodGroup", "a", {"minMember": 1, "priorityClassName": "high", "topology": {"key": "zone"}})
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}", "labels": each}}
        if isinstance(each, dict)
        else {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": each},
            "value": 1,
        }
        for number, each in enumerate(others)
    ]
    found = findings(group, *objects, code=0)
    assert [(each["path"], each["severity"]) for each in found] == [(path, "warning") for path in paths]


@table(
    "documents, path, words",
    ("not-an-object", [5], "", "is not a Kubernetes object"),
    ("v1", [{**manifest("SchedulerProfile", "a", {}), "apiVersion": "bayplan.dev/v1"}], "apiVersion", API),
    ("no-version", [{"kind": "PodGroup", "metadata": {"name": "a"}}], "apiVersion", API),
    ("unknown-kind", [manifest("Profile", "a", {})], "kind", "no kind"),
    ("no-name", [manifest("PodGroup", "", {"minMember": 1})], "metadata.name", "is required"),
    ("invalid-name", [manifest("PodGroup", "A", {"minMember": 1})], "metadata.name", "lower case"),
    ("top-level", [{**manifest("SchedulerProfile", "a", {}), "specs": {}}], "specs", "unknown field"),
    (
        "metadata-field",
        [{**manifest("SchedulerProfile", "a", {}), "metadata": {"name": "a", "lables": {}}}],
        "metadata.lables",
        'did you mean "labels"?',
    ),
    (
        "label",
        [{**manifest("SchedulerProfile", "a", {}), "metadata": {"name": "a", "labels": {"x": 1}}}],
        "metadata.labels[x]",
        "put it in quotes",
    ),
    (
        "unknown-plugin",
        [manifest("SchedulerProfile", "a", {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFitt"}]}}})],
        "spec.plugins.score.enabled[0].name",
        'did you mean "NodeResourcesFit"?',
    ),
    (
        "args",
        [manifest("PluginConfig", "a", {"plugin": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}})],
        "spec.args.scoringStrategy.type",
        "must be one of",
    ),
    (
        "name-of-kube-scheduler",
        [manifest("SchedulerProfile", "a", {"schedulerName": "default-scheduler"})],
        "spec.schedulerName",
        "--allow-default-scheduler",
    ),
    (
        "schedule",
        [manifest("RebalancePlan", "a", {"objective": "Consolidate", "schedule": "0 25 * * *"})],
        "spec.schedule",
        "invalid hour: write 0 to 23",
    ),
    (
        "duplicate-name",
        [manifest("SchedulerProfile", "a", {}), manifest("SchedulerProfile", "b", {"schedulerName": "a"})],
        "spec.schedulerName",
        "is claimed by SchedulerProfile a (standard input:1) too",
    ),
    (
        "bound-of-the-schema",
        [manifest("SchedulerProfile", "a", {"extenders": [{"urlPrefix": "http://x"}] * 9})],
        "spec.extenders",
        "must have at most 8",
    ),
    (
        "configuration-of-kube-scheduler",
        [
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": "a", "plugins": {"score": {"enabled": [{"name": "No"}]}}}],
            }
        ],
        "profiles[0].plugins.score.enabled[0].name",
        'there is no plugin "No"',
    ),
    (
        "in-a-list",
        [{"apiVersion": "v1", "kind": "List", "items": [manifest("PodGroup", "a", {"minMember": 0})]}],
        "spec.minMember",
        "must be at least 1",
    ),
    (
        "in-a-typed-list",
        [{"apiVersion": API, "kind": "PodGroupList", "items": [{"metadata": {"name": "a"}, "spec": {"minMember": 0}}]}],
        "spec.minMember",
        "must be at least 1",
    ),
)
def test_problems(documents: list[Any], path: str, words: str) -> None:
    """Each problem is reported once, at its field, with the remedy."""
    errors = [each for each in findings(*documents) if each["severity"] == "error"]
    assert [each["path"] for each in errors] == [path]
    assert words in errors[0]["message"]


def test_all_problems_of_a_profile_are_reported() -> None:
    """All problems of a profile are reported together."""
    entries = [{"name": "NodeResourcesFitt", "weight": -1}]
    extender = {"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}
    spec = {"plugins": {"score": {"enabled": entries}}, "extenders": [extender], "extra": 1}
    assert {each["path"] for each in findings(manifest("SchedulerProfile", "a", spec))} == {
        "spec.extra",
        "spec.plugins.score.enabled[0].weight",
        "spec.plugins.score.enabled[0].name",
        "spec.extenders[0].managedResources[0].name",
    }


def test_another_queue_sort_is_a_problem() -> None:
    """A profile with another QueueSort than the others is a problem."""
    other = {"plugins": {"queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}}}
    (found,) = findings(manifest("SchedulerProfile", "a", {}), manifest("SchedulerProfile", "b", other))
    assert found["path"] == "spec.plugins.queueSort"
    assert "SchedulerProfile a" in found["message"]


def test_a_missing_reference_is_a_warning() -> None:
    """A reference to an object that is not in the files is a warning, and with --strict an error."""
    profile = manifest("SchedulerProfile", "a", {"pluginConfigRefs": [{"name": "pack"}]})
    (warning,) = findings(profile, code=0)
    (error,) = findings(profile, flags=("--strict",))
    assert (warning["severity"], error["severity"]) == ("warning", "error")
    plugin_config = manifest("PluginConfig", "pack", {"plugin": "NodeResourcesFit"})
    assert findings(profile, plugin_config, flags=("--strict",), code=0) == []


def test_other_kinds_are_ignored() -> None:
    """An object of another kind is reported as a note, also with --strict."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    (note,) = findings(body, flags=("--strict",), code=0)
    assert (note["severity"], note["message"]) == (
        "note",
        "ConfigMap (v1) is ignored: it holds no KubeSchedulerConfiguration",
    )


@table(
    "body, path",
    (
        "file",
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": {"placementScore": {"enabled": [{"name": "PodGroupPodsCount"}]}}}],
        },
        "profiles[0].plugins.placementScore.enabled[0]",
    ),
    (
        "profile",
        manifest("SchedulerProfile", "a", {"plugins": {"multiPoint": {"enabled": [{"name": "PodGroupPodsCount"}]}}}),
        "spec.plugins.multiPoint.enabled[0]",
    ),
)
def test_an_entry_without_effect_is_noted(body: dict[str, Any], path: str) -> None:
    """A plugin entry without effect is reported as a note, also with --strict."""
    (note,) = findings(body, flags=("--strict",), code=0)
    assert (note["severity"], note["path"]) == ("note", path)
    assert note["message"].startswith("PodGroupPodsCount has no effect: Bayplan ranks the topology domains")


def _of_score(**entry: object) -> dict[str, Any]:
    return {"plugins": {"score": {"enabled": [{"name": "ImageLocality", **entry}]}}}


@table(
    "spec, path, message",
    (
        "disabled-name",
        {"plugins": {"filter": {"disabled": [{"name": "Nodeports"}]}}},
        "spec.plugins.filter.disabled[0].name",
        'disables nothing: there is no plugin "Nodeports" (did you mean "NodePorts"?); correct or remove the entry',
    ),
    (
        "disabled-where-it-does-not-run",
        {"plugins": {"score": {"disabled": [{"name": "NodePorts"}]}}},
        "spec.plugins.score.disabled[0].name",
        "disables nothing: NodePorts does not serve score; it serves preFilter, filter: remove or move the entry",
    ),
    (
        "reserve-only",
        {"plugins": {"reserve": {"disabled": [{"name": "VolumeBinding"}]}}},
        "spec.plugins.reserve.disabled[0].name",
        (
            "VolumeBinding is still called at preBind, which relies on its reserve; disable it at preBind too, or at "
            "multiPoint to turn it off"
        ),
    ),
    (
        "pre-filter-only",
        {"plugins": {"preFilter": {"disabled": [{"name": "NodePorts"}]}}},
        "spec.plugins.preFilter.disabled[0].name",
        (
            "NodePorts is still called at filter, which relies on its preFilter; disable it at filter too, or at "
            "multiPoint to turn it off"
        ),
    ),
    (
        "no-filter",
        {"plugins": {"filter": {"disabled": [{"name": "*"}]}}},
        "spec.plugins.filter.disabled[0].name",
        (
            "no plugin filters nodes: pods are bound to nodes that lack the room, or that have taints they do not "
            "tolerate; enable the filters that you need"
        ),
    ),
    (
        "weight-of-a-filter",
        {"plugins": {"filter": {"enabled": [{"name": "NodeName", "weight": 5}]}}},
        "spec.plugins.filter.enabled[0].weight",
        "has no effect: filter has no weights; remove it",
    ),
    (
        "weight-0",
        _of_score(weight=0),
        "spec.plugins.score.enabled[0].weight",
        "0 counts as 1; to turn the scores off, disable ImageLocality at score",
    ),
    (
        "weight-of-999999999",
        _of_score(weight=999999999),
        "spec.plugins.score.enabled[0].weight",
        (
            "999999999 outvotes all other scores together, which only resolve ties: their weights add up to 14, and "
            "scores are at most 100; lower it unless that is intended"
        ),
    ),
    (
        "args-of-a-disabled-plugin",
        {
            "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
        },
        "spec.pluginConfig[0]",
        "has no effect: NodeResourcesFit is not enabled; enable it, or remove the entry",
    ),
)
def test_an_entry_that_does_not_do_what_it_seems_to_do_is_a_warning(
    spec: dict[str, Any], path: str, message: str
) -> None:
    """What kube-scheduler accepts in silence is a warning, and with --strict an error."""
    (warning,) = findings(manifest("SchedulerProfile", "a", spec), code=0)
    assert (warning["severity"], warning["path"], warning["message"]) == ("warning", path, message)
    (error,) = findings(manifest("SchedulerProfile", "a", spec), flags=("--strict",))
    assert (error["severity"], error["path"]) == ("error", path)


@table(
    "spec",
    ("weight-1", _of_score(weight=1)),
    ("no-weight", _of_score()),
    ("disabled", {"plugins": {"filter": {"disabled": [{"name": "EBSLimits"}]}}}),
    ("no-scores", {"plugins": {name: {"disabled": [{"name": "*"}]} for name in ("preScore", "score")}}),
    (
        "weight-as-kube-scheduler-writes-it",
        {"plugins": {"multiPoint": {"enabled": [{"name": "NodeName", "weight": 0}]}}},
    ),
)
def test_an_entry_with_an_effect_is_no_warning(spec: dict[str, Any]) -> None:
    """Entries that do what they seem to do are not reported."""
    assert findings(manifest("SchedulerProfile", "a", spec), code=0) == []


def test_a_shadow_of_a_shadow_is_a_warning() -> None:
    """A shadow of a profile that is itself a shadow would compare nothing."""
    (warning,) = findings(
        manifest("SchedulerProfile", "next", {"shadowOf": "pack"}),
        manifest("SchedulerProfile", "later", {"shadowOf": "next"}),
        code=0,
    )
    assert (warning["severity"], warning["path"]) == ("warning", "spec.shadowOf")
    assert warning["message"] == 'SchedulerProfile "next" is a shadow too; set the schedulerName of a live profile'


def test_lines(tmp_path: Path) -> None:
    """Findings have the line of the field in any document of a file."""
    path = tmp_path / "a.yaml"
    head = f"apiVersion: {API}\nkind: PodGroup\nmetadata: {{name: a}}\nspec:\n"
    path.write_text(f"{head}  minMember: 0\n---\n{head}  queueing: Strict\n  minMember: 1\n  minMember: 2\n")
    lines = run(str(path), code=1).stdout.splitlines()
    assert lines[0].startswith(f"{path}:5: error: PodGroup a: spec.minMember: must be at least 1")
    assert f'{path}:13: error: "minMember" is duplicated in one mapping; remove one' in lines


@table("recursive", ("flat", False), ("recursive", True))
def test_directories(tmp_path: Path, recursive: bool) -> None:
    """The manifests of a directory are read, and those of subdirectories on request."""
    (tmp_path / "below").mkdir()
    (tmp_path / "README.md").write_text("{{ no YAML")
    (tmp_path / "a.json").write_text(json.dumps(manifest("PodGroup", "a", {"minMember": 1})))
    (tmp_path / "below" / "b.yml").write_text(json.dumps(manifest("PodGroup", "b", {"minMember": 1})))
    output = run(str(tmp_path), *(["-R"] if recursive else [])).stdout
    assert output == f"{'2 objects' if recursive else '1 object'} validated: no problems\n"


@table(
    "text, words",
    ("absent", None, "cannot be read: No such file or directory"),
    ("not-yaml", "a: [", "is not YAML"),
    ("control-character", "a: \x00", "is not YAML or JSON"),
)
def test_unreadable_files_exit_with_2(tmp_path: Path, text: str | None, words: str) -> None:
    """An unreadable file exits with 2, and problems of other files are reported."""
    path, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    if text is not None:
        path.write_text(text)
    other.write_text(json.dumps(manifest("PodGroup", "b", {"minMember": 0})))
    output = run(str(path), str(other), code=2).stdout
    assert words in output
    assert "spec.minMember" in output


NAMES = st.sampled_from(["NodeResourcesFit", "PrioritySort", "NodeName", "Nope", "*", ""])
ENTRIES = st.lists(st.fixed_dictionaries({"name": NAMES}, optional={"weight": st.integers(-1, 2)}), max_size=3)
SETS = st.fixed_dictionaries({}, optional={"enabled": ENTRIES, "disabled": ENTRIES})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "schedulerName": st.sampled_from(["", "x", "default-scheduler"]),
        "percentageOfNodesToScore": st.sampled_from([-1, 0, 100, 101, "5"]),
        "podMaxBackoffSeconds": st.integers(0, 3),
        "podInitialBackoffSeconds": st.integers(0, 3),
        "plugins": st.dictionaries(st.sampled_from(["score", "filter", "queueSort", "bind", "no"]), SETS, max_size=2),
        "pluginConfig": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
    },
)


@given(SPECS)
def test_valid_specs_can_be_built(spec: dict[str, Any]) -> None:
    """A spec is accepted only if the operator finds no problem and can build the profile."""
    body = manifest("SchedulerProfile", "a", spec)
    result = CliRunner().invoke(bayplan, ["validate", "-"], input=json.dumps(body))
    scheduler = offline_scheduler()
    (desired,) = desired_state([body], [], PluginConfigValidation(scheduler.registry)).profiles
    problems = list(desired.problems)
    if desired.config is not None:
        try:
            scheduler.build(desired.config).retire()
        except ConfigError as error:
            problems += error.problems
    if result.exit_code == 0:
        assert problems == []
    elif not problems:
        assert "occurs in an earlier entry already" in result.stdout


@table(
    "spec, is_warning",
    ("no references", {}, True),
    ("referenced", {"pluginConfigRefs": [{"name": "pack"}]}, False),
    ("no profile in the files", None, False),
)
def test_a_plugin_config_without_a_profile_is_a_warning(spec: dict[str, Any] | None, *, is_warning: bool) -> None:
    """A PluginConfig has no effect until a profile references it; files without profiles may be a part of them."""
    plugin_config = manifest("PluginConfig", "pack", {"plugin": "NodeResourcesFit"})
    profiles = [] if spec is None else [manifest("SchedulerProfile", "a", spec)]
    found = findings(plugin_config, *profiles, code=0)
    expected = [("warning", "metadata.name", "PluginConfig pack")] if is_warning else []
    assert [(each["severity"], each["path"], each["object"]) for each in found] == expected


def descheduler_policy(*plugins: str) -> dict[str, Any]:
    """Return a policy of the descheduler that enables plugins that balance."""
    profile = {"name": "p", "plugins": {"balance": {"enabled": list(plugins)}}}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}


def in_config_map(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a ConfigMap as the descheduler's chart creates it."""
    metadata = {"name": "descheduler", "namespace": "kube-system"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"policy.yaml": yaml.safe_dump(policy)},
    }


def scoring(kind: str, **more: Any) -> dict[str, Any]:
    """Return a profile with a scoring strategy."""
    strategy = {"type": kind, "resources": [{"name": "cpu", "weight": 1}], **more}
    entry = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    return manifest("SchedulerProfile", "p", {"pluginConfig": [entry]})


RISING = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
FALLING = {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]}


@table(
    "profile, plugins, words",
    ("packs and is spread", scoring("MostAllocated"), ("LowNodeUtilization",), "MostAllocated fills nodes"),
    (
        "packs by a shape and is spread",
        scoring("RequestedToCapacityRatio", requestedToCapacityRatio=RISING),
        ("LowNodeUtilization",),
        "RequestedToCapacityRatio fills nodes",
    ),
    (
        "spreads and is packed",
        manifest("SchedulerProfile", "p", {}),
        ("HighNodeUtilization",),
        "LeastAllocated prefers",
    ),
    ("packs and is packed", scoring("MostAllocated"), ("HighNodeUtilization",), ""),
    (
        "spreads by a shape and is spread",
        scoring("RequestedToCapacityRatio", requestedToCapacityRatio=FALLING),
        ("LowNodeUtilization",),
        "",
    ),
    ("other plugins", scoring("MostAllocated"), ("RemoveDuplicates",), ""),
)
@pytest.mark.parametrize("wrap", [dict, in_config_map], ids=["policy", "config map"])
def test_a_profile_against_the_descheduler(
    profile: dict[str, Any], plugins: tuple[str, ...], words: str, wrap: Any
) -> None:
    """A profile that undoes what the descheduler does is reported, in any order of the files, with what to change."""
    policy = wrap(descheduler_policy(*plugins))
    for documents in ((profile, policy), (policy, profile)):
        found = [each["message"] for each in findings(*documents, code=0) if each["severity"] == "warning"]
        assert len(found) == bool(words), found
        assert not words or words in found[0]
