"""Documents: texts by name, each with a version, in spaces of a group."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from bench import Bench

from qframe.errors import UnknownGroup, UnknownTopic
from qframe.stores.documents import NAME_LENGTH, NO_VERSION, Document, Place, Space, Written
from qframe.topic import Topic

ODD = "ü \n'\"%s;-- 0 1 \t"


def write(
    bench: Bench, topic: Topic, name: str, value: str | None, version: int | None = None,
    group: str = "g", space: Space = Space.TUNING,
) -> Written | None:  # fmt: skip
    written: Written | None = bench.store.write_document(topic, group, space, name, value, version)
    return written


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
