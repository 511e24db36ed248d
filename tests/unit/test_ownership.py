"""Who works and who owns what: put together from rosters, asked of an app, shown as tables."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from qframe import QFrame, Topic
from qframe.admin.owners import GroupRoster, OwnerInfo, WorkerInfo, owners_of, workers_of
from qframe.cli.output import drawn_table
from qframe.cli.ownership import draw_slots, draw_workers
from qframe.cli.times import ago
from qframe.cli.worker import _wait_for_both
from qframe.errors import BadOption, CoordinatorUnavailable, UnknownGroup, UnknownTopic
from qframe.options.report import ConsumerReport
from qframe.roster import Member, Owner, Roster
from qframe.stores.types import WorkerReport

ORDERS = Topic("orders", slots=4)
EVENTS = Topic("events", slots=2)
EPOCH = "0" * 15 + "1"
FIRST, SECOND = "host-a-17-0123456789ab", "host-b-18-0123456789ab"


def roster(members: dict[str, int], owners: dict[int, str]) -> Roster:
    """Members by when they joined, owners by slot."""
    return Roster(
        1,
        [Member(name, since_ms, since_ms + 30_000) for name, since_ms in members.items()],
        {slot: Owner(slot, name, EPOCH, 5000 + slot) for slot, name in owners.items()},
    )


ROSTERS = [
    GroupRoster(ORDERS, "billing", roster({SECOND: 2000, FIRST: 3000}, {0: FIRST, 2: SECOND})),
    GroupRoster(EVENTS, "audit", roster({FIRST: 1000}, {0: FIRST, 1: FIRST})),
]


def shown(parts: list[RenderableType], width: int = 80) -> list[str]:
    """The lines of a terminal of such a width."""
    out = Console(width=width, color_system=None)
    with out.capture() as captured:
        out.print(*parts, sep="\n")
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_worker_of_several_groups_is_told_once_with_all_its_slots() -> None:
    first, second = workers_of(ROSTERS)
    assert first == WorkerInfo(
        id=FIRST, since_ms=1000, until_ms=33_000, consumers=["orders/billing", "events/audit"],
        slots=3,
    )  # fmt: skip
    assert (second.id, second.slots, second.consumers) == (SECOND, 1, ["orders/billing"])


def test_a_slot_that_nobody_owns_is_told_as_well() -> None:
    owners = owners_of(ROSTERS)
    assert [(each.group, each.slot, each.worker) for each in owners] == [
        ("billing", 0, FIRST), ("billing", 1, None), ("billing", 2, SECOND), ("billing", 3, None),
        ("audit", 0, FIRST), ("audit", 1, FIRST),
    ]  # fmt: skip
    assert (owners[2].epoch, owners[2].since_ms) == (EPOCH, 5002)
    assert owners[1] == OwnerInfo(topic="orders", group="billing", slot=1)


@pytest.fixture
def app() -> QFrame:
    """An app with two topics, and a member in one group of one of them."""
    app = QFrame(store="model://")
    for topic in (ORDERS, EVENTS):
        app.declare(topic)
        app.store.subscribe(topic, "billing")
    app.store.subscribe(ORDERS, "audit")
    app.store.heartbeat(ORDERS, "billing", FIRST, 30_000)
    app.store.claim(ORDERS, "billing", FIRST, {1: EPOCH})
    return app


def test_an_app_that_runs_no_worker_tells_those_of_others(app: QFrame) -> None:
    with app:
        (worker,) = app.admin.workers()
        assert (worker.id, worker.consumers, worker.slots) == (FIRST, ["orders/billing"], 1)
        assert app.admin.workers("orders", "billing") == app.admin.workers(ORDERS) == [worker]
        assert app.admin.workers("orders", "audit") == app.admin.workers("events") == []
        owned = [each.slot for each in app.admin.owners("orders") if each.worker == FIRST]
        assert owned == [1]
        assert len(app.admin.owners("orders")) == 8
        assert len(app.admin.owners("orders", "audit")) == 4


def test_what_is_paused_is_told_of_workers_and_slots(app: QFrame) -> None:
    with app:
        app.store.heartbeat(EVENTS, "billing", FIRST, 30_000)
        app.admin.pause("orders", "billing")
        (worker,) = app.admin.workers()
        assert (worker.consumers, worker.paused) == (
            ["events/billing", "orders/billing"], ["orders/billing"],
        )  # fmt: skip
        paused = {(each.group, each.paused) for each in app.admin.owners("orders")}
        assert paused == {("audit", False), ("billing", True)}
        app.admin.resume("orders", "billing")
        (worker,) = app.admin.workers()
        assert worker.paused == []


def test_what_is_paused_is_marked_beside_its_name() -> None:
    found = [each._replace(paused=each.group == "billing") for each in ROSTERS]
    _, first, second = shown(draw_workers(workers_of(found), 62_000), 100)
    assert first.endswith("3  orders/billing (paused), events/audit")
    assert second.endswith("1  orders/billing (paused)")
    _, *rows = shown(draw_slots("orders", owners_of(found[:1]), 7_205_000))
    words = [row.split()[:3] for row in rows[:2]]
    assert words == [["billing", "(paused)", "0"], ["1,3", "nobody"]]


def test_a_topic_or_group_that_there_is_not_is_refused(app: QFrame) -> None:
    with app:
        for ask in (app.admin.workers, app.admin.owners):
            with pytest.raises(UnknownTopic):
                ask("nope")
            with pytest.raises(UnknownGroup, match="audit, billing"):
                ask("orders", "nope")
        with pytest.raises(BadOption, match="it needs its topic; give topic= as well"):
            app.admin.workers(group="billing")


def test_workers_are_a_table_of_80_columns() -> None:
    assert shown(draw_workers(workers_of(ROSTERS), 62_000)) == [
        "worker                  since     slots  consumers",
        "host-a-17-0123456789ab  61 s ago      3  orders/billing, events/audit",
        "host-b-18-0123456789ab  60 s ago      1  orders/billing",
    ]


def test_slots_are_a_table_that_names_a_group_and_each_owner_once_and_what_nobody_owns() -> None:
    assert shown(draw_slots("orders", owners_of(ROSTERS[:1]), 7_205_000)) == [
        "group    slots  owner                   since    epoch",
        "billing  0      host-a-17-0123456789ab  2 h ago  1",
        "         1,3    nobody",
        "         2      host-b-18-0123456789ab  2 h ago  1",
    ]


def test_long_names_are_folded_and_nothing_is_cut() -> None:
    name = f"{'x' * 40}-4194304-0123456789ab"
    found = [GroupRoster(ORDERS, "g" * 20, roster({name: 0}, dict.fromkeys(range(4), name)))]
    for parts in (draw_slots("orders", owners_of(found), 0), draw_workers(workers_of(found), 0)):
        lines = shown(parts)
        assert all(len(line) <= 80 for line in lines)
        assert sum(line.count("x") for line in lines) == 40


def test_where_columns_have_no_room_the_cells_of_a_row_stand_below_each_other() -> None:
    rows = [("orders", 12, Text("nobody", "red")), ("a-longer-name-of-a-topic", 3, None)]
    columns = ("topic", "slot", "owner")
    assert shown([drawn_table(columns, rows, width=24)], 24)[0] == "topic       slot  owner"
    assert shown([drawn_table(columns, rows, width=23)]) == [
        "topic  orders", "slot   12", "owner  nobody", "",
        "topic  a-longer-name-of-a-topic", "slot   3",
    ]  # fmt: skip


def test_what_is_not_there_says_what_to_do() -> None:
    start = "no worker is running; start one: qframe worker MODULE"
    assert shown(draw_workers([], 0)) == [start]
    nobody = owners_of([GroupRoster(EVENTS, "audit", roster({}, {}))])
    assert shown(draw_slots("events", nobody, 0))[-1] == start
    assert shown(draw_slots("events", [], 0), width=200) == [
        "no group has subscribed to events yet; start a worker with a consumer for it"
    ]


@pytest.mark.parametrize(
    ("then_ms", "text"),
    [
        (100_000_000_000, "0 s ago"),
        (99_999_881_000, "119 s ago"),
        (99_999_880_000, "2 min ago"),
        (99_990_000_000, "3 h ago"),
        (99_700_000_000, "3 d ago"),
        (100_000_002_000, "0 s ago"),
        (None, None),
    ],
)
def test_an_age_is_in_the_largest_unit_of_which_there_are_two(
    then_ms: int | None, text: str | None
) -> None:
    assert ago(then_ms, 100_000_000_000) == text


class Late:
    """An app whose store answers, and whose coordinator does so when it was asked so often."""

    def __init__(self, refusals: int) -> None:
        self.store = QFrame(store="model://").store
        self.coordinator = self
        self.left = refusals

    def check(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise CoordinatorUnavailable("zookeeper://host", "nobody listens")


def test_a_coordinator_that_comes_up_late_is_waited_for_as_a_store_is() -> None:
    late = Late(2)
    _wait_for_both(late, 60_000)  # type: ignore[arg-type]
    assert late.left < 0
    with pytest.raises(CoordinatorUnavailable, match="nobody listens"):
        _wait_for_both(Late(10_000), 300)  # type: ignore[arg-type]


def test_a_worker_is_as_old_as_it_says_whenever_it_has_joined_again() -> None:
    said = ConsumerReport(max_attempts=5, started_ms=500).to_json()
    early, late = WorkerReport(FIRST, 10_000, said), WorkerReport(FIRST, 12_000, said)
    older = WorkerReport(SECOND, 9000, '{"max_attempts":5}')  # of a version that does not say it
    gone = WorkerReport("host-c-1-0123456789ab", 9000, said)
    found = workers_of(
        [ROSTERS[0]._replace(reports=[late, older, gone]), ROSTERS[1]._replace(reports=[early])]
    )
    assert [(each.id, each.since_ms, each.told_ms) for each in found] == [
        (FIRST, 500, 12_000),
        (SECOND, 2000, 9000),
    ]


def test_a_worker_that_has_not_reported_for_some_time_is_marked_as_silent() -> None:
    said = ConsumerReport(max_attempts=5, started_ms=0).to_json()
    told = [ROSTERS[1]._replace(reports=[WorkerReport(FIRST, 1000, said)])]
    assert "silent" not in "\n".join(shown(draw_workers(workers_of(told), 15_000), 120))
    assert "(silent for 17 s)" in "\n".join(shown(draw_workers(workers_of(told), 18_000), 120))
