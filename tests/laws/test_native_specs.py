"""Law: no member of a native PodGroup is bound if a field of the group's spec is unknown or unsupported.

The law holds for every supported version and any order of reports. If a PodGroup without that field replaces the
group, the gang is scheduled at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from bayplan.gangs.bayplan_group_source import AcceptedGroups, ObservedGroup
from bayplan.gangs.group_translation import NATIVE_VERSIONS, NativeGroup, UnsupportedGroupError, from_native
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import ConfigError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.queueing import gang_registry
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.scheduling import default_rig

Spec = dict[str, Any]
Translations = Mapping[str, Callable[[NativeGroup], PodGroup]]
KEY = GroupKey(GroupSource.NATIVE, "default", "train")
STEPS = ("nodes", "pods", "group", "list")
TRANSLATIONS: Translations = {version: partial(from_native, version=version) for version in NATIVE_VERSIONS}
VERSIONS = tuple(NATIVE_VERSIONS)
VALID: Spec = {
    "schedulingPolicy": {"gang": {"minCount": 2}},
    "schedulingConstraints": {"topology": [{"key": "zone"}]},
    "priority": 0,
}
PARTS: tuple[tuple[str | int, ...], ...] = (
    (),
    ("schedulingPolicy",),
    ("schedulingPolicy", "gang"),
    ("schedulingConstraints",),
    ("schedulingConstraints", "topology", 0),
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz", min_size=12, max_size=16)
UNSUPPORTED: tuple[Spec, ...] = (
    {"schedulingPolicy": {}},
    {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}},
    {"schedulingConstraints": {"topology": [{"key": "zone"}, {"key": "rack"}]}},
    {"resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}]},
    {"parentCompositePodGroupName": "all", "workloadRef": {"workloadName": "w", "templateName": "t"}},
    {"disruptionMode": {"some": {}}},
)


def with_field(part: tuple[str | int, ...], name: str) -> Spec:
    """Return a valid spec with one more field in one of its parts."""
    spec = copy.deepcopy(VALID)
    target: Any = spec
    for step in part:
        target = target[step]
    target[name] = {}
    return spec


class StartingScheduler:
    """A scheduler that starts while two members of a native gang are pending, for which there is capacity."""

    def __init__(self, version: str, translations: Translations = TRANSLATIONS) -> None:
        self.made = default_rig(serve=True)
        self.version = version
        self._translate = translations[version]
        self._accepted = AcceptedGroups(self.made.scheduler.group_feed)

    async def perform(self, step: str, spec: Spec) -> None:
        """Perform a step, and run the scheduler until it is idle."""
        match step:
            case "nodes":
                self.made.add(node("n", labels={"zone": "z"}, allocatable={"cpu": "9", "pods": "9"}))
            case "pods":
                self.made.add(*(pod(f"train-{number}", requests={"cpu": "1"}, group="train") for number in range(2)))
            case "group":
                self.receive(spec, "uid-1")
            case "list":
                self.made.scheduler.group_feed.serve(GroupSource.NATIVE)
        await settle(self.made)

    def receive(self, spec: Spec, uid: str) -> None:
        """Receive the object from a watch."""
        resource = NativeGroup(ObjectMeta(name="train", namespace="default", uid=uid), spec)
        observed = ObservedGroup(KEY, uid, 1, {}, self.version)
        try:
            group = self._translate(resource)
        except ConfigError as error:
            self._accepted.reject(observed, error)
        else:
            self._accepted.accept(observed, group)


async def bound_with(scheduler: StartingScheduler, spec: Spec, order: list[str]) -> set[str]:
    """Return the pods that are bound after all steps."""
    for step in order:
        await scheduler.perform(step, spec)
    scheduler.made.clock.advance(60.0)
    await settle(scheduler.made)
    return set(scheduler.made.bound)


SPECS = st.one_of(st.builds(with_field, st.sampled_from(PARTS), NAMES), st.sampled_from(UNSUPPORTED).map(VALID.__or__))


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(spec=SPECS, order=st.permutations(STEPS))
async def test_unsupported_fields_prevent_binding(version: str, spec: Spec, order: list[str]) -> None:
    """No member is bound, the message names the field, and a group without the field is scheduled."""
    scheduler = StartingScheduler(version)
    assert await bound_with(scheduler, spec, order) == set()
    assert "cannot be scheduled: spec." in scheduler.made.queue.gangs.obstacle(KEY)
    scheduler.receive(VALID, "uid-2")
    await settle(scheduler.made)
    assert set(scheduler.made.bound) == {"train-0", "train-1"}


# -- planted bugs ------------------------------------------------------------------------------------------------------


def _without(spec: Spec, path: str) -> Spec:
    """Return a spec without the field at a path such as ``spec.a.b[0].c``, as a lenient decoder reads it."""
    spec = copy.deepcopy(spec)
    *parents, last = path.removeprefix("spec.").replace("[", ".").replace("]", "").split(".")
    target: Any = spec
    for step in parents:
        target = target[int(step)] if step.isdigit() else target[step]
    del target[last]
    return spec


def _lenient(version: str) -> Callable[[NativeGroup], PodGroup]:
    """Return a translation that drops unsupported fields."""

    def translate(resource: NativeGroup) -> PodGroup:
        try:
            return TRANSLATIONS[version](resource)
        except UnsupportedGroupError as error:
            return translate(NativeGroup(resource.metadata, _without(resource.spec, error.problems[0].path)))

    return translate


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("spec", [*(with_field(part, "unknown") for part in PARTS), VALID | UNSUPPORTED[3]])
async def test_a_lenient_decoder_violates_the_law(version: str, spec: Spec) -> None:
    """With a decoder that drops fields, members are bound."""
    scheduler = StartingScheduler(version, {version: _lenient(version)})
    assert await bound_with(scheduler, spec, list(STEPS)) != set()


async def test_ungated_members_of_a_rejected_group_violate_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the gate for members of rejected groups, members are bound as single pods."""
    monkeypatch.setattr(gang_registry, "group_key_of", lambda *_: None)
    scheduler = StartingScheduler("v1beta1")
    assert await bound_with(scheduler, with_field((), "unknown"), list(STEPS)) != set()
