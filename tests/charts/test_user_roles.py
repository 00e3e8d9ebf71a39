"""The roles for people: who views, who edits and who administers, asked of the real API server.

Why each role is bound by what its labels say: no controller manager runs here to join rules to Kubernetes' own roles.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from tests.charts.conftest import Helm

pytestmark = pytest.mark.cluster

_ROLES = ("-view", "-edit-podgroups", "-admin-profiles")
_RELEASE = "people"
_JOINS = "rbac.authorization.k8s.io/aggregate-to-"
_OF_NAMESPACE = ("view", "edit", "admin")
_CLUSTER_SCOPED = ("schedulerprofiles", "pluginconfigs")
_GRANT_SECONDS = 120.0
_POLL_SECONDS = 0.05


@pytest.fixture(scope="module")
def api(chart_plane: ControlPlane) -> Iterator[ApiClient]:
    """A client of the administrator."""
    with ApiClient(chart_plane) as api:
        yield api


@pytest.fixture(scope="module")
def namespace_of_people(helm: Helm, chart_plane: ControlPlane, api: ApiClient) -> Iterator[str]:
    """A namespace with a viewer, an editor and an admin, and two that are bound everywhere."""
    namespace = _RELEASE
    chart_plane.kubectl("create", "namespace", namespace)
    rendered = yaml.safe_load_all(helm.template({"fullnameOverride": _RELEASE}, namespace))
    roles = [one for one in rendered if one and one["metadata"]["name"].endswith(_ROLES)]
    bindings = []
    for role in roles:
        name, labels = role["metadata"]["name"], role["metadata"]["labels"]
        joined = [who for who in _OF_NAMESPACE if labels.get(f"{_JOINS}{who}") == "true"]
        bindings += [_binding("RoleBinding", name, who, namespace) for who in joined]
        everywhere = {"-view": "auditor", "-admin-profiles": "profiles"}.get(
            name.removeprefix(f"{namespace}:{_RELEASE}")
        )
        if everywhere is not None:
            bindings.append(_binding("ClusterRoleBinding", name, everywhere, namespace))
    manifests = yaml.safe_dump_all([*roles, *bindings])
    chart_plane.kubectl("apply", "--filename=-", input=manifests)
    wait_until_granted(api, namespace)
    yield namespace
    chart_plane.kubectl("delete", "--filename=-", input=manifests)
    chart_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def _binding(kind: str, role: str, who: str, namespace: str) -> dict[str, Any]:
    within = {"namespace": namespace} if kind == "RoleBinding" else {}
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": f"{role}:{who}", **within},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": f"{namespace}-{who}"}],
    }


def is_allowed(api: ApiClient, who: str, verb: str, resource: str, namespace: str) -> bool:
    """Whether somebody may do something, as the API server says."""
    name, _, group = resource.partition(".")
    asked = {"verb": verb, "group": group, "resource": name}
    asked["namespace"] = "" if name in _CLUSTER_SCOPED else namespace
    return api.is_allowed(f"{namespace}-{who}", resourceAttributes=asked)


def wait_until_granted(api: ApiClient, namespace: str) -> None:
    """Wait until the API server has taken notice of the roles and bindings, which it does in its own time."""
    deadline = time.monotonic() + _GRANT_SECONDS
    granted = [("get", "podgroups.bayplan.dev", who) for who in ("view", "auditor")]
    granted += [("create", "podgroups.bayplan.dev", who) for who in ("edit", "admin")]
    granted.append(("patch", "schedulerprofiles.bayplan.dev", "profiles"))
    while not all(is_allowed(api, who, verb, resource, namespace) for verb, resource, who in granted):
        assert time.monotonic() < deadline, "the bindings were never taken notice of"
        time.sleep(_POLL_SECONDS)


@pytest.mark.parametrize(
    ("verb", "resource", "people"),
    [
        pytest.param("get", "podgroups.bayplan.dev", {*_OF_NAMESPACE, "auditor"}, id="read PodGroups"),
        pytest.param("create", "podgroups.bayplan.dev", {"edit", "admin"}, id="make PodGroups"),
        pytest.param("delete", "podgroups.bayplan.dev", {"edit", "admin"}, id="delete PodGroups"),
        pytest.param("watch", "schedulerprofiles.bayplan.dev", {"auditor", "profiles"}, id="read profiles"),
        pytest.param("patch", "schedulerprofiles.bayplan.dev", {"profiles"}, id="write profiles"),
        pytest.param("create", "pluginconfigs.bayplan.dev", {"profiles"}, id="write PluginConfigs"),
        pytest.param("list", "controllerrevisions.apps", {"profiles"}, id="read revisions"),
        pytest.param("create", "controllerrevisions.apps", set(), id="forge revisions"),
    ],
)
def test_what_people_may_do(
    api: ApiClient, namespace_of_people: str, verb: str, resource: str, people: set[str]
) -> None:
    """Viewers read, editors write PodGroups, and nobody writes profiles who was not given the role for it."""
    everybody = (*_OF_NAMESPACE, "auditor", "profiles")
    allowed = {who for who in everybody if is_allowed(api, who, verb, resource, namespace_of_people)}
    assert allowed == people


@pytest.mark.parametrize(
    ("given", "made"),
    [
        pytest.param({}, 3, id="defaults"),
        pytest.param({"rbac": {"userRoles": False}}, 0, id="not wanted"),
        pytest.param({"rbac": {"create": False}}, 0, id="rights are somebody else's"),
    ],
)
def test_they_follow_the_values(helm: Helm, given: dict[str, Any], made: int) -> None:
    """They are made unless one value or the other says no, and nothing binds them."""
    objects = [one for one in yaml.safe_load_all(helm.template(given)) if one]
    names = [one["metadata"]["name"] for one in objects if one["metadata"]["name"].endswith(_ROLES)]
    assert len(names) == made
    assert not any(one.get("roleRef", {}).get("name") in names for one in objects)
