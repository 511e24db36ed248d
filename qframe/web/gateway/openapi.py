"""The OpenAPI document, from the structs that the routes decode and encode."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from qframe.cloud_events import BATCHED, STRUCTURED
from qframe.web.gateway.wire import (
    MOST_MESSAGES,
    DeliveriesOut,
    HealthOut,
    MessageIn,
    MessagesIn,
    MovedOut,
    ProblemOut,
    PublishedListOut,
    PublishedOut,
    PullIn,
    RefusedOut,
    SettledOut,
    SettleIn,
    StatsOut,
    TimerChangeIn,
    TimerIn,
    TopicIn,
    TopicOut,
    UnknownOut,
)

_STRUCTS: Final = (
    DeliveriesOut, HealthOut, MessageIn, MessagesIn, MovedOut, ProblemOut, PublishedListOut,
    PublishedOut, PullIn, RefusedOut, SettledOut, SettleIn, StatsOut, TimerChangeIn,
    TimerIn, TopicIn, TopicOut, UnknownOut,
)  # fmt: skip
_NAME: Final = {"type": "string", "pattern": r"^(?!\.\.?$)[A-Za-z0-9_.-]{1,64}$"}
_WITHOUT_BODY: Final = ("declare", "pull")  # an empty one says: all defaults
_PROBLEMS: Final = {
    "400": "The request is wrong, or an option or name in it.",
    "401": "The caller is not known.",
    "403": "The caller has no right to this.",
    "404": "There is no such topic or group.",
    "408": "The body did not arrive in time.",
    "413": "The request is too large.",
    "415": "The content type is not one of ours.",
    "429": "The caller is at its limit, or has its share; Retry-After says when to ask again.",
    "503": "The store is away, or the gateway is stopping, or serves as many groups as it may.",
    "507": "The topic or the store is full, or there are as many groups or topics as may be made.",
}


def openapi() -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    refs, components = msgspec.json.schema_components(
        _STRUCTS, ref_template="#/components/schemas/{name}"
    )
    schema: dict[type, Any] = dict(zip(_STRUCTS, refs, strict=True))
    one_or_many = {"oneOf": [schema[MessageIn], schema[MessagesIn]]}
    outcome = {"oneOf": [schema[PublishedOut], schema[PublishedListOut]]}
    event: dict[str, Any] = {
        "type": "object", "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": {"const": "1.0"},
            **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
        },
    }  # fmt: skip
    publish = _verb(
        "publish", "Publishes a message, up to 500, or a stream of lines.",
        {
            "application/json": {"schema": one_or_many},
            "application/x-ndjson": {"schema": {"type": "string"}},
            STRUCTURED: {"schema": event},
            BATCHED: {"schema": {"type": "array", "items": event, "maxItems": MOST_MESSAGES}},
        },
        {"application/json": {"schema": outcome}, "application/x-ndjson": {
            "schema": {"oneOf": [
                schema[PublishedOut], schema[RefusedOut], schema[UnknownOut]]}}},
    )  # fmt: skip
    publish["parameters"] = [{
        "name": "Idempotency-Key", "in": "header", "required": False,
        "description": "The id of the message, or of several the beginning of their ids: sent "
        "again with the same key it is a duplicate.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.:/@+=-]{1,120}$"},
    }]  # fmt: skip
    settle = _settle(schema)
    key = {"name": "key", "in": "path", "required": True,
           "schema": {"type": "string", "minLength": 1, "maxLength": 512}}  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "qframe gateway",
            "version": "1",
            "description": "Publish, pull and settle messages of qframe from any language.",
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
        "paths": {
            "/v1/topics/{topic}": {
                "parameters": [_in_path("topic")],
                "put": _verb("declare", "Declares a topic.", _json(schema[TopicIn]),
                             _json(schema[TopicOut])),
            },
            "/v1/topics/{topic}/messages": {"parameters": [_in_path("topic")], "post": publish},
            "/v1/topics/{topic}/groups/{group}": {
                "parameters": [_in_path("topic"), _in_path("group")],
                "put": _verb("subscribe", "Makes a group, which collects from now on.", None,
                             _json(schema[TopicOut])),
            },
            "/v1/topics/{topic}/groups/{group}/pull": {
                "parameters": [_in_path("topic"), _in_path("group")],
                "post": _verb("pull", "Hands out messages, as soon as there is one.",
                              _json(schema[PullIn]), _json(schema[DeliveriesOut])),
            },
            "/v1/topics/{topic}/groups/{group}/settle": {
                "parameters": [_in_path("topic"), _in_path("group")], "post": settle,
            },
            "/v1/topics/{topic}/groups/{group}/stats": {
                "parameters": [_in_path("topic"), _in_path("group")],
                "get": _verb("stats", "Counts a group's messages.", None, _json(schema[StatsOut])),
            },
            "/v1/timers/{topic}/{key}": {
                "parameters": [_in_path("topic"), key],
                "put": _verb("setTimer", "Sets a timer.", _json(schema[TimerIn]),
                             _json(schema[PublishedOut])),
                "patch": _verb("editTimer", "Moves a timer, or changes what it says.",
                               _json(schema[TimerChangeIn]), _json(schema[MovedOut])),
                "delete": _verb("cancelTimer", "Cancels a timer.", None, _json(schema[MovedOut])),
            },
            "/livez": {"get": _open("live", "Whether the process lives.", schema[HealthOut])},
            "/readyz": {"get": _open("ready", "Whether the store replies.", schema[HealthOut])},
        },
    }  # fmt: skip


def _settle(schema: dict[type, Any]) -> dict[str, Any]:
    settle = _verb(
        "settle", "Settles deliveries, or extends their leases; each receipt has its own outcome.",
        _json(schema[SettleIn]), _json(schema[SettledOut]),
    )  # fmt: skip
    settle["responses"]["409"] = _problem("All receipts are stale; nothing was changed.")
    settle["responses"]["421"] = _problem("All receipts belong to another gateway.")
    return settle


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _verb(
    name: str, summary: str, body: dict[str, Any] | None, reply: dict[str, Any]
) -> dict[str, Any]:
    verb: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": reply},
            **{status: _problem(text) for status, text in _PROBLEMS.items()},
        },
    }
    if body is not None:
        verb["requestBody"] = {"required": name not in _WITHOUT_BODY, "content": body}
    return verb


def _open(name: str, summary: str, schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "security": [{}],
        "responses": {"200": {"description": "It does.", "content": _json(schema)}},
    }
    if name == "ready":
        found["responses"]["503"] = {
            "description": "It does not.",
            "content": {**_json(schema), **_problem("")["content"]},
        }
    return found


def _problem(text: str) -> dict[str, Any]:
    content = {"schema": {"$ref": "#/components/schemas/ProblemOut"}}
    return {"description": text, "content": {"application/problem+json": content}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _NAME}
