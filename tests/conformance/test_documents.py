"""Documents: texts by name, each with a version, in spaces of a group."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from bench import Bench

from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.documents import (
    MAX_RANK,
    NAME_LENGTH,
    NO_VERSION,
    Document,
    Place,
    RankedName,
    Space,
    Span,
    Write,
    Written,
)
from qframe.topic import Topic

ODD = "ü \n'\"%s;-- 0 1 \t"


def write(
    bench: Bench, topic: Topic, name: str, value: str | None, version: int | None = None,
    group: str = "g", space: Space = Space.TUNING,
) -> Written | None:  # fmt: skip
    writes = [Write(name, value, version)]
    [written] = bench.store.write_documents(topic, group, space, writes)
    done: Written | None = written
    return done


def read(bench: Bench, topic: Topic, *names: str, group: str = "g") -> list[Document | None]:
    places = [Place(topic, group, Space.TUNING, name) for name in names]
    found: list[Document | None] = bench.store.read_documents(places)
    return found


def test_what_was_written_is_read_and_listed_with_its_version_and_its_time(bench: Bench) -> None:
    topic = bench.topic("stream", "g", slots=4)
    began_ms = bench.store.now_ms(topic)
    assert read(bench, topic, "b") == [Document("b", "", NO_VERSION, 0)]
    assert bench.store.list_documents(topic, "g", Space.TUNING).documents == []
    first = write(bench, topic, "b", ODD)
    assert first is not None
    assert first.is_new
    assert first.version != NO_VERSION
    bench.advance(5)
    second = write(bench, topic, "a/long " + "n" * (NAME_LENGTH - 7), "")
    assert second is not None
    assert second.at_ms >= first.at_ms + 5 >= began_ms + 5
    listed = bench.store.list_documents(topic, "g", Space.TUNING)
    assert listed.documents == [
        Document("a/long " + "n" * (NAME_LENGTH - 7), "", second.version, second.at_ms),
        Document("b", ODD, first.version, first.at_ms),
    ]
    assert listed.now_ms >= second.at_ms
    assert read(bench, topic, "b", "c", "b") == [
        listed.documents[1], Document("c", "", NO_VERSION, 0), listed.documents[1],
    ]  # fmt: skip


def test_each_write_gives_another_version_also_that_of_the_same_value(bench: Bench) -> None:
    topic = bench.topic("ordered", "g")
    versions = {NO_VERSION}
    for _ in range(20):
        written = write(bench, topic, "a", "same")
        assert written is not None
        versions.add(written.version)
    assert len(versions) == 21
    assert write(bench, topic, "a", "same") != write(bench, topic, "a", "same")


def test_a_write_that_names_another_version_is_refused_and_changes_nothing(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    first = write(bench, topic, "a", "1", NO_VERSION)
    assert first is not None
    for value in ("2", None):
        for version in (NO_VERSION, first.version + 1):
            assert write(bench, topic, "a", value, version) is None
    assert write(bench, topic, "b", "1", first.version) is None
    assert write(bench, topic, "b", None, first.version) is None
    assert bench.store.list_documents(topic, "g", Space.TUNING).documents == [
        Document("a", "1", first.version, first.at_ms)
    ]
    second = write(bench, topic, "a", "2", first.version)
    assert second is not None
    assert not second.is_new
    assert write(bench, topic, "a", "3", first.version) is None
    removed = write(bench, topic, "a", None, second.version)
    assert removed is not None
    assert (removed.version, removed.is_new) == (NO_VERSION, False)
    assert read(bench, topic, "a") == [Document("a", "", NO_VERSION, 0)]
    again = write(bench, topic, "a", None)
    assert again is not None
    assert again.is_new
    anew = write(bench, topic, "a", "4", NO_VERSION)
    assert anew is not None
    assert anew.is_new


def test_each_write_of_a_batch_is_judged_by_its_own_version(bench: Bench) -> None:
    topic = bench.topic("delay", "g", slots=2)
    names = [f"n{number:03}" for number in range(70)]
    store = bench.store
    assert store.write_documents(topic, "g", Space.QUEUES, []) == []
    first = store.write_documents(
        topic, "g", Space.QUEUES, [Write(name, "1", NO_VERSION) for name in names]
    )
    assert all(written is not None and written.is_new for written in first)
    assert len({written.version for written in first if written is not None}) == len(names)
    bench.advance(5)
    versions = [written.version if number % 2 else 1 for number, written in enumerate(first)]
    values = [None if number % 3 == 0 else "2" for number in range(len(names))]
    second = store.write_documents(
        topic, "g", Space.QUEUES,
        [Write("new", "3"), *map(Write, names, values, versions), Write("none", None)],
    )  # fmt: skip
    [new, *others, none] = [written and (written.version != NO_VERSION) for written in second]
    assert (new, none) == (True, False)
    assert others == [
        None if number % 2 == 0 else number % 3 != 0 for number in range(len(names))
    ]  # fmt: skip
    assert len({written.at_ms for written in second if written is not None}) == 1
    listed = store.list_documents(topic, "g", Space.QUEUES).documents
    assert [(document.name, document.value) for document in listed] == [
        *((name, "1" if number % 2 == 0 else "2") for number, name in enumerate(names)
          if number % 2 == 0 or number % 3),
        ("new", "3"),
    ]  # fmt: skip


def ranked(bench: Bench, topic: Topic, span: Span) -> list[tuple[int, str]]:
    """The places of the documents in a part of a space."""
    listed = bench.store.list_documents(topic, "g", Space.SCHEDULES, span).documents
    return [tuple(document.ranked_name) for document in listed]


def test_documents_are_listed_by_rank_and_name_up_to_a_rank_and_page_by_page(bench: Bench) -> None:
    topic = bench.topic("delay", "g")
    ranks = {
        "b": 7, "a b": 7, "ä": 7, "a": 7, ODD: 10, "late": MAX_RANK, "first": 0, "B": 9, "10": 10,
    }  # fmt: skip
    writes = [Write(name, "x" * rank.bit_length(), None, rank) for name, rank in ranks.items()]
    bench.store.write_documents(topic, "g", Space.SCHEDULES, writes)
    order = sorted((rank, name) for name, rank in ranks.items())
    assert ranked(bench, topic, Span()) == order
    assert ranked(bench, topic, Span(until=9)) == [each for each in order if each[0] <= 9]
    assert ranked(bench, topic, Span(until=0)) == [(0, "first")]
    assert ranked(bench, topic, Span(limit=4)) == order[:4]
    for size in (1, 2, 3):
        pages, after = [], RankedName(0, "")
        while page := ranked(bench, topic, Span(after=after, limit=size)):
            pages += page
            after = RankedName(*page[-1])
        assert pages == order
    behind = Span(until=10, after=RankedName(7, "aa"), limit=3)  # which is there no more
    assert ranked(bench, topic, behind) == [(7, "b"), (7, "ä"), (9, "B")]
    assert ranked(bench, topic, Span(after=RankedName(MAX_RANK, "late"))) == []
    [read] = bench.store.read_documents([Place(topic, "g", Space.SCHEDULES, "B")])
    assert read is not None
    assert (read.rank, read.value) == (9, "xxxx")


def test_a_document_has_the_rank_of_its_last_write_and_none_when_it_is_gone(bench: Bench) -> None:
    topic = bench.topic("delay", "g")

    def write_ranked(name: str, value: str | None, rank: int, version: int | None = None) -> int:
        [written] = bench.store.write_documents(
            topic, "g", Space.SCHEDULES, [Write(name, value, version, rank)]
        )
        return NO_VERSION if written is None else written.version

    version = write_ranked("a", "same", 5)
    write_ranked("b", "same", 6)
    version = write_ranked("a", "same", 9, version)
    assert ranked(bench, topic, Span(limit=9)) == [(6, "b"), (9, "a")]
    assert write_ranked("a", "same", 1, version + 1) == NO_VERSION
    assert ranked(bench, topic, Span(until=8)) == [(6, "b")]
    write_ranked("a", None, 3)
    write_ranked("b", "other", 0)
    assert ranked(bench, topic, Span(limit=9)) == ranked(bench, topic, Span()) == [(0, "b")]
    bench.store.drop_group(topic, "g")
    bench.store.subscribe(topic, "g")
    assert ranked(bench, topic, Span(limit=9)) == ranked(bench, topic, Span()) == []


def test_spaces_groups_topics_and_namespaces_keep_theirs_apart(bench: Bench) -> None:
    topic, second = bench.topic("stream", "g", "h@i"), bench.topic("delay", "g")
    other = bench.beside("other")
    other.declare(topic)
    other.subscribe(topic, "g")
    for space in Space:
        write(bench, topic, "a", space, space=space)
    write(bench, topic, "a", "of h@i", group="h@i")
    write(bench, second, "a", "of the second")
    places = [
        Place(topic, "g", Space.TUNING, "a"), Place(topic, "h@i", Space.TUNING, "a"),
        Place(second, "g", Space.TUNING, "a"), Place(topic, "g", Space.ROSTER, "a"),
        Place(topic, "nobody", Space.TUNING, "a"),
    ]  # fmt: skip
    values = [each.value for each in bench.store.read_documents(places) if each is not None]
    assert values == ["tuning", "of h@i", "of the second", "roster", ""]
    assert bench.store.read_documents([]) == []
    assert other.list_documents(topic, "g", Space.TUNING).documents == []
    [listed] = bench.store.list_documents(topic, "g", Space.REPORTS).documents
    assert listed.value == "reports"


def test_of_many_who_have_read_the_same_one_writes(bench: Bench) -> None:
    topic = bench.topic("stream", "g")
    version = NO_VERSION
    for _ in range(5):
        done: list[Written] = []

        def attempt(version: int = version, done: list[Written] = done) -> None:
            written = write(bench, topic, "a", "x", version)
            if written is not None:
                done.append(written)

        threads = [threading.Thread(target=attempt) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [written] = done
        version = written.version


def test_they_go_with_the_group_and_one_that_there_is_not_is_refused(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h")
    for group in ("g", "h"):
        for space in Space:
            write(bench, topic, "a", "1", group=group, space=space)
    bench.store.drop_group(topic, "g")
    assert read(bench, topic, "a") == [Document("a", "", NO_VERSION, 0)]
    for group in ("g", "nobody"):
        with pytest.raises(UnknownGroup, match=group):
            write(bench, topic, "a", "1", group=group)
        with pytest.raises(UnknownGroup, match=group):
            bench.store.list_documents(topic, group, Space.TUNING)
    bench.store.subscribe(topic, "g")
    for space in Space:
        assert bench.store.list_documents(topic, "g", space).documents == []
        assert len(bench.store.list_documents(topic, "h", space).documents) == 1
    with pytest.raises(UnknownTopic):
        write(bench, Topic("unknown"), "a", "1")


def test_the_bell_of_a_space_rings_for_another_value_and_for_nothing_else(bench: Bench) -> None:
    topic = bench.topic("stream", "g", "h")
    bell: Any = bench.store.document_bell(topic, "g", Space.TUNING)
    assert (bell is not None) == bench.store.capabilities.bell
    if bell is None:
        return
    bench.hear_out(bell)

    def is_silent(name: str, value: str | None, version: int | None = None) -> bool:
        write(bench, topic, name, value, version)
        bench.await_words()
        return not bell.wait(0)

    for value, same in (("1", "1"), ("2", "2"), (None, None), ("", "")):
        write(bench, topic, "a", value)
        assert bell.wait(60)
        assert is_silent("a", same)
        assert is_silent("a", "refused", 1)
    if bench.store.url != "model://":  # whose bells hear of all spaces
        write(bench, topic, "a", "1", group="h")
        write(bench, topic, "a", "1", space=Space.REPORTS)
        bench.await_words()
        assert not bell.wait(0)
    bell.close()
