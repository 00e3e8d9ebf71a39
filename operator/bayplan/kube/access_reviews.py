"""Who a bearer token belongs to, and what that user may do: asked of the API server.

Owns the two requests and their answers, TokenReview and SubjectAccessReview. It must not remember any: whoever asks
knows for how long an answer holds. Why the API server: it knows every kind of token and every authorizer, and an
operator that read roles by itself would need the right to read them all.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from scheduler_core.errors import ClusterWriteError

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_SECONDS = 4.0
"""Both reviews of one request are answered, or given up, before a scrape's usual ten seconds are over."""


class User(msgspec.Struct, frozen=True, rename="camel"):
    """Who asks, as a TokenReview tells it.

    Attributes:
        username: Such as ``system:serviceaccount:monitoring:prometheus``.
        uid: Of the account; may be empty.
        groups: That the user is in.
        extra: What authenticators add for authorizers.
    """

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Access(msgspec.Struct, frozen=True):
    """Whether a request is allowed, as a SubjectAccessReview tells it.

    Attributes:
        allowed: Whether it is.
        reason: Why, where an authorizer says it.
    """

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
    """Asks the API server.

    Args:
        connection: To it; its user needs the right to create both reviews.
    """

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._tokens = msgspec.json.Decoder(_TokenReview)
        self._access = msgspec.json.Decoder(_AccessReview)

    async def user_of(self, token: str, audience: str = "") -> User | None:
        """Return the user of a token; None for a token that the API server does not accept.

        Args:
            token: The bearer token.
            audience: For which it must have been issued; "" for the API server itself.

        Raises:
            ClusterWriteError: The API server cannot be asked.
        """
        spec: dict[str, Any] = {"token": token, **({"audiences": [audience]} if audience else {})}
        review = await self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec, self._tokens)
        status = review.status
        # An authenticator that ignores audiences accepts any token and names none.
        is_for_audience = not audience or audience in status.audiences
        return status.user if status.authenticated and is_for_audience else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Whether a user may do something to a path that is no resource's.

        Args:
            user: Who.
            verb: The HTTP method in lower case.
            path: From the root.

        Raises:
            ClusterWriteError: The API server cannot be asked.
        """
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        kind = "SubjectAccessReview"
        return (await self._review(_ACCESS, "authorization.k8s.io/v1", kind, spec, self._access)).status

    async def _review(
        self, path: str, version: str, kind: str, spec: dict[str, Any], decoder: msgspec.json.Decoder[R]
    ) -> R:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        request = ApiRequest("POST", path, body, timeout=_SECONDS, lane=Lane.REVIEWS, changes_nothing=True)
        answer = await self._connection.request(request)
        try:
            return decoder.decode(answer)
        except msgspec.DecodeError as error:
            # Without the text: it may repeat what was asked.
            raise ClusterWriteError(
                f"POST {path}: the answer is no {kind}; is this a Kubernetes API server?"
            ) from error
