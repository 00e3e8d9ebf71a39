"""TokenReview and SubjectAccessReview: authentication and authorization of a caller by the API server.

The API server supports every kind of token and every authorizer; an operator that evaluated roles itself would need the
right to read all of them. Nothing is cached here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import ClusterWriteError

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_SECONDS = 4.0
"""Timeout of a review: both reviews of a request end before the usual scrape timeout of ten seconds."""


class User(msgspec.Struct, frozen=True, rename="camel"):
    """Authenticated user of a TokenReview.

    Attributes:
        extra: Information that authenticators pass to authorizers.
    """

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Access(msgspec.Struct, frozen=True):
    """Decision of a SubjectAccessReview."""

    allowed: bool = False
    reason: str = ""


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessReview(msgspec.Struct, frozen=True):
    status: Access = Access()


R = TypeVar("R", _TokenReview, _AccessReview)


class AccessReviews:
    """Client for both reviews."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._tokens = ObjectJsonDecoder(_TokenReview)
        self._access = ObjectJsonDecoder(_AccessReview)

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token; None for a token that the API server does not accept.

        Args:
            audience: Audience of the token; "" for the API server itself.

        Raises:
            ClusterWriteError: The request failed.
        """
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        review = await self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec, self._tokens)
        status = review.status
        # An authenticator that ignores audiences accepts any token and returns no audiences.
        is_for_audience = not audience or audience in status.audiences
        return status.user if status.authenticated and is_for_audience else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Review access to a non-resource path.

        Args:
            verb: The HTTP method in lower case.
        """
        return await self._access_of(user, {"nonResourceAttributes": {"path": path, "verb": verb}})

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        """Review access to a resource, whose API group follows the name after a dot, in a namespace; "" for all."""
        name, _, group = resource.partition(".")
        attributes = {"verb": verb, "group": group, "version": "*" if group else "v1", "resource": name}
        return await self._access_of(user, {"resourceAttributes": {**attributes, "namespace": namespace}})

    async def _access_of(self, user: User, attributes: dict[str, Any]) -> Access:
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra, **attributes}
        kind = "SubjectAccessReview"
        return (await self._review(_ACCESS, "authorization.k8s.io/v1", kind, spec, self._access)).status

    async def _review(
        self, path: str, version: str, kind: str, spec: dict[str, Any], decoder: ObjectJsonDecoder[R]
    ) -> R:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        request = ApiRequest("POST", path, body, timeout=_SECONDS, lane=Lane.REVIEWS, from_any_replica=True)
        answer = await self._connection.request(request)
        try:
            return decoder.decode(answer)
        except msgspec.DecodeError as error:
            # Without the decoder's text, which may repeat the request.
            raise ClusterWriteError(
                f"POST {path}: the response is not a {kind}; is this a Kubernetes API server?"
            ) from error
