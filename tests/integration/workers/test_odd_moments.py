"""An app whose warnings are errors, whose interpreter ends, or whose password was changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from programs import ROOT, python
from servers import RedisServer

from qframe import PublishUnknown, QFrame, Topic

KINDS = ("stream", "ordered", "delay", "priority", "merge")
SHOP = f"""
from qframe import Message, Outgoing, QFrame, Topic

app = QFrame()
handled = []
for kind in {KINDS}:
    @app.consumer(Topic(kind, kind=kind, slots=2), group="g", max_attempts=1)
    def handle(message: Message) -> None:
        if message.key == "3":
            raise ValueError(3)
        handled.append(message.body)
"""
LOOKING = f"""
import shop
from qframe import Outgoing

app = shop.app
for kind in {KINDS}:
    app.publish(kind, 0, key="k")
    app.publish(kind, b"raw", key="r", headers={{"a": "b"}}, tags=["x"])
    app.publish_many(kind, [Outgoing(n, key=str(n)) for n in range(20)])
app.run(burst=True)
assert len(shop.handled) == 5 * 21, shop.handled
for kind in {KINDS}:
    admin = app.admin
    assert admin.verify(kind) == admin.repair(kind) == []
    [dead] = admin.dead(kind, "g")
    admin.dead_retry(kind, "g", [dead.id])
    admin.pause(kind, "g")
    admin.explain(kind, key="3"), admin.search(kind, key="3"), admin.peek(kind, "g")
    admin.stats(kind), admin.owners(kind), admin.tuned(kind, "g"), admin.lag(kind, "g")
app.admin.seek("stream", "g", "earliest")
app.timers.schedule("delay", 1, key="z", delay="1h")
app.timers.edit("delay", "z", delay="2h"), app.timers.find("delay"), app.timers.cancel("delay", "z")
app.admin.topics(), app.admin.workers()
app.close()
"""
LAST_WORDS = """
import atexit
from qframe import QFrame

app = QFrame()

@atexit.register
def last_words() -> None:
    print(app.publish("stream", "good bye").outcome)
    app.close()
"""


@pytest.fixture(params=["redis", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'q.db'}"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


def run(folder: Path, store: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = python(
        *words, cwd=folder,
        **{**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "QFRAME_STORE": store,
           "QFRAME_NAMESPACE": folder.name[-60:]},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "BytesWarning" not in done.stderr
    return done


@pytest.mark.gate
def test_no_bytes_are_compared_with_numbers_or_texts(store: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    run(tmp_path, store, "-bb", "-c", LOOKING)
    for words in (
        "doctor",
        "topics list",
        "workers list",
        "store verify",
        "groups scale stream g",
        "dead causes merge g",
    ):
        run(tmp_path, store, "-bb", "-m", "qframe", *words.split())


def test_an_app_is_first_used_while_the_interpreter_ends(store: str, tmp_path: Path) -> None:
    with QFrame(store, namespace=tmp_path.name[-60:]) as app:
        app.declare(Topic("stream"))
    done = run(tmp_path, store, "-c", LAST_WORDS)
    assert (done.stdout, done.stderr) == ("stored\n", "")


def test_a_publish_after_a_change_of_the_password_says_that_it_is_refused(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    name = f"shop-{tmp_path.name[-40:]}"
    redis_server.call("ACL", "SETUSER", name, "on", ">before", "allkeys", "allchannels", "+@all")
    url = redis_server.url.replace("redis://", f"redis://{name}:before@")
    try:
        with QFrame(url, namespace=name) as app:
            app.publish(Topic("t", slots=1), 1)
            redis_server.call("ACL", "SETUSER", name, "resetpass", ">after")
            redis_server.call("CLIENT", "KILL", "USER", name)
            with pytest.raises(PublishUnknown, match=r"\(store .* refuses its user: .*password"):
                app.publish("t", 2)
    finally:
        redis_server.call("ACL", "DELUSER", name)
