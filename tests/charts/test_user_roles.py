"""The chart's roles for users: view, edit and administration, checked with a real API server.

No controller manager runs here to aggregate rules into Kubernetes' own roles, so each role is bound by its labels.
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
from tests.support.tables import table

pytestmark = pytest.mark.cluster

_ROLES = ("-view", "-edit-podgroups", "-request-fits", "-admin-profiles", "-read-revisions")
_RELEASE = "people"
_JOINS = "rbac.authorization.k8s.io/aggregate-to-"
_OF_NAMESPACE = ("view", "edit", "admin")
_CLUSTER_SCOPED = ("schedulerprofiles", "pluginconfigs", "rebalanceplans")
_GRANT_SECONDS = 120.0
_POLL_SECONDS = 0.05


@pytest.fixture(scope="module")
def api(chart_plane: ControlPlane) -> Iterator[ApiClient]:
    """Return a client with administrator rights."""
    with ApiClient(chart_plane) as api:
        yield api


@pytest.fixture(scope="module")
def namespace_of_users(helm: Helm, chart_plane: ControlPlane, api: ApiClient) -> Iterator[str]:
    """Create a namespace with a viewer, an editor and an admin, and two users with cluster-wide bindings."""
    namespace = _RELEASE
    chart_plane.kubectl("create", "namespace", namespace)
    rendered = yaml.safe_load_all(helm.template({"fullnameOverride": _RELEASE}, namespace))
    roles = [one for one in rendered if one and one["metadata"]["name"].endswith(_ROLES)]
    bindings = []
    for role in roles:
        name, labels = role["metadata"]["name"], role["metadata"]["labels"]
        joined = [user for user in _OF_NAMESPACE if labels.get(f"{_JOINS}{user}") == "true"]
        bindings += [_binding("RoleBinding", name, user, namespace) for user in joined]
        everywhere = {"-view": "auditor", "-admin-profiles": "profiles"}.get(
            name.removeprefix(f"{namespace}:{_RELEASE}")
        )
        if everywhere is not None:
            bindings.append(_binding("ClusterRoleBinding", name, everywhere, namespace))
        if role["kind"] == "Role":
            bindings.append(_binding("RoleBinding", name, "profiles", namespace, role["kind"]))
    manifests = yaml.safe_dump_all([*roles, *bindings])
    chart_plane.kubectl("apply", "--filename=-", input=manifests)
    wait_until_granted(api, namespace)
    yield namespace
    chart_plane.kubectl("delete", "--filename=-", input=manifests)
    chart_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def _binding(kind: str, role: str, user: str, namespace: str, role_kind: str = "ClusterRole") -> dict[str, Any]:
    within = {"namespace": namespace} if kind == "RoleBinding" else {}
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": f"{role}:{user}", **within},
        "roleRef": {"apiGroup": group, "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": f"{namespace}-{user}"}],
    }


def is_allowed(api: ApiClient, user: str, verb: str, resource: str, namespace: str) -> bool:
    """Return whether the API server allows a user a verb on a resource."""
    name, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": name}
    attributes["namespace"] = "" if name in _CLUSTER_SCOPED else namespace
    return api.is_allowed(f"{namespace}-{user}", resourceAttributes=attributes)


def test_revisions_of_other_namespaces_are_not_readable(api: ApiClient, namespace_of_users: str) -> None:
    """No role for users allows reading ControllerRevisions, which have pod templates, in other namespaces."""
    for user in (*_OF_NAMESPACE, "auditor", "profiles"):
        attributes = {"verb": "list", "group": "apps", "resource": "controllerrevisions"}
        for namespace in ("", "default"):
            assert not api.is_allowed(
                f"{namespace_of_users}-{user}", resourceAttributes={**attributes, "namespace": namespace}
            )


def wait_until_granted(api: ApiClient, namespace: str) -> None:
    """Wait until the API server applies the roles and bindings, which takes a moment."""
    deadline = time.monotonic() + _GRANT_SECONDS
    granted = [("get", "podgroups.bayplan.dev", user) for user in ("view", "auditor")]
    granted += [("create", "podgroups.bayplan.dev", user) for user in ("edit", "admin")]
    granted += [("create", "fits.bayplan.dev", user) for user in ("edit", "admin")]
    granted.append(("patch", "schedulerprofiles.bayplan.dev", "profiles"))
    granted.append(("list", "controllerrevisions.apps", "profiles"))
    while not all(is_allowed(api, user, verb, resource, namespace) for verb, resource, user in granted):
        assert time.monotonic() < deadline, "the API server has not applied the bindings"
        time.sleep(_POLL_SECONDS)


@table(
    "verb, resource, users",
    ("read PodGroups", "get", "podgroups.bayplan.dev", {*_OF_NAMESPACE, "auditor"}),
    ("create PodGroups", "create", "podgroups.bayplan.dev", {"edit", "admin"}),
    ("request fits", "create", "fits.bayplan.dev", {"edit", "admin"}),
    ("create NodeReservations", "create", "nodereservations.bayplan.dev", {"profiles"}),
    ("read NodeReservations", "get", "nodereservations.bayplan.dev", {*_OF_NAMESPACE, "auditor", "profiles"}),
    ("delete PodGroups", "delete", "podgroups.bayplan.dev", {"edit", "admin"}),
    ("read profiles", "watch", "schedulerprofiles.bayplan.dev", {"auditor", "profiles"}),
    ("write profiles", "patch", "schedulerprofiles.bayplan.dev", {"profiles"}),
    ("write PluginConfigs", "create", "pluginconfigs.bayplan.dev", {"profiles"}),
    ("read revisions", "list", "controllerrevisions.apps", {"profiles"}),
    ("create revisions", "create", "controllerrevisions.apps", set()),
)
def test_rights_of_users(api: ApiClient, namespace_of_users: str, verb: str, resource: str, users: set[str]) -> None:
    """Viewers read, editors write PodGroups, and only the role for profiles allows writing profiles."""
    everyone = (*_OF_NAMESPACE, "auditor", "profiles")
    allowed = {user for user in everyone if is_allowed(api, user, verb, resource, namespace_of_users)}
    assert allowed == users


@table(
    "given, count",
    ("defaults", {}, 5),
    ("userRoles false", {"rbac": {"userRoles": False}}, 0),
    ("rbac.create false", {"rbac": {"create": False}}, 0),
)
def test_roles_follow_the_values(helm: Helm, given: dict[str, Any], count: int) -> None:
    """The roles are rendered unless rbac.userRoles or rbac.create is false, and no binding refers to them."""
    objects = [one for one in yaml.safe_load_all(helm.template(given)) if one]
    names = [one["metadata"]["name"] for one in objects if one["metadata"]["name"].endswith(_ROLES)]
    assert len(names) == count
    assert not any(one.get("roleRef", {}).get("name") in names for one in objects)
