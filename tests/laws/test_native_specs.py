"""Law: no member of a native PodGroup is bound if one field of the group's spec is not understood or cannot be obeyed.

It holds for every version that is read and any order of reports. The law also holds for liveness: a PodGroup without
that field, created in its place, lets the gang be placed at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from bayplan.gangs.accepted_groups import AcceptedGroups, ObservedGroup
from bayplan.gangs.foreign_group_models import NativeGroup
from bayplan.gangs.native_group_translation import NATIVE_VERSIONS, UnsupportedGroupError, from_native
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_registry import Gangs
from tests.support.builders import node, pod
from tests.support.gangs import settle
from tests.support.scheduling import rig

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
    """Return a spec with one more field in one of its parts."""
    spec = copy.deepcopy(VALID)
    found: Any = spec
    for step in part:
        found = found[step]
    found[name] = {}
    return spec


class Start:
    """A scheduler that starts while two members of a native gang wait, for which there is room."""

    def __init__(self, version: str, translations: Translations = TRANSLATIONS) -> None:
        self.made = rig(defaults=default_plugins(), serve=True)
        self.version = version
        self._translate = translations[version]
        self._accepted = AcceptedGroups(self.made.scheduler.group_feed)

    async def take(self, step: str, spec: Spec) -> None:
        """Take a step, and let the scheduler do what it can."""
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
        """Receive the object, as the watch does."""
        resource = NativeGroup(ObjectMeta(name="train", namespace="default", uid=uid), spec)
        observed = ObservedGroup(KEY, uid, 1, {}, self.version)
        try:
            group = self._translate(resource)
        except ConfigError as error:
            self._accepted.reject(observed, error)
        else:
            self._accepted.accept(observed, group)


async def bound_with(start: Start, spec: Spec, order: list[str]) -> set[str]:
    """Return the pods that are bound after all steps."""
    for step in order:
        await start.take(step, spec)
    start.made.clock.advance(60.0)
    await settle(start.made)
    return set(start.made.bound)


SPECS = st.one_of(st.builds(with_field, st.sampled_from(PARTS), NAMES), st.sampled_from(UNSUPPORTED).map(VALID.__or__))


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(spec=SPECS, order=st.permutations(STEPS))
async def test_what_is_not_understood_binds_nobody(version: str, spec: Spec, order: list[str]) -> None:
    """No member is bound, each says which field is the reason, and a group without it lets them go."""
    start = Start(version)
    assert await bound_with(start, spec, order) == set()
    assert "cannot be scheduled: spec." in start.made.queue.gangs.obstacle(KEY)
    start.receive(VALID, "uid-2")
    await settle(start.made)
    assert set(start.made.bound) == {"train-0", "train-1"}


# -- planted bugs ------------------------------------------------------------------------------------------------------


def _without(spec: Spec, path: str) -> Spec:
    """Return a spec without the field at a path such as ``spec.a.b[0].c``, as a lenient decoder reads it."""
    spec = copy.deepcopy(spec)
    *parents, last = path.removeprefix("spec.").replace("[", ".").replace("]", "").split(".")
    found: Any = spec
    for step in parents:
        found = found[int(step)] if step.isdigit() else found[step]
    del found[last]
    return spec


def _lenient(version: str) -> Callable[[NativeGroup], PodGroup]:
    """Return a translation that drops what it does not support."""

    def translate(resource: NativeGroup) -> PodGroup:
        try:
            return TRANSLATIONS[version](resource)
        except UnsupportedGroupError as error:
            return translate(NativeGroup(resource.metadata, _without(resource.spec, error.problems[0].path)))

    return translate


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("spec", [*(with_field(part, "unknown") for part in PARTS), VALID | UNSUPPORTED[3]])
async def test_a_lenient_decoder_is_found(version: str, spec: Spec) -> None:
    """A planted decoder that drops fields has its members bound, which the law forbids."""
    start = Start(version, {version: _lenient(version)})
    assert await bound_with(start, spec, list(STEPS)) != set()


async def test_members_of_a_refused_group_that_count_as_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted gate that lets members of refused groups go has them bound as single pods."""
    monkeypatch.setattr(Gangs, "key_of", lambda *_: None)
    start = Start("v1beta1")
    assert await bound_with(start, with_field((), "unknown"), list(STEPS)) != set()
