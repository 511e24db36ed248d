"""A SQLite file that is deleted, or replaced, while a worker has it open; tables that are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventually import eventually

from qframe import Message, QFrame, Topic, WorkerFailed

TOPIC = Topic("t", slots=2)


@contextmanager
def worked_on(url: str, handled: list[int]) -> Iterator[list[BaseException]]:
    """A worker whose first message is handled; yields the error that ends it."""
    ended: list[BaseException] = []
    with QFrame(url) as app:

        @app.consumer(TOPIC, "g")
        def handle(message: Message) -> None:
            handled.append(message.body)

        def run() -> None:
            try:
                app.run()
            except WorkerFailed as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        app.publish(TOPIC, 1)
        eventually(lambda: handled == [1])
        yield ended
        app.stop()
        thread.join()


def test_a_worker_goes_on_with_the_file_that_has_taken_the_place_of_another(
    tmp_path: Path,
) -> None:
    handled: list[int] = []
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with QFrame(f"sqlite:///{new}") as other:
        other.publish(TOPIC, 2)
    with worked_on(f"sqlite:///{old}", handled) as ended:
        for part in ("-wal", "-shm"):
            (tmp_path / f"old.db{part}").unlink(missing_ok=True)
        new.replace(old)
        eventually(lambda: 2 in handled or ended)
    assert (handled, ended) == ([1, 2], [])


def test_a_worker_whose_file_is_deleted_ends_and_says_why(tmp_path: Path) -> None:
    handled: list[int] = []
    with worked_on(f"sqlite:///{tmp_path / 'q.db'}", handled) as ended:
        for file in tmp_path.iterdir():
            file.unlink()
        eventually(lambda: bool(ended))
    assert "has no tables of qframe" in str(ended[0])
