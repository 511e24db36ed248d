"""The options of format `qframe`, which are texts, and the rules for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from qframe.codec import MAX_BODY, checked_id
from qframe.digits import whole_number
from qframe.errors import BadInput, BadOption, BadTopic, TopicMismatch, UnknownTopic
from qframe.options.rules import refuse_unknown
from qframe.stores.base import Store
from qframe.stores.open import open_store
from qframe.topic import MAX_SLOTS, Kind, Topic, checked_group, checked_name, span_of

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MAX_JOB: Final = 64

# Those that Spark itself puts among a source's options.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "__stream_writer", "outputmode"})
_PLACE: Final = ("store", "timersDb", "namespace", "topic")

T = TypeVar("T")


class TopicAddress(msgspec.Struct, frozen=True):
    """The address of a topic: all that a task needs to find it.

    Attributes:
        store: the store's URL.
        namespace: its namespace.
        topic: the topic, as declared.
        is_new: whether it is still to be declared.
        timers_db: beside Redis, the URL of the database in which topics of kind `delay` lie.
    """

    store: str
    namespace: str
    topic: Topic
    is_new: bool = False
    timers_db: str = ""

    def open(self) -> Store:
        """The store; whoever opens it closes it."""
        return open_store(self.store, namespace=self.namespace, timers_db=self.timers_db)

    def declare(self) -> None:
        """Declares the topic, if it is new; once everything else was found right."""
        if self.is_new:
            store = self.open()
            try:
                store.declare(self.topic)
            finally:
                store.close()


class WriteOptions(msgspec.Struct, frozen=True):
    """How rows become messages.

    Attributes:
        job: the job's id, from which ids are made; None where none was given.
        id_columns: the columns whose values make a row's id; empty where there are none.
        batch: how many rows go to the store in one call; None where none was given.
        max_body: the largest body, in bytes.
    """

    job: str | None
    id_columns: tuple[str, ...]
    batch: int | None
    max_body: int


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a read.

    Attributes:
        group: the group whose dead letters are read, or that is moved behind the reader.
        dead: whether dead letters are read.
        starting: `earliest`, `latest`, or the first offset of each slot.
        ending: `latest`, or the offset behind the last of each slot.
        per_trigger: how many messages a streaming batch has at most; None for all there are.
        fail_on_loss: whether messages that are gone are an error.
        raw: whether bodies are bytes, not texts.
        pushes: whether a query's filters narrow what is read.
    """

    group: str | None
    dead: bool
    starting: str | dict[int, int]
    ending: str | dict[int, int]
    per_trigger: int | None
    fail_on_loss: bool
    raw: bool
    pushes: bool


WRITING: Final = (*_PLACE, "kind", "slots", "jobId", "idColumns", "batchSize", "maxBody")
READING: Final = (
    *_PLACE, "kind", "slots", "group", "deadLetters", "startingOffsets", "endingOffsets",
    "maxMessagesPerTrigger", "failOnDataLoss", "bodyType",
    "pushFilters",
)  # fmt: skip


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write, but for the address.

    Raises:
        BadOption: if one of them is unknown or wrong.
    """
    options = _known(given, WRITING)
    return WriteOptions(
        job=_of(options, "jobId", _job, None),
        id_columns=_of(options, "idColumns", _names, ()),
        batch=_of(options, "batchSize", _whole("batchSize", 1, 10_000), None),
        max_body=_of(options, "maxBody", _whole("maxBody", 1, 2**30), MAX_BODY),
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read, but for the address.

    Raises:
        BadOption: if one of them is unknown, wrong, or at odds with another.
    """
    options = _known(given, READING)
    read = ReadOptions(
        group=_of(options, "group", checked_group, None),
        dead=_of(options, "deadLetters", _flag("deadLetters"), False),
        starting=_of(options, "startingOffsets", _offsets("startingOffsets"), EARLIEST),
        ending=_of(options, "endingOffsets", _offsets("endingOffsets"), LATEST),
        per_trigger=_of(
            options, "maxMessagesPerTrigger", _whole("maxMessagesPerTrigger", 1, 2**31 - 1), None
        ),
        fail_on_loss=_of(options, "failOnDataLoss", _flag("failOnDataLoss"), True),
        raw=_of(options, "bodyType", _body_type, "string") == "binary",
        pushes=_of(options, "pushFilters", _flag("pushFilters"), False),
    )
    if read.dead and read.group is None:
        raise BadOption(
            "option group",
            None,
            "dead letters belong to a group",
            "name the group with option group",
        )
    _refuse_backwards(read.starting, read.ending)
    if read.ending == EARLIEST:
        raise BadOption(
            "option endingOffsets", EARLIEST, "no message lies before the first",
            f"use {LATEST}, or offsets such as {{\"0\": 100}}",
        )  # fmt: skip
    return read


def address_of(given: Mapping[str, str], *, may_be_new: bool) -> TopicAddress:
    """The topic that is meant, as it is declared; nothing is written.

    Args:
        given: the options.
        may_be_new: whether it may be one that is still to be declared, as options `kind` and
            `slots` say.

    Raises:
        BadInput: if it is not named, not known, or declared otherwise than the options say.
    """
    options = _known(given, (*WRITING, *READING))
    url = _needed(options, "store", "name it by its URL, such as redis://localhost:6379")
    name = checked_name(_needed(options, "topic", "name the topic"), "topic")
    namespace = _of(options, "namespace", lambda text: checked_name(text, "namespace"), "qframe")
    kind = _of(options, "kind", _kind, None)
    slots = _of(options, "slots", _whole("slots", 1, MAX_SLOTS), None)
    timers_db = options.get("timersDb", "")
    store = open_store(url, namespace=namespace, timers_db=timers_db)
    try:
        found = store.topic(name)
    finally:
        store.close()
    if found is None:
        if kind is None or not may_be_new:
            raise UnknownTopic(name)
        new = Topic(name, kind, 16 if slots is None else slots)
        return TopicAddress(url, namespace, new, True, timers_db)
    if kind is not None and kind != found.kind:
        raise TopicMismatch(name, "kind", str(found.kind), str(kind))
    if slots is not None and not found.has_been(slots):
        raise TopicMismatch(name, "slots", str(found.slots), str(slots))
    return TopicAddress(url, namespace, found, timers_db=timers_db)


def check_slots(options: ReadOptions, topic: Topic) -> None:
    """Refuses offsets of slots that a topic does not have.

    Raises:
        BadOption: naming the option.
    """
    for name, asked in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        unknown = set() if isinstance(asked, str) else set(asked).difference(topic.all_slots)
        if unknown:
            raise BadOption(
                f"option {name}", max(unknown), f"the slots are {span_of(topic)}",
                "name slots that the topic has",
            )  # fmt: skip


def _refuse_backwards(starting: str | dict[int, int], ending: str | dict[int, int]) -> None:
    """Refuses a slot that would begin behind its end: nothing of it would be read.

    Raises:
        BadOption: naming the end.
    """
    if isinstance(starting, str) or isinstance(ending, str):
        return
    for slot, offset in sorted(ending.items()):
        if offset < starting.get(slot, 0):
            raise BadOption(
                "option endingOffsets", {slot: offset},
                f"startingOffsets begins behind it, at {starting[slot]}",
                "give it the larger offset, or leave it out",
            )  # fmt: skip


def _offsets_by_slot(text: str, what: str) -> dict[int, int]:
    """Offsets by slot, from JSON such as `{"0": 12, "1": 0}`."""
    try:
        found = msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise BadOption(
            what, text, f"it is not an object of offsets by slot ({error})",
            f'use {EARLIEST}, {LATEST}, or such as {{"0": 12, "1": 0}}',
        ) from None  # fmt: skip
    if any(slot < 0 or offset < 0 for slot, offset in found.items()):
        raise BadOption(what, text, "slots and offsets count from 0", 'write it like {"0": 12}')
    return found


def _known(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The options by their names as documented; Spark does not mind how they are written."""
    by_lower = {name.lower(): name for name in names}
    options = {}
    for name, value in given.items():
        if name.lower() in _SPARKS:
            continue
        if name.lower() not in by_lower:
            refuse_unknown("option", name, names, "spark")
        options[by_lower[name.lower()]] = value
    return options


def _of(options: Mapping[str, str], name: str, rule: Callable[[str], T], default: Any) -> Any:
    """An option's value by its rule; what breaks the rule is told with the option's name."""
    if name not in options:
        return default
    try:
        return rule(options[name])
    except BadInput as error:
        if error.what.startswith("option"):
            raise
        raise BadOption(f"option {name}", options[name], error.why, error.remedy) from None


def _needed(options: Mapping[str, str], name: str, remedy: str) -> str:
    if not (value := options.get(name)):
        raise BadOption(f"option {name}", value, "it is missing", remedy)
    return value


def _whole(name: str, least: int, most: int) -> Callable[[str], int]:
    def rule(text: str) -> int:
        with suppress(ValueError):
            if least <= (number := whole_number(text.strip(" "))) <= most:
                return number
        raise BadOption(
            f"option {name}", text, f"it must be a whole number from {least} to {most}",
            "use a number in this range",
        )  # fmt: skip

    return rule


def _flag(name: str) -> Callable[[str], bool]:
    def rule(text: str) -> bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise BadOption(f"option {name}", text, "it must be true or false", "use true or false")

    return rule


def _offsets(name: str) -> Callable[[str], str | dict[int, int]]:
    def rule(text: str) -> str | dict[int, int]:
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        return _offsets_by_slot(text, f"option {name}")

    return rule


def _kind(text: str) -> Kind:
    try:
        return Kind(text)
    except ValueError:
        raise BadTopic(
            "option kind", text, "there is no such kind", f"use one of {', '.join(Kind)}"
        ) from None


def _job(text: str) -> str:
    if len(checked_id(text)) > MAX_JOB:
        raise BadOption("option jobId", text, f"it is longer than {MAX_JOB}", "use a shorter one")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise BadOption(
            "option idColumns", text, "it is not a list of columns", "write it like order_id,line"
        )
    return names


def _body_type(text: str) -> str:
    if text in ("string", "binary"):
        return text
    raise BadOption("option bodyType", text, "there is no such type", "use string or binary")
