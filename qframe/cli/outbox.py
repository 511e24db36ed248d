"""`qframe outbox`: shows the messages of an outbox, retries and drops refused ones, binds it."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from qframe.cli.asking import ask, check_chosen
from qframe.cli.bodies import body_as_json, body_as_text
from qframe.cli.flags import AsJson, By, Limit, NeverAsked, Yes
from qframe.cli.output import counted, facts, say, say_error, say_json, table
from qframe.cli.target import Target, targeted
from qframe.cli.times import ago
from qframe.clock import moment
from qframe.codec import own_headers, tags_of
from qframe.verbs.parameters import argument, option

if TYPE_CHECKING:
    from qframe.cli.outboxes import OutboxPlaces
    from qframe.outbox.inspector import Waiting

_MOST: Final = 100_000


Where = Annotated[
    str,
    argument("WHERE", "A module, as for qframe worker, or a database's URL."),
]
Prefix = Annotated[
    str | None,
    option(metavar="PREFIX", help="With a URL: the prefix of its tables; default: qframe_"),
]
Id = Annotated[str, argument("ID", "The message's id.")]
Ids = Annotated[list[str] | None, argument("ID", "The messages' ids.")]


@targeted
def list_waiting(
    target: Target,
    where: Where,
    refused: Annotated[bool, option("--refused", help="Only refused messages.")] = False,
    limit: Limit = 100,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Lists the messages of an outbox, the refused ones marked.

    A refused message holds back the later messages of its key, or of its whole topic.
    """
    with _outboxes_at(target, where, prefix, must_ask=refused) as places:
        found = [each for _, each in places.waiting(limit, refused=refused)]
        for told in filter(None, (place.moved_away for place in places.places)):
            say_error(f"{told}: see qframe outbox bind")
    if as_json:
        say_json([_as_json(each) for each in found])
    elif not found:
        say("no message is refused" if refused else "no message waits")
    else:
        table(
            ("id", "topic", "key", "stored", "why"),
            [
                (
                    each.row.id,
                    each.row.topic,
                    each.row.key,
                    ago(each.row.created_at, each.row.now),
                    _why(each),
                )
                for each in found
            ],
        )


@targeted
def show(
    target: Target,
    where: Where,
    message_id: Id,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Shows one message of an outbox, and why it waits."""
    with _outboxes_at(target, where, prefix) as places:
        found = [each for _, each in places.named([message_id])]
    if as_json:
        say_json(_as_json(found[0]))
        return
    for each in found:
        row = each.row
        say(f"waiting for topic {row.topic}: {_why(each)}")
        facts(
            [
                ("remedy", each.remedy),
                ("id", row.id),
                ("key", row.key),
                ("number", row.number),
                ("stored", f"{moment(row.created_at)}, {ago(row.created_at, row.now)}"),
                ("tried", row.sent_at and f"{moment(row.sent_at)}: it may already be in its topic"),
                ("headers", own_headers(_headers(each)) or None),
                ("options", row.options),
                ("body", body_as_text(bytes(row.body), _headers(each), limit=None)),
            ],
            indent="  ",
        )


@targeted
def retry(
    target: Target,
    where: Where,
    yes: NeverAsked = False,  # noqa: ARG001
    by: By = None,
    prefix: Prefix = None,
) -> None:
    """Makes relays try refused messages again at once.

    They do so by themselves, each time after a longer pause, of 30 s at most.
    """
    with _outboxes_at(target, where, prefix, must_ask=True, by=by) as places:
        for place in places.places:
            if place.admin is not None:
                place.admin.outbox_retry(place.outbox)
    say("relays try again within 1 s")


@targeted
def drop(
    target: Target,
    where: Where,
    ids: Ids = None,
    everything: Annotated[bool, option("--all", help="All refused messages.")] = False,
    yes: Yes = False,
    by: By = None,
    prefix: Prefix = None,
) -> None:
    """Removes messages from an outbox for good; asks first, unless --yes.

    A message that a relay has in hand at this moment is still published.
    """
    check_chosen("outbox drop", ids, everything, f"qframe outbox list {where}")
    with _outboxes_at(target, where, prefix, must_ask=True, by=by) as places:
        if ids:
            chosen = places.named(list(dict.fromkeys(ids)))
        else:
            chosen = places.waiting(_MOST, refused=True)
        if chosen and not yes:
            ask(f"Drop {counted(len(chosen), 'message')} of the outbox for good?")
        done = 0
        for place in places.places:
            some = [each for at, each in chosen if at is place]
            if some and place.admin is not None:
                done += place.admin.outbox_drop(place.outbox, some)
    say(f"{counted(done, 'message')} dropped")
    if tried := sum(each.row.sent_at is not None for _, each in chosen):
        say(f"{tried} of them may already be in their topics")


@targeted
def bind(
    target: Target,
    where: Where,
    yes: Yes = False,
    by: By = None,
    prefix: Prefix = None,
) -> None:
    """Binds an outbox to this store and namespace; asks first, unless --yes.

    Relays of another store send nothing of it. Stop the workers of the store that it leaves first:
    a message that a relay has in hand at this moment may come to both.
    """
    with _outboxes_at(target, where, prefix, must_ask=True, by=by) as places:
        for place in places.places:
            home, name = place.inspector.home(), f"the outbox {place.outbox.prefix}"
            if place.admin is None or home is None:
                continue
            if home.is_here:
                say(f"{name} belongs to {place.store} already")
                continue
            if (told := place.moved_away) is not None and not yes:
                waiting = counted(place.outbox.pending(), "message")
                ask(f"{told}. Bind it to {place.store}, with what waits ({waiting})?")
            place.admin.outbox_bind(place.outbox)
            say(f"{name} belongs to {place.store} from now on")


def _outboxes_at(
    target: Target, where: str, prefix: str | None, *, must_ask: bool = False, by: str | None = None
) -> AbstractContextManager[OutboxPlaces]:
    """The outboxes at a place; no other command pays for loading them, and SQLAlchemy."""
    from qframe.cli.outboxes import outboxes_at

    return outboxes_at(target, where, prefix, must_ask=must_ask, by=by)


def _as_json(waiting: Waiting) -> dict[str, Any]:
    row, headers = waiting.row, _headers(waiting)
    return {
        "id": row.id, "topic": row.topic, "key": row.key, "number": row.number, "line": row.line,
        "stored_at": moment(row.created_at), "tried_at": moment(row.sent_at),
        "refused": waiting.refused, "behind": waiting.behind,
        "remedy": waiting.remedy,
        "headers": own_headers(headers), "tags": list(tags_of(headers)), "options": row.options,
        **body_as_json(bytes(row.body), headers),
    }  # fmt: skip


def _headers(waiting: Waiting) -> dict[str, str]:
    """A row's headers; none where they make no sense, which is what is wrong with it."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(waiting.row.headers or "{}", type=dict[str, str])
    return {}


def _why(waiting: Waiting) -> str:
    if waiting.refused is not None:
        return f"refused: {waiting.refused}"
    if waiting.behind is not None:
        return f"behind {waiting.behind}"
    return "waits for a relay"
