"""The Redis store's scripts: each head tells what its code takes, and the store gives just that."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from typing import Any

import msgspec
import pytest
from script_heads import (
    FOLDER,
    FROM,
    HEADINGS,
    NAMES,
    bound_in,
    head_of,
    named_in,
    repeated_in,
    sections,
    text_of,
)

from qframe.codec import batch_mark
from qframe.drivers.redis import Call
from qframe.drivers.scripts import Script
from qframe.growth import Growth
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.roster import LARGEST_VERSION
from qframe.stores.bucket import DrawTerms
from qframe.stores.records import ChosenDead, HeadPlace, Record, Section
from qframe.stores.redis import (
    audit,
    controls,
    copying,
    counts,
    dead,
    groups,
    growing,
    histories,
    leases,
    publish,
    pull,
    reading,
    repair,
    rosters,
    settle,
    timers,
    topics,
    unblock,
)
from qframe.stores.redis.envelopes import META, envelope
from qframe.stores.redis.keys import SlotKeys
from qframe.stores.redis.log_readahead import LogReadahead
from qframe.stores.timer_change import TimerChange
from qframe.stores.topic_options import TopicOptions
from qframe.stores.types import Entry, LeaseRef, PullRequest, PullTerms, Settlement, StandingTerms
from qframe.topic import Topic

PARTS = sorted(path.stem for path in (FOLDER / "parts").glob("*.lua"))
MAY_NOT_FILL = {"publish_stream", "publish_subjects", "edit", "restore"}  # fmt: skip
MAX_LINES, MAX_WIDTH = 200, 100
INCLUDE = re.compile(r"^ *--@include (.+)$", re.MULTILINE)
DEFINED = re.compile(r"^local (?:function )?([\w, ]+?)(?:\(| =)", re.MULTILINE)


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a script, in sentences."""
    wrong = []
    first = "#!lua" if name in MAY_NOT_FILL else "#!lua flags=allow-oom"
    if text.splitlines()[0] != first:
        wrong.append(f"its first line is not {first}")
    head = head_of(text)
    code = text[text.index(head) + len(head) :]
    shown = [next((h for h in HEADINGS if part.startswith(h)), part) for part in sections(head)]
    if shown != list(HEADINGS):
        wrong.append(f"its head has {shown}")
    named, bound = named_in(head), bound_in(code)
    if named != bound:
        wrong.append(f"the head names {named}, the code binds {bound}")
    if {index for word, index in named if word == "ARGV"} != set(range(1, len(named))):
        wrong.append(f"the head numbers {named}")
    fixed = sum(word == "ARGV" for word, _ in bound)
    for word, index in FROM.findall(code):
        is_item = word == "ARGV" and int(index) > fixed and repeated_in(head)
        if code.count(f"{word}[{index}]") != 1 and not is_item:
            wrong.append(f"the code uses {word}[{index}] by its number")
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        wrong.append(f"it has {len(lines)} lines")
    wrong += [f"line {n} is too long" for n, line in enumerate(lines, 1) if len(line) > MAX_WIDTH]
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_head_says_what_its_code_does(name: str) -> None:
    assert faults(name, text_of(name)) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("pull", "#!lua flags=allow-oom", "#!lua", "its first line"),
        ("edit", "#!lua", "#!lua flags=allow-oom", "its first line"),
        ("pull", "-- Cost: ", "-- Price: ", "its head has"),
        ("pull", "-- Promise: ", "--   ", "its head has"),
        ("pull", "ARGV[4] epoch", "ARGV[4] era", "the head names"),
        ("pull", "ARGV[4] epoch", "ARGV[4] epochs", "the head names"),
        ("pull", "ARGV[8] max attempts, ARGV[9] run", "ARGV[9] max attempts, ARGV[8] run", "names"),
        ("pull", ", ARGV[9] run", "", "the head names"),
        ("pull", "with then).", "with then), ARGV[13] more.", "the head names"),
        ("take", "KEYS[1] slot", "KEYS[1] place", "the head names"),
        ("take", "if epoch == owner", "if ARGV[4] == owner", "uses ARGV[4] by its number"),
        ("take", "return 1", "return 1\n" * 200, "it has"),
        ("take", "return 1", "return 1" + " " * 100, "is too long"),
    ],
)
def test_a_planted_fault_is_found(name: str, old: str, new: str, fault: str) -> None:
    text = text_of(name)
    assert old in text
    found = faults(name, text.replace(old, new, 1))
    assert any(fault in each for each in found), found


def test_parts_are_there_and_all_of_them_are_used() -> None:
    included = [part for name in NAMES for found in INCLUDE.findall(text_of(name))
                for part in found.split()]  # fmt: skip
    assert sorted(set(included)) == PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_short_and_says_what_it_is(part: str) -> None:
    text = (FOLDER / "parts" / f"{part}.lua").read_text(encoding="utf-8")
    assert text.startswith("-- ")
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines())) <= MAX_WIDTH
    assert "--@include" not in text
    assert "KEYS[" not in text
    assert "ARGV[" not in text


@pytest.mark.parametrize("name", NAMES)
def test_a_script_includes_what_it_uses_and_nothing_else(name: str) -> None:
    """Parts include no parts: a script names all that it and they use, in their order."""
    text = text_of(name)
    for line in INCLUDE.finditer(text):
        below = re.sub(r"--.*", "", text[line.end() :])
        for part in reversed(line[1].split()):
            added = (FOLDER / "parts" / f"{part}.lua").read_text(encoding="utf-8")
            words = {word for found in DEFINED.findall(added) for word in found.split(", ")}
            assert words & set(re.findall(r"\w+", below)), f"{part} is not used"
            below += re.sub(r"--.*", "", added)


class Recorder:
    """Takes calls and answers each as a server would that has little to say."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.breaks = 0
        self._refused = False

    def run(self, requests: Iterable[Call], *, partly: bool = False) -> list[Any]:
        calls = list(requests)
        self.calls += calls
        return [self._reply(call) for call in calls]

    few = run

    def one(self, call: Call, *, partly: bool = False) -> Any:
        return self.run([call], partly=partly)[0]

    def ask_many(self, questions: Iterable[tuple[Any, ...]]) -> list[Any]:
        return [self.ask(*each) for each in questions]

    def ask(self, key: bytes, word: str, *words: Any) -> Any:
        if word == "ZMSCORE":
            return [b"1"]
        if word == "ZRANGE":
            return [b"\0" * 8, b"1"] if words[0] == 0 else []
        if word == "HGETALL":
            return [b"a group", b"claims"]
        if word == "HGET":
            return b"16"
        if word == "HMGET":
            one = Entry(0, "k", "dead", "dead", None, None, b"1")
            return [b"\0" * 8 + b"\0\0\0\x07" + b"\x95\xa1k\0\x01\xc2\xc2" + envelope(one)]
        return 1

    def _reply(self, call: Call) -> Any:
        name = call.script.name
        if name == "subscribe" and not self._refused:
            self._refused = True
            return [-3, b"a group"]
        numbers: dict[str, Any] = {
            "pull": [-1], "pull_stream": [-1], "drop_group": [1, 0], "subscribe": [1, b"joins"],
            "draw": [0, 1], "find_dead": [b"0"], "history": [],
            "stats": [b"0" * 16, *[0] * 9, -1, -1], "declare": [1, b"stream 1"], "offsets_at": b"0",
            "birth": b"a name", "enlist": [1, b"joins"],
        }  # fmt: skip
        if name in ("edit", "cancel", "hasten", "skip"):
            return b"absent"
        if name in (
            "publish_stream",
            "publish_subjects",
            "renew",
            "claim",
            "settle",
            "settle_stream",
            "end_stream",
        ):
            size = repeated_in(head_of(text_of(name)))
            fixed = len(named_in(head_of(text_of(name)))) - 1
            return b"s" * ((len(call.arguments) - fixed) // size)
        return numbers.get(name, 0)


def entry(number: int, **options: Any) -> Entry:
    token = f"{0:020}"
    return Entry(0, f"k{number}", f"{token}-{number}", batch_mark(token), None, None, b"1",
                 **options)  # fmt: skip


def ending(subject: str | None, seq: int) -> Settlement:
    return Settlement(0, subject, seq, "a receipt", 1, "an epoch", Verdict.RETRY)


STREAM = SlotKeys("shop", Topic("t", "stream", 1))
DELAY = SlotKeys("shop", Topic("t", "delay", 1))
SPLIT = SlotKeys("shop", DELAY.topic.grown(2, Growth(first=1)))
ASKS = [PullRequest(0, "an epoch", 7, 3, 2)]
TERMS = PullTerms("a receipt", 400, 16, 32, StandingTerms("an address", "a standing"))
HELD = [Delivery(f"id-{n}", None, None, b"1", seq=n, receipt="a receipt") for n in (1, 5)]
EPOCHS = {0: "an epoch"}

FOLLOWING = STREAM.topic.grown(1, Growth(closing=True, target=2, until_ms=9))
RECORDS = [
    Record(topic="t", group="a group", slot=0, state="todo", subject=name, seq=7, id=name, key=name,
           headers=None, body=b"1", published_at_ms=1, due_ms=1)
    for name in ("a", "b")
]  # fmt: skip

# For each script: what makes the store call it, and for how many items. `r` is the recorder.
USES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "look": (lambda r: audit.look(r, DELAY, "a group", 0, "a subject", "a member"), 0),
    "mend": (
        lambda r: repair.mend(
            r, DELAY, "a group", 0, "subject", "a subject", "a member", "a time",
        ), 0,
    ),
    "hasten": (
        lambda r: unblock.hasten(r, DELAY, "a group", HeadPlace(0, "a subject", 7), "a time"), 0,
    ),
    "skip": (
        lambda r: unblock.skip(
            r, DELAY, "a group", HeadPlace(0, "a subject", 7), "an error", True, "a time"
        ), 0,
    ),
    "restore": (
        lambda r: copying.restore(
            r, DELAY, Section(0, "behind", "a group"), RECORDS, "a time", "a token"
        ), 2,
    ),
    "history": (lambda r: histories.found(r, DELAY, "an id", 0), 0),
    "heartbeat": (lambda r: rosters.heartbeat(r, DELAY, "a group", "a member", 400, "a time"), 0),
    "cancel": (
        lambda r: timers.change_timers(
            r, DELAY, [TimerChange("a subject", cancels=True, if_due_ms=77)], "a time", by=None,
            answered={},
        ), 0,
    ),
    "edit": (
        lambda r: timers.change_timers(
            r, DELAY, [TimerChange("a subject", due_ms=5, body=b"1", if_due_ms=77)], "a time",
            by="a name", answered={},
        ), 0,
    ),
    "claim": (
        lambda r: rosters.claim(
            r, DELAY, "a group", "a member", {0: "an epoch", 5: "an epoch"}, "a time"
        ), 2,
    ),
    "declare": (lambda r: topics.declare(r, "shop", STREAM.topic), 0),
    "birth": (lambda r: topics.birth(r, DELAY, "a name"), 0),
    "retire": (lambda r: rosters.retire(r, DELAY, "a group", "a member", "a time"), 0),
    "leave": (lambda r: rosters.leave(r, DELAY, "a group", "a member", "a time"), 0),
    "draw": (
        lambda r: controls.draw(r, DELAY, "a group", DrawTerms(3, 10, 1000, 20), "a time"), 0,
    ),
    "find_dead": (lambda r: dead.dead_with(r, DELAY, [("a group", 0)], "a text"), 0),
    "report": (
        lambda r: controls.report(r, DELAY, "a group", "a worker", "a text", "a time"), 0,
    ),
    "drop_dead": (lambda r: dead.drop(r, DELAY, "a group", ChosenDead(limit=9), []), 1),
    "drop_group": (lambda r: groups.drop(r, DELAY, "a group", []), 0),
    "grow": (lambda r: growing.grow(r, STREAM, "shop", STREAM.topic, FOLLOWING, {}), 0),
    "use": (lambda r: growing.use(r, DELAY, 0, "a token", 0), 0),
    "open_slot": (lambda r: growing.open_slot(r, DELAY, 0, 2, "a token", True), 1),
    "close": (lambda r: growing.close(r, DELAY, 0, "a time"), 0),
    "discard": (lambda r: growing.discard(r, DELAY, 0, 16, 0), 0),
    "enlist": (
        lambda r: groups.subscribe(r, SPLIT, ["a group"], "earliest", 9, 7, "a time", set()), 1,
    ),
    "release_slots": (
        lambda r: rosters.release_slots(r, DELAY, "a group", "a member", [0, 5, 7], "a time"), 3,
    ),
    "offsets_at": (lambda r: groups.offsets_at(r, STREAM, 5), 0),
    "publish_stream": (
        lambda r: publish.publish(r, STREAM, [entry(n, delay_ms=1) for n in range(3)], "a time"), 3,
    ),
    "publish_subjects": (
        lambda r: publish.publish(r, DELAY, [entry(n) for n in range(3)], "a time"), 3,
    ),
    "pull": (lambda r: pull.pull(r, LogReadahead(r), DELAY, "a group", ASKS, TERMS, "a time"), 0),
    "pull_stream": (
        lambda r: pull.pull(r, LogReadahead(r), STREAM, "a group", ASKS, TERMS, "a time"), 0,
    ),
    "revoke": (lambda r: leases.revoke(r, DELAY, "a group", ASKS, "a receipt", "a time"), 0),
    "renew": (
        lambda r: leases.renew(
            r, DELAY, "a group", [LeaseRef(0, "an epoch", "k", n) for n in ("a", "b")],
            400, "a time",
        ), 2,
    ),
    "retry_dead": (
        lambda r: dead.retry(r, DELAY, "a group", ChosenDead(limit=9), "a time", []), 1,
    ),
    "roster": (lambda r: rosters.snapshot(r, DELAY, "a group", 77, "a time"), 0),
    "seek": (lambda r: groups.seek(r, STREAM, "a group", {0: 5}), 0),
    "settle": (
        lambda r: settle.settle(r, DELAY, "a group", [ending("k", 1), ending("l", 2)], "a time"), 2,
    ),
    "end_stream": (
        lambda r: settle.settle(r, STREAM, "a group", [ending(None, 1), ending(None, 2)], "a time"),
        2,
    ),
    "settle_stream": (
        lambda r: settle.acknowledge(r, STREAM, "a group", HELD, EPOCHS, "a time"), 2,
    ),
    "stats": (lambda r: counts.stats(r, DELAY, "a group", "a time"), 0),
    "subscribe": (
        lambda r: groups.subscribe(r, DELAY, ["a group"], "earliest", 9, 7, "a time", set()), 1,
    ),
    "sweep": (lambda r: topics.sweep(r, DELAY, 9, "a time"), 0),
    "tune": (
        lambda r: controls.tune(r, DELAY, "a group", {"threads": "4", "rate": None}), 2,
    ),
    "take": (lambda r: groups.take(r, DELAY, "a group", {0: "an epoch"}, "a time"), 0),
}  # fmt: skip

# What the store must give where a head names one of these.
GIVEN: dict[str, Container[Any]] = {
    "drawn": ("a name",), "fresh": range(1, LARGEST_VERSION + 1), "member": ("a member",),
    "seen": (77,), "lines": ("",),
    "seq": (7,), "error": ("an error",), "force": (1,),
    "given": ("a time",), "epoch": ("an epoch",),
    "address": ("an address",), "standing": ("a standing",),
    "receipt": ("a receipt",), "subject": ("a subject",), "kind": ("delay",), "lease": (400,),
    "max_attempts": (16,), "run": (32,), "position": (3,), "in_hand": (2,),
    "due": (5,), "time": (5,),
    "offset": (5,), "start": ("earliest",), "window": (3_600_000,), "gap_timeout": (30_000,),
    "mark": (f"{0:020}-*",), "limit": (0, 7, 9), "retain": (86_400_000,), "name": ("t", "a group"),
    "cursor": ("0",), "step": (16, 1000), "text": ("a text",), "worker": ("a worker",),
    "keeps": (0,), "history": (0,), "id": ("an id",), "key": ("",), "part": ("subject",),
    "section": ("behind",),
    "what": ("a subject",),
    "kept": (86_400_000,), "tokens": (3,), "rate": (10,), "per": (1000,), "burst": (20,),
    "max_parked": (7,),
    "expires": (9,), "identity": ("stream 1",), "body": (b"\xc4\x011",), "headers": (b"\xc0",),
    "token": ("a token",), "claimed": (1,), "anyway": (0,), "past": (0,),
    "again": (1,), "leased": (0,),
    "following": ("stream 1,0,0,1,2,9", "a token/1"),
    "options": (msgspec.json.encode(TopicOptions(86_400_000, None, 3_600_000, 30_000)),),
}  # fmt: skip


def test_every_script_is_used() -> None:
    assert sorted(USES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_store_gives_what_the_head_names(name: str) -> None:
    """As many fixed arguments as the head lists, each of them what its name says."""
    use, items = USES[name]
    recorder = Recorder()
    use(recorder)
    calls = [call for call in recorder.calls if call.script.name == name]
    assert calls
    head = head_of(text_of(name))
    fixed = [named for (word, _), named in sorted(named_in(head).items()) if word == "ARGV"]
    for call in calls:
        assert len(call.arguments) == len(fixed) + items * repeated_in(head)
        for given, named in zip(call.arguments, fixed, strict=False):
            assert given in GIVEN[named], named
        is_slot = named_in(head)["KEYS", 1] == "slot"
        assert call.key == (b"qf:{shop:t:0}:" if is_slot else b"qf:{shop}:topics")


def test_items_are_those_that_the_head_lists() -> None:
    recorder = Recorder()
    settle.settle(recorder, DELAY, "g", [ending("k", 1)], "")  # type: ignore[arg-type]
    [call] = recorder.calls
    how, *rest = call.arguments[4:]
    assert (how[:2], rest) == (b"\x95\xa5", ["k", 1, "a receipt"])


def test_a_script_is_its_text_with_its_parts() -> None:
    one = Script(FOLDER, "take")
    assert "--@include" not in one.text
    assert one.text.startswith("#!lua flags=allow-oom\n-- Purpose: takes a slot")
    assert "local function lose_window" in one.text


def test_a_head_in_python_is_a_head_in_lua() -> None:
    """The binary formats that both sides name are the same."""
    assert META.size == 28
    text = (FOLDER / "parts" / "head.lua").read_text(encoding="utf-8")
    assert "local META, META_SIZE = '>I8I8i4I8', 28" in text
    assert "local STATE, STATE_SIZE = '>I8I4I4I2I1', 19" in text
    text = (FOLDER / "parts" / "answer.lua").read_text(encoding="utf-8")
    assert "struct.pack('>I4c16I8I8I2I2I4', number," in text
    assert reading._LATE.format == ">I16sQQHHI"
