"""The app: routes, the guards before each of them, and what an error looks like."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from qframe.app.qframe import QFrame
from qframe.errors import BadOption, NotAllowed, QFrameError, UnknownTopic
from qframe.shares import Share
from qframe.web.access import COOKIE, Access, Auth, is_same_origin
from qframe.web.acts import ACTS, Act
from qframe.web.bodies import Redact, named_like_a_secret, shown_body
from qframe.web.desk import Desk, Note, Visit
from qframe.web.doors import Doors
from qframe.web.forms import FORM_S, MOST_FIELDS, MOST_FORM_BYTES, Form, form_of
from qframe.web.jobs import Job
from qframe.web.pages import PAGES
from qframe.web.pages.message import explained
from qframe.web.pages.page import Page
from qframe.web.parameters import check_parameters
from qframe.web.refusals import refusal
from qframe.web.rendering import HEADERS, HERE, Renderer

if TYPE_CHECKING:
    from qframe.outbox.outbox import Outbox

AT_ONCE: Final = 40
"""How many pages and acts are made at once: as many as there are threads, half for one visitor."""


def console(
    app: QFrame,
    *,
    role: str = "reader",
    auth: Auth | None = None,
    user_header: str | None = None,
    proxies: Sequence[str] = (),
    token: str | None = None,
    environment: str = "",
    redact: Redact | None = None,
    outboxes: Sequence[Outbox] | None = None,
    prefix: str = "",
    allowed_hosts: Sequence[str] = (),
) -> ASGIApp:
    """The console of an app's store, as an ASGI app to serve or to mount.

    Without `auth`, `user_header` and `token` it lets in only this machine.

    Args:
        app: the app; its consumers are not run.
        role: of everybody who is let in without `auth`: viewer, reader, operator or owner.
        auth: returns who a request is from, a `Visitor`, or None for nobody.
        user_header: the header in which a proxy names the user whom it has let in, such as
            `X-Forwarded-User`; believed of this machine and of `proxies`.
        proxies: addresses or networks of proxies on other machines.
        token: what visitors have to know, 16 characters at the least.
        environment: the name on the badge, such as `production`.
        redact: returns by its name whether a field of a body, or a header, is hidden; by default
            those named like passwords, tokens, and numbers of cards.
        outboxes: those on the page of outboxes; by default the app's.
        prefix: the path under which browsers reach it, where no mount tells it: `/qframe`.
        allowed_hosts: the names by which browsers call it. With them, or with `user_header`, a
            request to another name is refused, unless that is `localhost` or an address.

    Raises:
        BadOption: if an option is not as described.
    """
    access = Access(
        role=role, auth=auth, user_header=user_header, proxies=proxies, token=token,
        allowed_hosts=allowed_hosts,
    )  # fmt: skip
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise BadOption("prefix", prefix, "it is no path", "write it as /qframe")
    desk = Desk(
        app, environment=environment, redact=redact or named_like_a_secret,
        outboxes=app.outboxes if outboxes is None else outboxes, known_by=access.known_by,
    )  # fmt: skip
    return _Prefixed(_ConsoleRoutes(desk, access).starlette(), prefix)


class _Prefixed:
    """Puts the prefix into a request's scope, whether a proxy has taken it off the path or not."""

    def __init__(self, inner: ASGIApp, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root, path = scope.get("root_path", ""), _path_of(scope)
            if self._prefix:
                if path != self._prefix and not path.startswith(f"{self._prefix}/"):
                    path = self._prefix + path
                if not root.endswith(self._prefix):
                    root = self._prefix
            if path == root:
                path += "/"
            scope = {**scope, "root_path": root, "path": path}
        await self._inner(scope, receive, send)


def _path_of(scope: Scope) -> str:
    """The path as it was asked for: Litestar hands it to what is mounted with a slash behind."""
    path, raw = str(scope["path"]), scope.get("raw_path") or b"/"
    return path if len(path) < 2 or raw.endswith(b"/") else path.removesuffix("/")


class _ConsoleRoutes:
    """The routes of the console."""

    def __init__(self, desk: Desk, access: Access) -> None:
        self._desk = desk
        self._access = access
        self._render = Renderer()
        self._doors = Doors(access, self._render)
        self._at_once = Share(AT_ONCE)

    def starlette(self) -> Starlette:
        """The app of all routes."""
        app = Starlette(
            routes=[
                *(Route(each.path, self._page(each), name=each.template) for each in PAGES),
                Route("/body", self._guarded(self._body), name="body"),
                Route("/do/{act}", self._act, methods=["POST"], name="act"),
                *self._doors.routes(),
                Mount("/static", _Static(directory=HERE / "static"), name="static"),
            ],
            exception_handlers={404: self._missing},
        )
        # A redirect would name the request's own host, and http where a proxy has taken off TLS.
        app.router.redirect_slashes = False
        return app

    # Pages.

    def _page(self, page: Page) -> Callable[[Request], Any]:
        def make(visit: Visit) -> Response:
            request = visit.request
            check_parameters(request, page.asks, own=("note",))
            asked = (request.url.path, request.url.query, visit.visitor.role)
            facts = self._desk.shared.get(asked, page.fresh_s, lambda: page.facts(visit))
            live = facts.get("live", page.live)
            return self._shown(visit, page.template, {**facts, "live": live})

        return self._guarded(make)

    def _body(self, visit: Visit) -> Response:
        """The body of a message as a file."""
        visit.require("body")
        check_parameters(visit.request, ("id", "topic", "key"))
        found = explained(visit, visit.asked("id") or "")
        record = next((each.record for each in found if each.record is not None), None)
        if record is None:
            raise BadOption("message", visit.asked("id"), "it is not there any more", "look again")
        body = shown_body(record, self._desk.redact, most=None)
        is_text = body.kind != "bytes"
        return Response(
            body.text.encode("utf-8", "backslashreplace") if is_text else record.body,
            media_type="text/plain; charset=utf-8" if is_text else "application/octet-stream",
            headers={
                **HEADERS,
                "content-disposition": f'attachment; filename="body.{"txt" if is_text else "bin"}"',
            },
        )

    def _guarded(self, make: Callable[[Visit], Response]) -> Callable[[Request], Any]:
        """An endpoint that is for those who are let in, in a thread, with its errors as pages."""

        async def endpoint(request: Request) -> Response:
            visitor = self._access.visitor(request)
            if visitor is None:
                return self._doors.turned_away(request)
            return await self._in_thread(Visit(self._desk, request, visitor), make)

        return endpoint

    async def _in_thread(self, visit: Visit, make: Callable[[Visit], Response]) -> Response:
        """What `make` returns, in a thread; a refusal if the visitor has its share of them."""
        name = visit.visitor.name
        if not self._at_once.take(name):
            return self._refused(visit, BadOption(
                "visitor", name, "as many of its pages are being made as it may have at once",
                "wait for these, or close some",
            ), status=429)  # fmt: skip
        try:
            return await run_in_threadpool(self._tried, visit, make)
        finally:
            self._at_once.give_back(name)

    def _tried(self, visit: Visit, make: Callable[[Visit], Response]) -> Response:
        try:
            return make(visit)
        except QFrameError as error:
            return self._refused(visit, error)
        except Exception as error:
            self._desk.app.events.emit("http.failed", path=visit.request.url.path, error=error)
            return self._refused(visit, error)

    # Acts.

    async def _act(self, request: Request) -> Response:
        visitor = self._access.visitor(request)
        if visitor is None:
            return self._doors.turned_away(request)
        visit = Visit(self._desk, request, visitor)
        if not is_same_origin(request):
            return self._refused(visit, BadOption(
                "origin", request.headers.get("origin"), "this form is not of the console's pages",
                "open the console itself, and send the form there",
            ), status=403)  # fmt: skip
        form = await form_of(request)
        if form is None:
            return self._refused(visit, BadOption(
                "form", "…", f"it has more than {MOST_FORM_BYTES} bytes or {MOST_FIELDS} fields, "
                f"or took longer than {FORM_S:g} s", "send less at once",
            ), status=413)  # fmt: skip
        return await self._in_thread(visit, lambda visit: self._done(visit, form))

    def _done(self, visit: Visit, form: Form) -> Response:
        """Does what a form asks for, then leads back to its page."""
        name = visit.part("act")
        act = ACTS.get(name)
        if act is None:
            raise BadOption("act", name, "there is no such act", f"use one of {', '.join(ACTS)}")
        visit.require(act.right)
        try:
            return self._desk.sent.reply(name, form, lambda: self._acted(act, visit, form))
        except NotAllowed:
            raise
        except QFrameError as error:
            note = Note(f"Nothing was changed: {error}", is_bad=True)
            return self._back(visit, form, note)

    def _acted(self, act: Act, visit: Visit, form: Form) -> Response:
        try:
            done = act.do(visit, form)
        finally:
            self._desk.changed()
        if isinstance(done, Job):
            return RedirectResponse(visit.url("jobs", done.number), 303, headers=HEADERS)
        return self._back(visit, form, Note(done), form.maybe("then"))

    def _back(self, visit: Visit, form: Form, note: Note, then: str | None = None) -> Response:
        """Leads back to the page of a form, with its filter, and a note of what was done.

        It leads to `then` if the form names it: its own page may be one of something that is gone.
        """
        asked = then or form.maybe("back") or ""
        path, _, query = asked.partition("?")
        inside = path.startswith(f"{visit.root}/") and "//" not in path and "\\" not in path
        target = path if inside else visit.url("")
        kept = [each for each in query.split("&") if each and not each.startswith("note=")]
        kept = kept if inside else []
        query = "&".join([*kept, f"note={self._desk.noted(note)}"])
        return RedirectResponse(f"{target}?{query}", 303, headers=HEADERS)

    # What is shown.

    def _shown(
        self,
        visit: Visit,
        template: str,
        facts: Mapping[str, Any],
        *,
        status: int = 200,
    ) -> Response:
        note = self._desk.note(visit.asked("note"))
        html = self._render.page(
            template, visit=visit, root=visit.root, url=visit.url, may=visit.may,
            environment=self._desk.environment, note=note, acts=ACTS,
            has_signed_in=self._access.has_login and COOKIE in visit.request.cookies,
            here=visit.request.url.path, back=_without_note(visit.request),
            once=secrets.token_urlsafe(9), **facts,
        )  # fmt: skip
        return HTMLResponse(html, status, headers=HEADERS)

    def _refused(self, visit: Visit, error: Exception, status: int | None = None) -> Response:
        found = refusal(error)
        known = error.known if isinstance(error, UnknownTopic) else ()
        facts = {"title": found.title, "text": found.text, "remedy": found.remedy, "known": known}
        status = status or found.status
        return self._shown(visit, "refusal", {**facts, "live": status in (429, 503)}, status=status)

    async def _missing(self, request: Request, _error: Exception) -> Response:
        visitor = self._access.visitor(request)
        if visitor is None:
            return self._doors.turned_away(request)
        facts = {
            "title": "Nothing is here", "text": "This console has no such page.", "remedy": "",
            "known": (), "live": False,
        }  # fmt: skip
        return self._shown(Visit(self._desk, request, visitor), "refusal", facts, status=404)


class _Static(StaticFiles):
    """Scripts and styles, which a browser may keep: their address has the version."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        reply = super().file_response(*args, **kwargs)
        reply.headers["cache-control"] = "public, max-age=86400"
        reply.headers["x-content-type-options"] = "nosniff"
        return reply


def _without_note(request: Request) -> str:
    """The address of a page, without the number of a note."""
    kept = [each for each in request.url.query.split("&") if each and each[:5] != "note="]
    return request.url.path + (f"?{'&'.join(kept)}" if kept else "")
