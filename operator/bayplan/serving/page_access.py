"""Decides who may read the data of the page.

Local requests need no token, as for ``/debug``: the API server has authorized their port-forward. All other callers
need a token whose user may get ``/page/data`` and list what the page shows. The API server's proxy strips
Authorization, so the token may be in a header of its own; a browser sends neither to another site.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from bayplan.serving.authorization import Denial, Permission, RequestAuthorization, bearer_token
from bayplan.serving.same_host_access import is_local

TOKEN_HEADER = "X-Bayplan-Token"  # noqa: S105 - the name of a header
PERMISSIONS = (
    Permission("get", path="/page/data"),
    Permission("list", resource="pods"),
    Permission("list", resource="nodes"),
)
_NO_AUTHORIZATION = (
    "requests from other hosts are not accepted; use kubectl port-forward to the port of localAddress, or set "
    "authorizeRequests"
)
_REMEDIES = {
    HTTPStatus.UNAUTHORIZED: "; kubectl create token creates one",
    HTTPStatus.FORBIDDEN: "; bind the ClusterRole of the page, see docs/operate/page.md",
}


class PageAccess:
    """Authorization of requests for data.

    Args:
        authorization: Reviews of tokens; None rejects callers from other hosts.
        is_trusted: Returns whether a request needs no token.
    """

    def __init__(
        self,
        authorization: RequestAuthorization | None,
        is_trusted: Callable[[web.Request], bool] = is_local,
    ) -> None:
        self._authorization = authorization
        self._is_trusted = is_trusted

    async def denial(self, request: web.Request) -> Denial | None:
        """Return why a request is rejected; None if it is accepted."""
        if self._is_trusted(request):
            return None
        if self._authorization is None:
            return Denial(HTTPStatus.FORBIDDEN, _NO_AUTHORIZATION)
        token = request.headers.get(TOKEN_HEADER, "").strip() or bearer_token(request)
        denial = await self._authorization.denial(token, PERMISSIONS, origin=request.remote or "")
        return None if denial is None else Denial(denial.code, denial.message + _REMEDIES.get(denial.code, ""))
