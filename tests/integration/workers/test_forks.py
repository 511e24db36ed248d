"""A fork: parent and children have connections, buffers and threads of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qframe import QFrame, Topic

TOPIC = Topic("t", slots=2)
DATABASES = ("postgres", "mariadb")
STORES = ("sqlite", "redis_server", "redis_cluster", "redis_sentinel", *DATABASES)

# Nobody closes the app, in no process: the end of each sends what its buffered producer holds.
PUBLISHING = """
import os, sys, threading, warnings
from qframe import QFrame, Topic
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks with threads
app = QFrame(sys.argv[1], namespace=sys.argv[2])
topic = Topic("t", slots=2)
buffered = app.buffered(linger="50ms")

def publish(who, count):
    for number in range(count):
        outcome = app.publish(topic, f"{who} {number}").outcome
        assert outcome == "stored", outcome
        buffered.publish(topic, f"{who} {number} buffered")

publish("before", 5)
busy = threading.Thread(target=publish, args=("busy", 40))
busy.start()
children = []
for name in ("first", "second", "third"):
    pid = os.fork()
    if not pid:
        publish(name, 15)
        sys.exit()
    children.append(pid)
publish("parent", 15)
busy.join()
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
"""
COUNTS = {"before": 5, "busy": 40, "first": 15, "second": 15, "third": 15, "parent": 15}


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal"
    server = request.getfixturevalue(request.param)
    url: str = server.new_database() if request.param in DATABASES else server.url
    return url


def run(program: str, *arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.promise(1)
def test_parent_and_children_publish_each_message_is_stored_once(url: str, tmp_path: Path) -> None:
    run(PUBLISHING, url, tmp_path.name)
    with QFrame(url, namespace=tmp_path.name) as app:
        app.store.subscribe(TOPIC, "g", "earliest")
        found = app.store.peek(TOPIC, "g", states=["todo"], limit=10_000)
        bodies = sorted(one.body.decode() for one in found)
    wanted = [
        f'"{who} {number}{how}"'
        for who, count in COUNTS.items() for number in range(count) for how in ("", " buffered")
    ]  # fmt: skip
    assert bodies == sorted(wanted)


# The parent has a worker and a pull with a bell each, and goes on with them.
SERVING = """
import os, sys, threading, warnings
from qframe import BadOption, QFrame, Topic
warnings.simplefilter("ignore", DeprecationWarning)
app = QFrame(sys.argv[1], namespace=sys.argv[2])
topic = Topic("t", slots=2)
heard = threading.Semaphore(0)

@app.consumer(topic, group="served", threads=1)
def handle(body: str) -> None:
    heard.release()

served = threading.Thread(target=app.run, daemon=True)
served.start()
with app.pull(topic, "pulled") as messages:
    app.publish(topic, "from the parent")
    assert heard.acquire(timeout=60)
    messages.take("60s").ack()
    pid = os.fork()
    if not pid:
        try:
            messages.take(0)
        except BadOption as refused:
            assert "before a fork" in str(refused), refused
        else:
            raise AssertionError("the parent's pull was taken from")
        app.publish(topic, "from the child")
        with app.pull(topic, "own", start="earliest") as own:
            taken = [own.take("60s") for _ in range(2)]
            for message in taken:
                message.ack()
        assert {each.body for each in taken} == {"from the parent", "from the child"}
        messages.close()
        app.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert heard.acquire(timeout=60)
    message = messages.take("60s")
    assert message.body == "from the child"
    message.ack()
app.stop()
served.join()
app.close()
"""


@pytest.mark.parametrize(
    "url",
    ["sqlite", pytest.param("redis_server", marks=pytest.mark.gate), "postgres"],
    indirect=True,
)
def test_a_fork_leaves_worker_and_pull_to_the_parent_and_the_child_begins_its_own(
    url: str, tmp_path: Path
) -> None:
    run(SERVING, url, tmp_path.name)


# A handler that leaves its message to a child.
LEAVING = """
import os, sys
from qframe import Message, NotSupported, QFrame, Topic

app, topic = QFrame(sys.argv[1]), Topic("t", slots=2)

@app.consumer(topic, group="g")
def handle(message: Message) -> None:
    message.auto_ack = False
    pid = os.fork()
    if not pid:
        try:
            message.ack()
        except NotSupported as refused:
            os._exit(7 if "tell the parent" in str(refused) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    message.ack()

app.publish(topic, 1)
app.run(burst=True)
assert app.admin.lag(topic, "g") == 0
assert app.admin.dead(topic, "g") == []
app.close()
"""


# Handlers whose children come back from them; the last messages are handled in long runs.
COMING_BACK = """
import asyncio, os, sys, warnings
from qframe import Batch, Message, QFrame, Topic

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks with threads
app, topic = QFrame(sys.argv[1]), Topic("t", slots=1)
options = {"batch": Batch(5, "10ms")} if sys.argv[2] == "batch" else {}
codes, handled = [], []

def fork(number):
    if number not in (20, 40):
        return
    if not (pid := os.fork()):
        if number == 40:
            os.dup2(os.open(sys.argv[3] + ".err", os.O_WRONLY | os.O_CREAT), 2)
            raise ValueError("of the child")
        return
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

def note(number):
    handled.append(number)
    with open(sys.argv[3], "a") as file:
        print(number, os.getpid(), file=file)

def plain(message: Message) -> None:
    note(message.body)
    fork(message.body)

async def awaited(message: Message) -> None:
    plain(message)

def batch(messages: list[Message]) -> None:
    for message in messages:
        note(message.body)
    for message in messages:
        fork(message.body)

app.consumer(topic, group="g", threads=1, **options)(globals()[sys.argv[2]])
app.publish_many(topic, range(60))
app.run(burst=True)
assert codes == [0, 1], codes
assert sorted(handled) == list(range(60)), handled
assert app.admin.lag(topic, "g") == 0
with open(sys.argv[3]) as file:
    assert {line.split()[1] for line in file} == {str(os.getpid())}
app.close()
"""


@pytest.mark.parametrize("handler", ["plain", "awaited", "batch"])
def test_the_child_of_a_fork_that_comes_back_from_a_handler_ends_there(
    tmp_path: Path, handler: str
) -> None:
    run(COMING_BACK, f"sqlite:///{tmp_path / 'q.db'}", handler, str(tmp_path / "handled"))
    assert "ValueError: of the child" in (tmp_path / "handled.err").read_text()


def test_the_child_of_a_fork_cannot_acknowledge_for_the_parent(tmp_path: Path) -> None:
    run(LEAVING, f"sqlite:///{tmp_path / 'q.db'}")
