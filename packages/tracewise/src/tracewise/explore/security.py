"""Who may talk to the explorer: a browser that was given the token, through the address that is bound.

Each response forbids scripts, styles and connections from elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SAFE_METHODS = frozenset({"GET", "HEAD"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Access:
    """The address that is bound and the token that opens it."""

    host: str
    port: int
    token: str

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that name us; another one comes from a page whose name was made to point here."""
        names = LOOPBACK if self.host in LOOPBACK else {self.host}
        return frozenset(f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}" for name in names)

    @property
    def cookie(self) -> str:
        """With the port in its name, since browsers share cookies among the ports of a host."""
        return f"tracewise_{self.port}"

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Lets a request through to ``app`` if its host, origin and token are right, and adds the headers."""

    def __init__(self, app: App, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self.refusal(scope)
        await (refusal or self.app)(scope, receive, send_with_headers)

    def refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass, None if it may."""
        headers = Headers(scope=scope)
        if headers.get("host") not in self.access.hosts:
            return PlainTextResponse("This server answers only under the address it was started with.", 421)
        if scope["method"] not in SAFE_METHODS and headers.get("origin") not in {
            f"http://{h}" for h in self.access.hosts
        }:
            return PlainTextResponse("Changes are taken only from the explorer's own pages.", 403)
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in pairs if name == "token"]
        if tokens and self.access.is_token(tokens[0]):
            rest = urlencode([(name, value) for name, value in pairs if name != "token"])
            # Only the path: a target that begins with two slashes would name another host.
            path = "/" + scope["path"].lstrip("/")
            response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            response.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="strict", path="/")
            return response
        if not self.access.is_token(HTTPConnection(scope).cookies.get(self.access.cookie, "")):
            return PlainTextResponse(
                "Open the explorer by the link that the command printed: it holds the token that this page asks for.",
                403,
            )
        return None
