"""The routes of the gateway: each is a caller's right, a request decoded, and a reply encoded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from qframe.admin.totals import summed
from qframe.cloud_events import BATCHED, STRUCTURED, batched, binary, structured
from qframe.errors import BadOption, QFrameError, TopicFull
from qframe.outcomes import Outcome, Published
from qframe.producing.outgoing import Outgoing
from qframe.topic import Kind, checked_group, checked_key, checked_name
from qframe.web.gateway.asking import AskingLayer, begin_request
from qframe.web.gateway.callers import Caller, Callers, GatewayRight
from qframe.web.gateway.forwarding import FORWARDED, Forwarder
from qframe.web.gateway.gateway import Gateway
from qframe.web.gateway.openapi import openapi
from qframe.web.gateway.problem_json import NOT_SERVED, problem_of, unsettled
from qframe.web.gateway.published_lines import published_lines
from qframe.web.gateway.request_parts import (
    JSON,
    LINES,
    LinesResponse,
    content_type,
    decoded,
    idempotency_key,
    messages_of,
    read_body,
    require_json,
    require_uncompressed,
    require_utf8_path,
    too_many,
    unless_gone,
)
from qframe.web.gateway.wire import (
    MOST_MESSAGES,
    DeliveriesOut,
    HealthOut,
    MovedOut,
    NothingIn,
    PublishedListOut,
    PublishedOut,
    PublishRequest,
    PullIn,
    SettledOut,
    SettleIn,
    StatsOut,
    TimerChangeIn,
    TimerIn,
    TopicIn,
    TopicOut,
    delivery_out,
    lease_of,
    wait_of,
)
from qframe.web.parameters import check_parameters

MOST_BYTES: Final = 8 * 2**20
PULLED_BYTES: Final = 4 * 2**20

Decoded = TypeVar("Decoded")
Endpoint = Callable[[Request, Caller], Awaitable[Response]]
_encode = msgspec.json.encode


class GatewayRoutes:
    """The HTTP front of a gateway.

    Args:
        gateway: the gateway.
        callers: finds out who calls.
        forwarder: passes settlements on to other gateways.
        most_bytes: the largest request; a stream's lines may be as long, each.
        others: the routes of other fronts.
    """

    def __init__(
        self,
        gateway: Gateway,
        callers: Callers,
        forwarder: Forwarder,
        *,
        most_bytes: int = MOST_BYTES,
        others: Sequence[Route] = (),
    ) -> None:
        self._gateway = gateway
        self._callers = callers
        self._forwarder = forwarder
        self._most_bytes = most_bytes
        self._others = others
        self._openapi = _encode(openapi())

    def starlette(self) -> Starlette:
        """The app of all routes."""
        messages = "/v1/topics/{topic}/messages"
        group = "/v1/topics/{topic}/groups/{group}"
        timer = "/v1/timers/{topic}/{key:path}"

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with self._gateway:
                yield

        requests, sizes = self._gateway.requests, self._gateway.sizes
        app = Starlette(
            routes=[
                self._route(messages, POST=self._publish),
                self._route(f"{group}/pull", POST=self._pull),
                self._route(f"{group}/settle", POST=self._settle),
                self._route(f"{group}/stats", GET=self._stats),
                self._route(group, PUT=self._subscribe),
                self._route("/v1/topics/{topic}", PUT=self._declare),
                self._route(
                    timer, PUT=self._set_timer, PATCH=self._edit_timer, DELETE=self._cancel_timer
                ),
                Route("/v1/openapi.json", self._described),
                Route("/openapi.json", self._described),
                Route("/livez", self._live),
                Route("/readyz", self._ready),
                *self._others,
            ],
            exception_handlers=NOT_SERVED,
            middleware=[Middleware(AskingLayer, requests=requests, sizes=sizes)],
            lifespan=lifespan,
        )
        # A redirect would name the request's own host, and http where a proxy has taken off TLS.
        app.router.redirect_slashes = False
        return app

    def _route(self, path: str, **endpoints: Endpoint) -> Route:
        """A route for callers who are known, by method; its errors are problems."""

        async def guarded(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            try:
                caller = self._callers.caller(request)
                await begin_request(caller.client)
                check_parameters(request)
                if method in ("GET", "DELETE"):
                    await self._json(request, NothingIn, caller)
                return await endpoints[method](request, caller)
            except QFrameError as error:
                return problem_of(error)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            except Exception as error:
                self._gateway.app.events.emit("http.failed", path=path, error=error)
                return problem_of(error)

        return Route(path, guarded, methods=list(endpoints))

    # Publishing.

    async def _publish(self, request: Request, caller: Caller) -> Response:
        topic = checked_name(request.path_params["topic"], "topic")
        caller.require("publish", topic)
        kind = content_type(request)
        key = idempotency_key(request)
        if kind == LINES:
            if key is not None:
                why = "it does not hold for a stream of lines"
                raise BadOption("Idempotency-Key", key, why, "give each line an id")
            require_uncompressed(request)
            await self._gateway.in_thread(self._gateway.app.parts.catalog().resolve, topic)
            return LinesResponse(
                published_lines(self._gateway, topic, request, caller, self._most_bytes)
            )
        body = await self._body(request, caller)
        if "ce-specversion" in request.headers:
            items, many = await self._events(topic, [binary(request.headers, body)]), False
        elif kind == STRUCTURED:
            items, many = await self._events(topic, [structured(body)]), False
        elif kind == BATCHED:
            items, many = await self._events(topic, batched(body, MOST_MESSAGES)), True
        else:
            require_json(kind)
            items, many = messages_of(decoded(body, PublishRequest))
        if key is not None:
            for place, item in enumerate(items):
                if item.id is not None:
                    raise BadOption(
                        "Idempotency-Key", key, "the message has an id too", "give one of them"
                    )
                item.id = f"{key}:{place}" if many else key
        if not items:
            return _reply(PublishedListOut([]))
        if len(items) > (most := caller.most_messages(MOST_MESSAGES)):
            raise too_many(len(items), most)
        caller.take(len(items))
        published = await self._gateway.publish(topic, items)
        if all(one.outcome is Outcome.FULL for one in published):
            raise TopicFull(topic, published)
        found = [PublishedOut(one.id, one.outcome) for one in published]
        return _reply(PublishedListOut(found) if many else found[0])

    async def _events(self, topic: str, items: list[Outgoing]) -> list[Outgoing]:
        """Events as the topic takes them: a sequence is a mere attribute unless it is ordered."""
        if any(item.sequence is not None for item in items):
            resolve = self._gateway.app.parts.catalog().resolve
            if (await self._gateway.in_thread(resolve, topic)).kind is not Kind.ORDERED:
                for item in items:
                    item.sequence = None
        return items

    # Consuming.

    async def _pull(self, request: Request, caller: Caller) -> Response:
        topic, group = self._group(request, caller, "consume")
        asked = await self._json(request, PullIn, caller)
        wait_s, lease_s = wait_of(asked.wait), lease_of(asked.lease)
        most = caller.room(asked.max)
        caller.take(1)
        await self._make(topic, group, caller)
        pulling = self._gateway.pull(
            topic, group, most=most, most_bytes=PULLED_BYTES, wait_s=wait_s, lease_s=lease_s,
            client=caller.client,
        )  # fmt: skip
        opened, is_gone = await unless_gone(request, pulling)
        if is_gone:
            self._gateway.put_back(topic, group, opened)
            opened = []
        return _reply(DeliveriesOut([delivery_out(one) for one in opened]))

    async def _settle(self, request: Request, caller: Caller) -> Response:
        topic, group = self._group(request, caller, "consume")
        body = await self._body(request, caller)
        require_json(content_type(request))
        wanted = decoded(body, SettleIn).wanted()
        results = await self._gateway.settle(topic, group, wanted)
        if FORWARDED not in request.headers:
            authorization = request.headers.get("authorization", "")
            await self._forwarder.settle(topic, group, wanted, results, authorization)
        return unsettled(results) or _reply(SettledOut(results))

    async def _stats(self, request: Request, caller: Caller) -> Response:
        topic, group = self._group(request, caller, "consume")
        caller.take(1)
        admin = self._gateway.app.admin.acting(by=caller.name, rights="viewer")
        stats = await self._gateway.in_thread(admin.stats, topic, group)
        all_slots = summed(group, stats)
        return _reply(StatsOut(
            topic, group, all_slots.waiting, all_slots.retrying, all_slots.todo, all_slots.doing,
            all_slots.settled, all_slots.dead, all_slots.oldest_ms,
            self._gateway.open_in(topic, group),
        ))  # fmt: skip

    async def _subscribe(self, request: Request, caller: Caller) -> Response:
        """Has a group collect from now on, before anybody pulls."""
        topic, group = self._group(request, caller, "consume")
        await self._json(request, NothingIn, caller)
        caller.take(1)
        await self._make(topic, group, caller)
        resolve = self._gateway.app.parts.catalog().resolve
        found = await self._gateway.in_thread(resolve, topic)
        return _reply(TopicOut(found.name, found.kind, found.slots))

    async def _make(self, topic: str, group: str, caller: Caller) -> None:
        """Makes a group that is new, if the caller may."""
        if not await self._gateway.has_group(topic, group):
            caller.require_making(topic, group)
            is_named = caller.names(topic, group)
            await self._gateway.make_group(topic, group, is_named=is_named)

    # Topics and timers.

    async def _declare(self, request: Request, caller: Caller) -> Response:
        name = checked_name(request.path_params["topic"], "topic")
        caller.require("admin", name)
        asked = await self._json(request, TopicIn, caller)
        caller.take(1)
        known = await self._gateway.in_thread(self._gateway.app.store.topic, name)
        topic = await self._gateway.make_topic(
            asked.topic(name, known), partial(caller.may, "admin")
        )
        return _reply(TopicOut(topic.name, topic.kind, topic.slots))

    async def _set_timer(self, request: Request, caller: Caller) -> Response:
        topic, key = self._timer(request, caller)
        asked = await self._json(request, TimerIn, caller)
        item = asked.outgoing()
        caller.take(1)

        def schedule() -> Published:
            return self._gateway.app.timers.schedule(
                topic, item.body, key=key, at=asked.at, delay=asked.delay, id=item.id,
                headers=item.headers, tags=item.tags,
            )  # fmt: skip

        published = await self._gateway.in_thread(schedule)
        return _reply(PublishedOut(published.id, published.outcome))

    async def _edit_timer(self, request: Request, caller: Caller) -> Response:
        topic, key = self._timer(request, caller)
        asked = await self._json(request, TimerChangeIn, caller)
        caller.take(1)
        admin = self._gateway.app.admin.acting(by=caller.name, rights="operator")

        def edit() -> str:
            return admin.edit_timer(
                topic, key, at=asked.at, delay=asked.delay, body=asked.new_body(),
                headers=asked.headers, tags=asked.tags,
            ).value  # fmt: skip

        return _reply(MovedOut(await self._gateway.in_thread(edit)))  # type: ignore[arg-type]

    async def _cancel_timer(self, request: Request, caller: Caller) -> Response:
        topic, key = self._timer(request, caller)
        caller.take(1)
        admin = self._gateway.app.admin.acting(by=caller.name, rights="owner")
        moved = await self._gateway.in_thread(admin.cancel_timer, topic, key)
        return _reply(MovedOut(moved.value))

    # What is open to all.

    async def _described(self, _: Request) -> Response:
        return Response(self._openapi, media_type=JSON)

    async def _live(self, _: Request) -> Response:
        return _reply(HealthOut("ok"))

    async def _ready(self, _: Request) -> Response:
        if self._gateway.stopping.is_set():
            return _reply(HealthOut("stopping"), 503)
        try:
            await self._gateway.in_thread(self._gateway.app.store.now_ms)
        except QFrameError as error:
            return problem_of(error)
        return _reply(HealthOut("ok"))

    # Parts of requests.

    def _group(self, request: Request, caller: Caller, right: GatewayRight) -> tuple[str, str]:
        topic = checked_name(request.path_params["topic"], "topic")
        group = checked_group(request.path_params["group"])
        caller.require(right, topic, group)
        return topic, group

    def _timer(self, request: Request, caller: Caller) -> tuple[str, str]:
        topic = checked_name(request.path_params["topic"], "topic")
        caller.require("publish", topic)
        require_utf8_path(request)
        return topic, checked_key(request.path_params["key"])

    async def _json(self, request: Request, kind: type[Decoded], caller: Caller) -> Decoded:
        """A body of JSON; none at all counts as an empty object."""
        body = await self._body(request, caller)
        if body:
            require_json(content_type(request))
        return decoded(body or b"{}", kind)

    async def _body(self, request: Request, caller: Caller) -> bytes:
        return await read_body(request, caller.most_bytes(self._most_bytes))


def _reply(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type=JSON)
