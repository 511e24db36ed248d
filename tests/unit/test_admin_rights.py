"""Rights of `app.admin`: each verb checks its own, and who may not see bodies sees none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from consoling import waiting_outbox

from qframe.admin.admin import Admin
from qframe.admin.rights import ALL_RIGHTS, ROLES
from qframe.clock import VirtualClock
from qframe.codec import TAGS_HEADER
from qframe.errors import BadOption, NotAllowed
from qframe.events import Events
from qframe.outcomes import Verdict
from qframe.producing.catalog import TopicCatalog
from qframe.producing.producer import Producer
from qframe.schedules.verbs import Schedules
from qframe.stores.model.store import ModelStore
from qframe.stores.types import Entry, PullRequest, PullTerms, Settlement
from qframe.topic import Topic

EPOCH: Final = "0" * 15 + "1"
STREAM: Final = Topic("events", slots=1)
LATER: Final = Topic("later", kind="delay", slots=1)
SECRET: Final = "4111-1111"
TRACE: Final = f'Traceback:\n  File "bill.py", line 1, in pay\n    charge("{SECRET}")\n'


def copy_away(admin: Admin) -> None:
    """Copies the stream to a store that is removed at once."""
    with TemporaryDirectory() as folder:
        admin.copy("events", f"sqlite:///{folder}/queue.db")


def bind_outbox(admin: Admin) -> None:
    """Binds an outbox, if it may: a store in memory, which ends with its process, is refused."""
    with suppress(BadOption):
        admin.outbox_bind(waiting_outbox())


CHANGES: Final[dict[str, Callable[[Admin], object]]] = {
    "retry dead_retry": lambda admin: admin.dead_retry("events", "billing", "all"),
    "retry skip": lambda admin: admin.skip("events", "billing", "k2"),
    "retry unblock": lambda admin: admin.unblock("events", "billing", "k2"),
    "retry repair": lambda admin: admin.repair(),
    "drop dead_drop": lambda admin: admin.dead_drop("events", "billing", "all"),
    "drop drop_group": lambda admin: admin.drop_group("events", "billing"),
    "drop delete_topic": lambda admin: admin.delete_topic("events", confirm="events"),
    "seek seek": lambda admin: admin.seek("events", "billing", "latest"),
    "seek resize": lambda admin: admin.resize("events", 2),
    "seek copy": lambda admin: copy_away(admin),
    "pause pause": lambda admin: admin.pause("events", "billing"),
    "pause resume": lambda admin: admin.resume("events", "billing"),
    "tune tune": lambda admin: admin.tune("events", "billing", threads=2),
    "tune ask_stacks": lambda admin: admin.ask_stacks("events", "billing"),
    "tune put_schedule": lambda admin: admin.put_schedule("daily", "@hourly", topic="events"),
    "retry outbox_retry": lambda admin: admin.outbox_retry(waiting_outbox()),
    "seek outbox_bind": bind_outbox,
    "drop outbox_drop": lambda admin: admin.outbox_drop(waiting_outbox(), []),
    "pause pause_schedule": lambda admin: admin.pause_schedule("daily"),
    "pause resume_schedule": lambda admin: admin.resume_schedule("daily"),
    "retry run_schedule": lambda admin: admin.run_schedule("daily"),
    "retry backfill_schedule": lambda admin: admin.backfill_schedule("daily", 0, 1),
    "drop delete_schedule": lambda admin: admin.delete_schedule("daily"),
    "retry move_timer": lambda admin: admin.move_timer("later", "bell", at=2e9),
    "retry edit_timer": lambda admin: admin.edit_timer("later", "bell", at=2e9),
    "retry move_timers": lambda admin: admin.move_timers("later", shift=60),
    "drop cancel_timers": lambda admin: admin.cancel_timers("later"),
    "drop cancel_timer": lambda admin: admin.cancel_timer("later", "bell"),
}
LOOKS: Final[dict[str, Callable[[Admin], object]]] = {
    "topics": lambda admin: admin.topics(),
    "topic": lambda admin: admin.topic("events"),
    "groups": lambda admin: admin.groups("events"),
    "retired": lambda admin: admin.retired("events"),
    "stats": lambda admin: admin.stats("events"),
    "lag": lambda admin: admin.lag("events", "billing"),
    "scale": lambda admin: admin.scale("events", "billing"),
    "peek": lambda admin: admin.peek("events", "billing", states=("waiting", "dead")),
    "verify": lambda admin: admin.verify(),
    "workers": lambda admin: admin.workers(),
    "owners": lambda admin: admin.owners("events"),
    "tuned": lambda admin: admin.tuned("events", "billing"),
    "explain": lambda admin: [
        *admin.explain("events", "m-1"), *admin.explain("events", "m-2"),
        *admin.explain(None, "m-1", look=10),
    ],
    "search": lambda admin: [
        admin.search("events"), admin.search(tag="eu"), admin.search("events", state="dead")
    ],
    "dead": lambda admin: admin.dead("events", "billing"),
    "dead_show": lambda admin: admin.dead_show("events", "billing", "m-1"),
    "dead_causes": lambda admin: admin.dead_causes("events", "billing"),
    "first_of_key": lambda admin: admin.first_of_key("events", "billing", "k2"),
    "holds": lambda admin: admin.holds("events"),
    "seek_preview": lambda admin: admin.seek_preview("events", "billing", "earliest"),
    "stacks": lambda admin: admin.stacks("events", "billing"),
    "schedules": lambda admin: admin.schedules(),
    "outbox_waiting": lambda admin: admin.outbox_waiting(waiting_outbox(SECRET)),
    "audit": lambda admin: admin.audit(),
    "timers": lambda admin: admin.timers("later"),
    "timer": lambda admin: admin.timer("later", "bell"),
}  # fmt: skip


class Scene:
    """A stream with a dead letter, one that waits for a retry, and a message that is due."""

    def __init__(self) -> None:
        clock = VirtualClock()
        store = ModelStore(clock=clock)
        self.heard: list[dict[str, Any]] = []
        events = Events()
        events.listen(lambda name, facts: self.heard.append({"event": name, **facts}))
        catalog = TopicCatalog(store)
        producer = Producer(store, catalog=catalog, max_body=9_000, batch=9, clock=clock)
        schedules = Schedules(
            store=store, producer=producer, catalog=catalog, events=Events(), clock=clock,
            max_body=9_000,
        )  # fmt: skip
        self.admin = Admin(store, roster=store.roster, events=events, schedules=lambda: schedules)
        store.declare(STREAM)
        store.subscribe(STREAM, "billing")
        store.take(STREAM, "billing", {0: EPOCH})
        headers = {"card": SECRET, TAGS_HEADER: "eu"}
        store.publish(
            STREAM,
            [
                Entry(0, None, f"m-{each}", f"m-{each}", f"k{each}", headers,
                      f'{{"card":"{SECRET}"}}'.encode())
                for each in (1, 2, 3)
            ],
        )  # fmt: skip
        pulled = store.pull(
            STREAM, "billing", [PullRequest(0, EPOCH, 2)],
            PullTerms("r", 30_000, 16),
        )  # fmt: skip
        ends = ((Verdict.DEAD, "ValueError: bad card"), (Verdict.RETRY, "a free text"))
        settlements = [
            Settlement(
                each.slot, each.subject, each.seq, each.receipt, each.attempt, EPOCH, verdict,
                delay_ms=60_000, error=f"{error} {SECRET}", traceback=TRACE,
            )
            for each, (verdict, error) in zip(pulled.deliveries, ends, strict=True)
        ]  # fmt: skip
        store.settle(STREAM, "billing", settlements)
        store.declare(LATER)
        store.subscribe(LATER, "bells")
        timer = Entry(0, "bell", "t-1", "t-1", "bell", headers, SECRET.encode(), delay_ms=9_000)
        store.publish(LATER, [timer])
        schedules.put("daily", "@daily", topic=STREAM, body=SECRET)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr("qframe.stores.doubling.HEARD_S", 0)  # no worker has to hear of a growth
    return Scene()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("verb", CHANGES)
def test_a_role_may_do_what_it_has_the_right_to_and_nothing_else_changes(
    scene: Scene, verb: str, role: str
) -> None:
    before = scene.admin.topics()
    admin = scene.admin.acting(by="ada", rights=role)
    right = verb.split()[0]
    if right in ROLES[role]:
        CHANGES[verb](admin)
        return
    with pytest.raises(NotAllowed, match=f"ada has no right to {right}, only to .*; use") as said:
        CHANGES[verb](admin)
    assert (said.value.by, said.value.right) == ("ada", right)
    assert scene.admin.topics() == before
    assert not scene.heard


@pytest.mark.parametrize("look", LOOKS)
def test_a_viewer_sees_where_messages_are_and_nothing_that_is_in_them(
    scene: Scene, look: str
) -> None:
    seen = LOOKS[look](scene.admin.acting(rights="viewer"))
    assert SECRET not in repr(seen)
    assert "free text" not in repr(seen)


def test_a_reader_sees_bodies_and_errors(scene: Scene) -> None:
    reader = scene.admin.acting(rights="reader")
    for look in ("peek", "explain", "search", "dead", "dead_show", "dead_causes"):
        assert SECRET in repr(LOOKS[look](reader)), look


def test_of_a_message_a_viewer_sees_id_key_tags_and_the_class_of_its_error(scene: Scene) -> None:
    viewer = scene.admin.acting(rights="viewer")
    shown = viewer.dead_show("events", "billing", "m-1")
    assert (shown.id, shown.key, shown.headers) == ("m-1", "k1", {TAGS_HEADER: "eu"})
    assert (shown.body, shown.error, shown.traceback) == (b"", "ValueError", None)
    assert [each.text for each in viewer.dead_causes("events", "billing").causes] == ["ValueError"]


@pytest.mark.parametrize(
    "asked", [{"body": {"card": SECRET}}, {"headers": {"card": None}}, {"error": "bad"}]
)
def test_a_viewer_cannot_guess_bodies_by_searching(scene: Scene, asked: dict[str, Any]) -> None:
    with pytest.raises(NotAllowed, match="no right to body"):
        scene.admin.acting(rights="viewer").search("events", **asked)


@pytest.mark.parametrize("look", LOOKS)
def test_somebody_without_any_right_sees_nothing(scene: Scene, look: str) -> None:
    with pytest.raises(NotAllowed, match="no right to view"):
        LOOKS[look](scene.admin.acting(rights=()))


def test_rights_only_become_fewer(scene: Scene) -> None:
    viewer = scene.admin.acting(rights="viewer")
    with pytest.raises(NotAllowed, match="no right to pause"):
        viewer.acting(by="ada", rights="owner").pause("events")
    with pytest.raises(NotAllowed, match="no right to pause"):
        viewer.acting(by="ada").pause("events")


def test_every_verb_of_admin_is_held_by_these_tests() -> None:
    verbs = {
        name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if name[0] != "_"
    } - {"acting"}
    assert verbs == {verb.split()[1] for verb in CHANGES} | set(LOOKS)


@pytest.mark.parametrize("wrong", ["root", ("view", "fly")])
def test_an_unknown_role_or_right_is_refused(scene: Scene, wrong: Any) -> None:
    with pytest.raises(BadOption, match="there is no such r"):
        scene.admin.acting(rights=wrong)


def test_each_role_has_the_rights_of_the_one_before() -> None:
    roles = list(ROLES.values())
    assert all(less < more for less, more in pairwise(roles))
    assert roles[-1] == ALL_RIGHTS
