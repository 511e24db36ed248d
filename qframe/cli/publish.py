"""`qframe publish`: one message, or a file of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.bulk import publish_file
from qframe.cli.commands import BadCommand, check_one_of
from qframe.cli.files import MessageFile
from qframe.cli.flags import AsJson, TopicName
from qframe.cli.output import say, say_json
from qframe.cli.target import Target, targeted
from qframe.cli.times import duration_of, moment_of
from qframe.errors import BadBody, BadOption
from qframe.topic import KindName, Topic, checked_name
from qframe.verbs.parameters import argument, option

_OF_FILES = "--key-field, --body-field and --envelopes"


@targeted
def publish(
    target: Target,
    topic: TopicName,
    body: Annotated[str | None, argument("BODY", "JSON; - reads it from stdin.")] = None,
    text: Annotated[bool, option("--text", help="BODY is plain text, not JSON.")] = False,
    key: Annotated[
        str | None, option(metavar="KEY", help="Messages with one key are handled in order.")
    ] = None,
    header: Annotated[
        list[str] | None, option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, option(metavar="TAG", help="A tag; may be repeated.")] = None,
    message_id: Annotated[
        str | None,
        option("--id", metavar="ID", help="The same id with the same key again is a duplicate."),
    ] = None,
    delay: Annotated[
        str | None,
        option(
            metavar="DURATION",
            help="Due after this time: seconds, or a duration such as 500ms, 10m, 2h.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        option(metavar="TIME", help="Due at this time, such as 2026-01-31T10:00:00Z."),
    ] = None,
    priority: Annotated[
        int | None,
        option(metavar="N", help="Higher is handled first; on priority and ordered topics."),
    ] = None,
    within: Annotated[
        str | None,
        option(
            metavar="DURATION", help="On merge topics: due after this time, unless already due."
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        option(metavar="N", help="On ordered topics: its number within its key, from 1."),
    ] = None,
    slot_basis: Annotated[
        str | None,
        option(metavar="TEXT", help="Chooses the slot instead of the key, such as a customer."),
    ] = None,
    kind: Annotated[
        str | None,
        option(metavar="KIND", help="If the topic is new, declares it with this kind."),
    ] = None,
    slots: Annotated[
        int | None,
        option(metavar="N", help="If the topic is new, declares it with this many slots."),
    ] = None,
    file: Annotated[
        Path | None,
        option(metavar="FILE", help="Publishes each line of a .jsonl, .csv or .parquet."),
    ] = None,
    key_field: Annotated[
        str | None, option(metavar="FIELD", help="With --file: the field that is the key.")
    ] = None,
    body_field: Annotated[
        str | None, option(metavar="FIELD", help="With --file: the field that is the body.")
    ] = None,
    envelopes: Annotated[
        bool, option("--envelopes", help="With --file: each line has body, key, headers, ….")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publishes a message, or each line of a file.

    All lines of a file are checked before the first one is published.
    """
    check_one_of("publish", {"--delay": delay, "--at": at, "--within": within})
    options = _given(
        key=key,
        headers=_headers(header),
        tags=tag or None,
        id=message_id,
        delay=duration_of(delay),
        at=moment_of(at, "at"),
        priority=priority,
        within=duration_of(within),
        sequence=sequence,
        slot_basis=slot_basis,
    )
    declares = kind is not None or slots is not None
    if file is not None:
        if body is not None or text or options:
            raise BadCommand(
                "file", str(file), "the file holds the messages, but others were given too",
                f"use it alone, or with {_OF_FILES}",
            )  # fmt: skip
        if envelopes and (key_field or body_field):
            raise BadCommand(
                "envelopes",
                True,
                "each line of envelopes names its key and body",
                "leave out the field options",
            )
        source = MessageFile(file, key_field, body_field, envelopes)
        with target.opened(creating=declares) as app:
            publish_file(
                app,
                _topic(app, topic, kind, slots),
                source,
                as_json=as_json,
            )
        return
    if key_field or body_field or envelopes:
        raise BadCommand("body", body, f"{_OF_FILES} need --file", "add --file, or leave them out")
    message = _body(body, text)
    with target.opened(creating=declares) as app:
        published = app.publish(_topic(app, topic, kind, slots), message, **options)
    if as_json:
        say_json({"topic": topic, "id": published.id, "outcome": str(published.outcome)})
    else:
        say(f"{published.outcome} {published.id} in {topic}")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _topic(app: QFrame, name: str, asked_kind: str | None, slots: int | None) -> Topic | str:
    """The topic as it is declared; as it is to be declared, if it is new or asked for otherwise."""
    kind = cast("KindName | None", asked_kind)  # a topic refuses any other
    if kind is None and slots is None:
        return name
    known = app.store.topic(checked_name(name, "topic"))
    if known is None:
        return Topic(name, kind or "stream", 16 if slots is None else slots)
    asked = Topic(name, kind or known.kind, known.slots if slots is None else slots)
    # The rest of a topic's options stays as it is: only a mismatch is to be refused.
    return name if asked.kind == known.kind and known.has_been(asked.slots) else asked


def _body(text: str | None, is_text: bool) -> Any:
    if text is None:
        raise BadCommand(
            "command", "publish", "it has no body", "give BODY, - to read it from stdin, or --file"
        )
    if text == "-":
        text = sys.stdin.read()
        if is_text:
            text = text.removesuffix("\n")
    if is_text:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadBody(
            "body", text, f"it is not JSON ({error})", "quote it for the shell, or add --text"
        ) from None


def _headers(pairs: list[str] | None) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadOption(
                "header", pair, "it is not NAME=VALUE", "write it like --header from=shop"
            )
        headers[name] = value
    return headers or None
