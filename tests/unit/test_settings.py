"""Options are checked whole, and a refusal names the option, the value, the rule and the source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.errors import BadOption
from qframe.hooks import Middleware
from qframe.options.batch import Batch
from qframe.options.consumer import ConsumerKeywords, ConsumerOptions, consumer_options
from qframe.options.hold import Hold, text_of
from qframe.options.rules import options_of
from qframe.options.settings import AppKeywords, Settings, sources_of
from qframe.options.tuning import Tuning, texts_of, tuning_of
from qframe.retry import Backoff


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and no QFRAME_ variables."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.upper().startswith("QFRAME_")]:
        monkeypatch.delenv(variable)
    return tmp_path


def test_without_anything_the_store_is_a_file_here() -> None:
    settings = Settings.load()
    assert settings.store == "sqlite:///qframe.db"
    assert (settings.namespace, settings.grace, settings.max_body) == ("qframe", 30, 262_144)


def test_the_strongest_source_wins(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'namespace = "file"\nstore = "file"\ngrace = "1m"\nlog_level = "error"'
    (directory / "other.toml").write_text(text)
    monkeypatch.setenv("QFRAME_CONFIG", "other.toml")
    monkeypatch.setenv("QFRAME_NAMESPACE", "env")
    monkeypatch.setenv("QFRAME_STORE", "env")
    monkeypatch.setenv("QFRAME_LOG_LEVEL", "")  # an empty one is none
    settings = Settings.load(store="argument", namespace=None)
    assert (settings.store, settings.namespace) == ("argument", "env")
    assert (settings.grace, settings.log_level) == (60, "error")


def test_a_duration_in_the_environment_may_bear_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, seconds in (("5", 5), ("5.5", 5.5), ("500ms", 0.5), ("2h", 7200), ("0", 0)):
        monkeypatch.setenv("QFRAME_GRACE", text)
        assert Settings.load().grace == seconds


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"max_body": 0}, "max_body 0: it must be a whole number from 1 to"),
        ({"max_body": "big"}, "max_body 'big': it must be a whole number"),
        (
            {"namespace": "a b"},
            "namespace 'a b': it has a wrong character or length; use 1 to 64 of",
        ),
        ({"instance": "a@b"}, "instance 'a@b': it has a wrong character or length; use 1 to 64 of"),
        ({"store": ""}, "store '': it must be a string"),
        ({"grace": "3 weeks"}, "grace '3 weeks': it must be seconds, or a string"),
        ({"grace": "2d"}, "grace '2d': it must be seconds"),
        ({"grace": float("nan")}, "grace nan: it must be seconds"),
        ({"log_format": "xml"}, "log_format 'xml': it must be one of auto, console, json"),
        ({"stoer": "x"}, "option 'stoer': there is no such option; did you mean 'store'?"),
        ({"threads": 4}, "option 'threads': threads is an option of each consumer; use @app"),
        ({"zzz": 1}, "option 'zzz': there is no such option; there are: store, coordinator"),
    ],
)
def test_a_wrong_argument_is_named_with_rule_and_remedy(
    given: dict[str, object], shown: str
) -> None:
    with pytest.raises(BadOption) as caught:
        Settings.load(**given)
    assert str(caught.value).startswith(shown)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("QFRAME_PUBLISH_BATCH", "0", r"QFRAME_PUBLISH_BATCH '0': .* from 1 to 10000; use 500"),
        (
            "QFRAME_INSTANCE",
            "web 1",
            r"^QFRAME_INSTANCE 'web 1': it has a wrong character or length",
        ),
        ("QFRAME_THREADS", "4", r"'QFRAME_THREADS': .*use @app.consumer\(…, threads=…\)"),
        ("QFRAME_CONFIG", "missing.toml", r"QFRAME_CONFIG 'missing\.toml': the file does not"),
        ("QFRAME_STOER", "x", r"'QFRAME_STOER': .* did you mean QFRAME_STORE\?"),
    ],
)
def test_a_wrong_variable_is_named_as_it_is_spelt(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadOption, match=shown):
        Settings.load()
    monkeypatch.delenv(name)
    monkeypatch.setenv("QFRAME_PORT_80_TCP", "tcp://10.0.0.1:80")  # of a cluster's own
    Settings.load()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("publish_batch = 0", "in qframe.toml: publish_batch 0: it must be a whole number"),
        ('grace = "2d"', "in qframe.toml: grace '2d': it must be seconds"),
        ("namespaec = 1", "in qframe.toml: option 'namespaec': there is no such option; did you"),
        ("threads = 4", "in qframe.toml: option 'threads': threads is an option of each consumer"),
        ("[store]\nurl = 1", "in qframe.toml: store {'url': 1}: it must be a string"),
        ("store = ", "file 'qframe.toml': it is not TOML"),
        ("store = 'caf\udce9'", "file 'qframe.toml': it is not TOML"),
    ],
)
def test_a_wrong_file_is_named(directory: Path, text: str, shown: str) -> None:
    (directory / "qframe.toml").write_text(text, errors="surrogateescape")
    with pytest.raises(BadOption) as caught:
        Settings.load()
    assert str(caught.value).startswith(shown)


def test_a_file_that_cannot_be_read_is_named(directory: Path) -> None:
    (directory / "qframe.toml").mkdir()
    with pytest.raises(BadOption, match=r"file 'qframe\.toml': it cannot be read"):
        Settings.load()


def test_a_password_is_not_in_what_settings_print() -> None:
    assert "s3cret" not in repr(Settings.load(store="redis://:s3cret@host"))


@pytest.mark.parametrize("option", ["store", "coordinator", "timers_db"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@host", "redis://me:it's s3cret@host", 'redis://:"s3cret@host',
        "redis://host?password=s3cret", "redis://host?pasword=s3cret", "redis://host:s3cret",
        "redis:/me:s3cret@host", "me:s3cret@host",
    ],
)  # fmt: skip
def test_a_password_is_not_in_what_people_see_of_settings(option: str, url: str) -> None:
    shown = {name: value for name, value, _ in sources_of(Settings.load(**{option: url}))}
    assert "s3cret" not in shown[option]
    assert "host" in shown[option]


def test_a_consumer_has_the_promised_defaults() -> None:
    options = consumer_options()
    assert (options.threads, options.max_attempts, options.lease_ms) == (8, 16, 30_000)
    assert options.max_in_flight == 3000
    assert options.backoff.bound_ms(1) == 1000
    assert options.auto_ack
    assert options.start == "earliest"


def test_a_broadcast_consumer_starts_at_the_latest_unless_it_is_told_otherwise() -> None:
    assert consumer_options(broadcast=True).start == "latest"
    assert consumer_options(broadcast=True).broadcast_expires == 7 * 86_400
    assert consumer_options(broadcast=True, start="earliest").start == "earliest"
    assert consumer_options(broadcast=False).start == "earliest"


def test_a_consumer_takes_durations_with_units_and_a_backoff() -> None:
    backoff = Backoff(first=3)
    assert consumer_options(lease="200ms", backoff=backoff).lease_ms == 200
    assert consumer_options(backoff=backoff).backoff is backoff
    assert consumer_options(backoff="5s").backoff.bound_ms(1) == 5000
    assert consumer_options(on_dead=print).on_dead is print


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"batch": Batch(500, "50ms"), "max_in_flight": 499}, "max_in_flight 499: "),
        ({"threads": 0}, "threads 0: it must be a whole number from 1 to 100000; use 8"),
        ({"threads": "8"}, "threads '8': it must be a whole number"),
        ({"threads": True}, "threads True: it must be a whole number"),
        ({"max_attempts": 1001}, "max_attempts 1001: it must be a whole number from 1 to 1000"),
        ({"max_in_flight": 100_001}, "max_in_flight 100001: it must be a whole number from 1 to"),
        ({"lease": 0.1}, "lease 0.1: it must be seconds"),
        ({"lease": "2d"}, "lease '2d': it must be seconds"),
        ({"backoff": -1}, "backoff -1: it must be a Backoff, or its first wait"),
        ({"backoff": None}, "backoff None: it must be a Backoff"),
        ({"start": "now"}, "start 'now': it must be one of earliest, latest; use 'earliest'"),
        ({"auto_ack": 1}, "auto_ack 1: it must be True or False"),
        ({"broadcast": "yes"}, "broadcast 'yes': it must be True or False; use False, or leave"),
        (
            {"broadcast": True, "broadcast_expires": 59},
            "broadcast_expires 59: it must be seconds, or a string such as",
        ),
        ({"broadcast_expires": "1d"}, "broadcast_expires '1d': only a broadcast consumer's group"),
        ({"broadcast": True, "start": "now"}, "start 'now': it must be one of earliest, latest"),
        ({"serial": 1}, "serial 1: it must be True or False; use False, or leave it out"),
        ({"on_dead": "mail"}, "on_dead 'mail': it must be a callable; leave it out"),
        ({"on_dead": len}, "on_dead <built-in function len>: it cannot be called as on_dead"),
        ({"rate_limit": 10}, "rate_limit 10: it is not a rate; use a string such as"),
        ({"rate_limit": "10"}, "rate_limit '10': it is not a rate; use a string such as"),
        ({"breaker": 10}, "breaker 10: it must be a Breaker, such as Breaker(failures=10"),
        ({"max_in_flight_bytes": 1}, "max_in_flight_bytes 1: it must be a whole number from 65536"),
        ({"thread": 1}, "consumer option 'thread': there is no such option; did you mean 'thr"),
    ],
)
def test_a_wrong_consumer_option_is_named_with_its_bounds(
    given: dict[str, object], shown: str
) -> None:
    with pytest.raises(BadOption) as caught:
        consumer_options(**given)
    assert str(caught.value).startswith(shown)


class Needy(Middleware):
    """It cannot be created without an argument."""

    def __init__(self, client: object) -> None:
        self.client = client


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            {"middleware": Needy},
            r"^middleware .*Needy.*: it cannot be created \(.*'client'\); pass an",
        ),
        ({"middleware": [1]}, r"^middleware \[1\]: it is not a Middleware; pass an instance of"),
        ({"rate_limit": "0/s"}, "^rate_limit '0/s': it must be 1 to 1000000 times in up to a day"),
        ({"tags": []}, r"^tags \[\]: "),
    ],
)
def test_an_option_is_refused_in_the_words_of_its_own_rule(
    given: dict[str, object], shown: str
) -> None:
    with pytest.raises(BadOption, match=shown) as caught:
        consumer_options(**given)
    assert "it must be a Middleware, or" not in str(caught.value)


@pytest.mark.parametrize("model", [Settings, ConsumerOptions])
def test_every_option_says_what_it_is_for_and_what_it_may_be(
    model: type[Settings] | type[ConsumerOptions],
) -> None:
    table = options_of(model).values()
    assert {"store", "threads"} & {option.name for option in table}
    for option in table:
        assert option.help.endswith("."), option
        assert option.rule.text, option


def test_the_keywords_for_editors_are_the_options() -> None:
    assert set(ConsumerKeywords.__annotations__) == set(options_of(ConsumerOptions))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"size": 0, "within": 1}, "batch size 0: it must be a whole number from 1 to 10000"),
        ({"size": 10_001, "within": 1}, "batch size 10001: "),
        ({"size": True, "within": 1}, "batch size True: "),
        ({"size": "5", "within": 1}, "batch size '5': "),
        ({"size": 5, "within": -1}, "batch within -1: "),
        ({"size": 5, "within": "soon"}, "batch within 'soon': "),
        ({"size": 5, "within": "2h"}, "batch within '2h': it must be 3600 seconds or less"),
    ],
)
def test_a_wrong_batch_is_refused_by_its_value(arguments: dict[str, Any], shown: str) -> None:
    with pytest.raises(BadOption) as caught:
        Batch(**arguments)
    assert str(caught.value).startswith(shown)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"batch": Batch(100, "50ms")}, 3000),
        ({"batch": Batch(500, "50ms")}, 9000),
        ({"batch": Batch(500, "50ms"), "threads": 2}, 3000),
        ({"batch": Batch(10_000, within=1)}, 100_000),
        ({"batch": Batch(500, within=1), "max_in_flight": 500}, 500),
        ({"batch": None}, 3000),
    ],
)
def test_batches_have_room_to_be_gathered_while_others_are_handled(
    options: dict[str, Any], most: int
) -> None:
    assert consumer_options(**options).max_in_flight == most


def test_the_keywords_for_type_checkers_are_all_options() -> None:
    named = {"store", "coordinator", "namespace", *AppKeywords.__annotations__}
    assert named == set(options_of(Settings))


# Tunings as texts: what is written is read again, and what is wrong harms nothing else.


@given(
    threads=st.none() | st.integers(1, 100_000), in_flight=st.none() | st.integers(1, 100_000),
    rate=st.none() | st.integers(1, 10**6).map(lambda number: f"{number}/s"),
)  # fmt: skip
def test_what_is_written_is_read_again(
    threads: int | None, in_flight: int | None, rate: str | None
) -> None:
    texts = {
        name: text for name, text in texts_of(threads, rate, in_flight).items() if text is not None
    }
    assert tuning_of(texts) == (Tuning(threads=threads, rate=rate, in_flight=in_flight), [])


def test_a_reset_takes_back_and_what_is_left_out_is_not_written() -> None:
    assert texts_of("reset", None, None) == {"threads": None}
    assert texts_of(None, "reset", 4) == {"rate": None, "in_flight": "4"}
    assert texts_of(None, None, None) == {}


@given(texts=st.dictionaries(st.sampled_from(["threads", "rate", "in_flight", "paused", "x"]),
                             st.text(max_size=30)))  # fmt: skip
def test_whatever_stands_in_the_store_is_read_or_told_to_be_wrong(texts: dict[str, str]) -> None:
    tuning, wrong = tuning_of(texts)
    set_now = [tuning.threads, tuning.rate, tuning.in_flight, tuning.paused or None]
    assert sum(value is not None for value in set_now) + len(wrong) == len(texts)
    assert all(isinstance(error, BadOption) for error in wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threads", "0"), ("threads", "1.5"), ("threads", "²"), ("threads", "9" * 5000),
        ("threads", "-1"), ("in_flight", "100001"), ("rate", "1"), ("paused", "no"),
        ("colour", "red"), ("stacks_until_ms", "²"), ("taken_ms", "-1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_left_out_with_an_error_that_names_it(name: str, text: str) -> None:
    tuning, [error] = tuning_of({name: text, "in_flight" if name != "in_flight" else "rate":
                                 "7" if name != "in_flight" else "7/s"})  # fmt: skip
    assert tuning in (Tuning(in_flight=7), Tuning(rate="7/s"))
    assert text[:9] in str(error) or name in str(error)


def test_a_pause_that_nobody_has_signed_is_a_pause_and_a_signature_alone_is_none() -> None:
    assert tuning_of({"paused": "yes"})[0].holds == [Hold()]
    assert tuning_of({"hold": text_of(Hold(by="ann"))})[0].holds == []
