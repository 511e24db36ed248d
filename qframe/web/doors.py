"""The doors: who is turned away, and signing in and out by a token."""

from __future__ import annotations

from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from qframe.web.access import COOKIE, SIGNED_IN_S, Access, is_same_origin, split_url
from qframe.web.desk import address
from qframe.web.forms import form_of
from qframe.web.rendering import HEADERS, Renderer


class Doors:
    """The pages for those who are not let in.

    Args:
        access: says who somebody is.
        render: makes pages.
    """

    def __init__(self, access: Access, render: Renderer) -> None:
        self._access = access
        self._render = render

    def routes(self) -> list[Route]:
        """The routes for signing in and out."""
        return [
            Route("/login", self._login_page, name="login"),
            Route("/login", self._login, methods=["POST"], name="let-in"),
            Route("/logout", self._logout, methods=["POST"], name="let-out"),
        ]

    def turned_away(self, request: Request) -> Response:
        """Leads to the sign-in, but not a page that looks again, which would show it as its own."""
        root = _root_of(request)
        is_look = request.method in ("GET", "HEAD")
        if self._has_login(request) and is_look and "hx-request" not in request.headers:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(address(root, "login", to=here), 303, headers=HEADERS)
        to = "" if is_look else _page_before(request)
        status = 401 if self._access.allows_host(request) else 421
        return self._login_shown(request, to=to, status=status, is_lost=not is_look)

    def _has_login(self, request: Request) -> bool:
        return self._access.has_login and self._access.allows_host(request)

    async def _login_page(self, request: Request) -> Response:
        return self._login_shown(request, to=request.query_params.get("to", ""), status=200)

    def _login_shown(
        self, request: Request, *, to: str, status: int, name: str = "", wrong: bool = False,
        is_lost: bool = False,
    ) -> Response:  # fmt: skip
        html = self._render.page(
            "login", root=_root_of(request), wrong=wrong, has_login=self._has_login(request),
            to=to, name=name, is_lost=is_lost, title="Who is there?",
            host=None if self._access.allows_host(request) else request.headers.get("host", ""),
        )  # fmt: skip
        return HTMLResponse(html, status, headers=HEADERS)

    async def _login(self, request: Request) -> Response:
        form = await form_of(request)
        if form is None or not is_same_origin(request) or not self._has_login(request):
            return self._login_shown(request, to="", status=403, wrong=True)
        to, name = form.maybe("to") or "", form.maybe("name") or ""
        if not self._access.is_token(form.maybe("token") or ""):
            return self._login_shown(request, to=to, name=name, status=403, wrong=True)
        root = _root_of(request)
        inside = to.startswith(f"{root}/") and not to.startswith("//") and "\\" not in to
        reply = RedirectResponse(to if inside else f"{root}/", 303, headers=HEADERS)
        reply.set_cookie(
            COOKIE, self._access.cookie(name), max_age=SIGNED_IN_S, **_cookie_options(request)
        )
        return reply

    async def _logout(self, request: Request) -> Response:
        """Has the browser forget who has signed in."""
        if not is_same_origin(request):
            return self._login_shown(request, to="", status=403)
        reply = RedirectResponse(f"{_root_of(request)}/login", 303, headers=HEADERS)
        reply.delete_cookie(COOKIE, **_cookie_options(request))
        return reply


class _CookieOptions(TypedDict):
    path: str
    httponly: bool
    samesite: Literal["lax"]
    secure: bool


def _cookie_options(request: Request) -> _CookieOptions:
    """The options of the cookie; the browser says whether it speaks TLS, be it to a proxy."""
    schemes = request.url.scheme, split_url(request.headers.get("origin", "")).scheme
    return {
        "path": f"{_root_of(request)}/", "httponly": True, "samesite": "lax",
        "secure": "https" in schemes,
    }  # fmt: skip


def _root_of(request: Request) -> str:
    """The path of the console, without a slash at its end."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _page_before(request: Request) -> str:
    """The page of this console from which a form was sent; empty where that is not known."""
    sent_from = split_url(request.headers.get("referer", ""))
    if not sent_from.netloc or sent_from.netloc != request.headers.get("host"):
        return ""
    return sent_from.path + (f"?{sent_from.query}" if sent_from.query else "")
