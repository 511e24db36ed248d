"""A model that is published comes back equal, or is refused before anything is written."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic.dataclasses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    SerializeAsAny,
    Tag,
    computed_field,
    create_model,
    field_validator,
    model_serializer,
)
from pydantic_core.core_schema import dict_schema, list_schema, str_schema

from qframe import BadBody, QFrame, Topic
from qframe.codec import encode_bodies, encode_body
from qframe.models import decoder_of
from qframe.testing import Harness

LARGE = 10**6
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    LOW = 1


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Corner(enum.Enum):
    TOP = (0, 1)


class Animal(BaseModel):
    name: str


class Dog(Animal):
    bark: int = 1


class Owner(BaseModel):
    pets: dict[str, list[Animal]] = {}


class Kind(BaseModel):
    kind: Literal["kind"] = "kind"


class Sort(BaseModel):
    sort: Literal["sort"] = "sort"
    kind: Literal["sort"] = "sort"


def tag_of(value: Any) -> str:
    """A tag that JSON does not have."""
    return "kind" if isinstance(value, Kind) else "sort"


class Schema:
    """An annotation that gives pydantic a schema."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        return self.schema


class Shifted(BaseModel):
    number: int

    def __init__(self, number: int) -> None:
        super().__init__(number=number + 1)


class Tree(BaseModel):
    name: str = ""
    branches: list[Tree] = []


class Bush(Tree):
    height: int = 0


class Doubled(BaseModel):
    number: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.number * 2


class DoubledAlone(Doubled):
    model_config = ConfigDict(extra="forbid")


class DoubledAndMore(Doubled):
    model_config = ConfigDict(extra="allow")


class Divided(BaseModel):
    by: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def result(self) -> float:
        return 1 / self.by


class Reduced(BaseModel):
    number: int = 1

    @model_serializer
    def reduce(self) -> dict[str, int]:
        return {}


class Hashed(BaseModel):
    password: str

    @field_validator("password")
    @classmethod
    def hash(cls, value: str) -> str:
        return f"#{value}"


class Stripped(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def strip(cls, value: str) -> str:
        return value.strip()


class WithoutNone(BaseModel):
    number: int | None = 3

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:  # type: ignore[override]
        return super().model_dump(mode=mode, by_alias=by_alias, exclude_none=True)


class Cached(BaseModel):
    number: int = 1
    _cache: int = PrivateAttr(0)

    def fill(self) -> Cached:
        self._cache = 7
        return self


class CachedAside(Cached):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedAside) and other.number == self.number


class Array:
    def __eq__(self, other: object) -> Any:
        raise ValueError("ambiguous")


class Measured(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    values: Annotated[Any, PlainSerializer(lambda _value: 1)] = Array()


class Renamed(BaseModel):
    total: int = Field(0, validation_alias="sum")


class Renaming(BaseModel):
    total: int = Field(validation_alias="sum", serialization_alias="total")


class Hidden(BaseModel):
    number: int = Field(1, exclude=True)


class Read(BaseModel):
    total: int = Field(validation_alias=AliasChoices("total", "sum"))


class Aliased(BaseModel):
    model_config = ConfigDict(alias_generator=str.upper)
    total: int = 0


class ByName(Aliased):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="forbid"))
class Crate:
    weight: int = Field(1, gt=0)


class Late(BaseModel):
    model_config = ConfigDict(defer_build=True)
    number: int = 1


def one(annotation: Any, value: Any, **config: Any) -> BaseModel:
    """A model whose only field holds the value."""
    model = create_model("One", __config__=ConfigDict(**config), value=(annotation, ...))
    return model(value=value)


def changed(model: Any, name: str, value: Any) -> Any:
    setattr(model, name, value)
    return model


RETURNING: dict[str, Callable[[], Any]] = {
    "a computed field": Doubled,
    "a computed field where others are forbidden": DoubledAlone,
    "a computed field where others are allowed": DoubledAndMore,
    "one alias": lambda: Aliased(TOTAL=1),
    "an alias that is read among others": lambda: Read(total=1),
    "an excluded field at its default": lambda: Hidden(number=1),
    "Json of a list": lambda: one(Json[list[int]], "[1]"),
    "Json of a text that looks like a number": lambda: one(Json[str], '"1"'),
    "Json of anything": lambda: one(Json[Any], '{"a": [1]}'),
    "a URL": lambda: one(HttpUrl, "https://example.org/a?b=c"),
    "a complex number": lambda: one(complex, 1j),
    "any JSON": lambda: one(dict[str, Any], {"a": [1, None, "b"]}),
    "an extra field": lambda: changed(one(int, 1, extra="allow"), "more", "b"),
    "a union of texts and numbers": lambda: one(int | str, "1"),
    "a serializer that is read": lambda: one(Annotated[int, PlainSerializer(str)], 1),
    "a validator that changes nothing twice": lambda: Stripped(name=" a "),
    "a private attribute at its default": Cached,
    "a private attribute that __eq__ leaves out": lambda: CachedAside().fill(),
    "a part of the field's own class": lambda: Owner(pets={"a": [Animal(name="a")]}),
    "a tree": lambda: Tree(branches=[Tree(name="a")]),
    "a discriminated union": lambda: one(
        Annotated[Kind | Sort, Field(discriminator="kind")], Sort()
    ),
    "a dataclass of pydantic's within": lambda: one(list[Crate], [Crate(weight=2)]),
    "a root model": lambda: RootModel[list[date]]([date(2026, 1, 2)]),
    "bytes in base64 both ways": lambda: one(
        bytes, b"\xff", ser_json_bytes="base64", val_json_bytes="base64"
    ),
    "an own model_dump, where it leaves out nothing": lambda: WithoutNone(number=1),
    "a class whose schema is built late": Late,
    "a frozen model": lambda: one(int, 1, frozen=True),
    "a subclass by itself": lambda: Dog(name="a"),
}  # fmt: skip


LOST: dict[str, tuple[Callable[[], Any], str]] = {
    "a secret": (lambda: one(SecretStr, "a"), "another value of `value`; .* str for SecretStr"),
    "secret bytes": (lambda: one(SecretBytes, b"a"), "another value of `value`"),
    "a secret number": (lambda: one(Secret[int], 1), r"does not read .*at `\$.value`"),
    "a secret deep within": (
        lambda: one(list[Any], [one(SecretStr, "a")]), "another value of `value`"
    ),
    "an excluded field": (
        lambda: Hidden(number=2), "another value of `number`"
    ),
    "an excluded field without a default": (
        lambda: one(Annotated[int, Field(exclude=True)], 1), r"missing - at `\$.value`"
    ),
    "a field that has another alias for reading": (
        lambda: Renamed(sum=1), "another value of `total`"
    ),
    "a required one": (lambda: Renaming(sum=1), r"missing - at `\$.sum`.; give each field one al"),
    "an alias that is not read": (lambda: ByName(total=1), "another value of `total`"),
    "a part of a subclass": (lambda: Owner(pets={"a": [Dog(name="a")]}), "another value of `pets`"),
    "a part of a subclass in a tree": (lambda: Tree(branches=[Bush()]), "`branches`"),
    "a part written by its own class": (
        lambda: one(SerializeAsAny[Animal], Dog(name="a")), "another value of `value`"
    ),
    "a tuple in Any": (lambda: one(Any, (1,)), "another value of `value`"),
    "a moment in Any": (lambda: one(dict[str, Any], {"a": NOON}), "another value of `value`"),
    "a tuple in a list": (
        lambda: one(Annotated[list[Any], Schema(list_schema())], [(1,)]),
        "another value of `value`",
    ),
    "a tuple in a dict": (
        lambda: one(Annotated[dict[str, Any], Schema(dict_schema(str_schema()))], {"a": (1,)}),
        "another value of `value`",
    ),
    "a tag that is not stored": (
        lambda: one(
            Annotated[
                Annotated[Kind, Tag("kind")] | Annotated[Sort, Tag("sort")], Discriminator(tag_of)
            ],
            Kind(),
        ),
        r"literal error - at `\$.value",
    ),
    "an own __init__": (lambda: Shifted(1), "another value of `number`"),
    "a text that looks like a moment": (
        lambda: one(datetime | str, "2026-01-02T00:00:00"), "another value of `value`"
    ),
    "a text that could be bytes": (lambda: one(bytes | str, "a"), "another value of `value`"),
    "an enum's member in a Literal": (
        lambda: one(Literal[Colour.RED], Colour.RED), r"literal error - at `\$.value`"
    ),
    "bytes in a Literal": (lambda: one(Literal[b"a"], b"a"), r"literal error - at `\$.value`"),
    "an enum of tuples": (lambda: one(Corner, Corner.TOP), r"enum - at `\$.value`"),
    "a tuple as a key": (lambda: one(dict[tuple[int, int], int], {(1, 2): 3}), "tuple type"),
    "bytes in base64 one way": (
        lambda: one(bytes, b"abc", ser_json_bytes="base64"), "another value of `value`"
    ),
    "bytes that are not UTF-8": (lambda: one(bytes, b"\xff"), "UnicodeDecodeError"),
    "microseconds that a float cuts": (
        lambda: one(timedelta, timedelta(10**6, 0, 1), ser_json_timedelta="float"),
        "another value of `value`",
    ),
    "a serializer that changes it": (
        lambda: one(Annotated[int, PlainSerializer(lambda value: value + 1)], 1),
        "another value of `value`",
    ),
    "a serializer that fails": (
        lambda: one(Annotated[int, PlainSerializer(lambda _value: {}["a"])], 1), "raises .*KeyErr"
    ),
    "a serializer of the whole": (lambda: Reduced(number=2), "another value of `number`"),
    "a validator that is not idempotent": (lambda: Hashed(password="a"), "value of `password`"),
    "a computed field that fails": (
        lambda: Divided.model_construct(by=0), "model_dump raises ZeroDivisionError"
    ),
    "an own model_dump": (lambda: WithoutNone(number=None), "another value of `number`"),
    "a private attribute": (lambda: Cached().fill(), "what is not in its fields; .*define an __eq"),
    "an extra field": (
        lambda: changed(one(int, 1, extra="allow"), "more", (1,)), "what is not in its fields"
    ),
    "what cannot be compared": (Measured, "compared with it .ValueError.; define __eq__ in Meas"),
    "a field of another type": (
        lambda: changed(one(int | str, 1), "value", 1.5), "model_dump raises UserWarning"
    ),
    "an object of no JSON": (lambda: one(type, int), "raises PydanticSerializationError"),
}  # fmt: skip


@pytest.mark.promise(8)
@pytest.mark.parametrize("make", RETURNING.values(), ids=RETURNING)
def test_a_model_comes_back_equal(make: Callable[[], Any]) -> None:
    model = make()
    encoded, _ = encode_body(model, LARGE)
    assert decoder_of(type(model))(encoded) == model
    assert encode_bodies([model, model], LARGE) == [encoded] * 2


@pytest.mark.promise(8)
@pytest.mark.parametrize(("make", "words"), LOST.values(), ids=LOST)
def test_a_model_that_would_not_come_back_is_refused_by_its_field(
    make: Callable[[], Any], words: str
) -> None:
    for body in (make(), {"all": [make()]}):
        with pytest.raises(BadBody, match=words):
            encode_body(body, LARGE)
        assert encode_bodies([{}, body], LARGE) is None


@pytest.mark.promise(8)
def test_of_many_models_of_which_one_would_not_come_back_none_is_published() -> None:
    seen: list[Any] = []
    topic = Topic("pets", slots=1)
    with QFrame(store="sqlite:////nowhere/at/all.db") as app, Harness(app) as harness:

        @app.consumer(topic, group="g")
        def handle(body: dict[str, Any]) -> None:
            seen.append(body)

        with pytest.raises(BadBody, match="another value of `value`") as refused:
            app.publish_many(topic, [one(int, 1), one(SecretStr, "a")])
        assert repr(refused.value.value) == "One(value=SecretStr('**********'))"
        app.publish(topic, one(int, 2))
        harness.run_until_idle()
    assert seen == [{"value": 2}]


def test_a_computed_field_is_stored_where_it_does_not_keep_the_model_from_being_read() -> None:
    assert encode_body(Doubled(), LARGE)[0] == b'{"number":1,"double":2}'
    assert encode_body(DoubledAlone(), LARGE)[0] == b'{"number":1}'


# Types of which every value comes back

texts = st.text(st.characters(exclude_categories=["Cs"]))
zones = st.none() | st.builds(
    lambda minutes: timezone(timedelta(minutes=minutes)), st.integers(-1439, 1439)
)
EXACT: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: texts,
    bytes: texts.map(str.encode),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    date: st.dates(),
    time: st.times(timezones=zones),
    datetime: st.datetimes(timezones=zones),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Rank: st.sampled_from(Rank),
    Right: st.sampled_from([Right.READ, Right.READ | Right.WRITE]),
    Literal["a", 1, None]: st.sampled_from(["a", 1, None]),
    list[datetime]: st.lists(st.datetimes()),
    tuple[int, str]: st.tuples(st.integers(), texts),
    tuple[int, ...]: st.lists(st.integers()).map(tuple),
    set[int]: st.sets(st.integers()),
    frozenset[str]: st.frozensets(texts),
    dict[str, int]: st.dictionaries(texts, st.integers()),
    dict[int, str]: st.dictionaries(st.integers(), texts),
    dict[UUID, bool]: st.dictionaries(st.uuids(), st.booleans()),
    date | None: st.none() | st.dates(),
    Animal: st.builds(lambda name: Animal(name=name), texts),
}


@pytest.mark.parametrize("strict", [False, True], ids=["lax", "strict"])
@pytest.mark.parametrize("annotation", EXACT, ids=str)
def test_what_always_comes_back_is_not_read_again_by_its_producer(
    annotation: Any, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class One(BaseModel):
        model_config = ConfigDict(strict=strict)
        value: annotation = Field(alias="Value")
        number: Annotated[int, Field(ge=0)] = 1

    if annotation is not Animal:  # which has a subclass
        monkeypatch.delattr("qframe.models._refuse_lost")
    decode = decoder_of(One)

    @settings(max_examples=30, deadline=None)
    @given(EXACT[annotation])
    def comes_back(value: Any) -> None:
        model = One(Value=value)
        assert decode(encode_body(model, LARGE)[0]) == model

    comes_back()


def test_a_model_is_not_read_again_because_its_own_class_has_subclasses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("qframe.models._refuse_lost")
    assert encode_body(Animal(name="a"), LARGE)[0] == b'{"name":"a"}'
    with pytest.raises(NameError):
        encode_body(Owner(), LARGE)


# Other bodies


class SafeText(str):
    def __str__(self) -> str:
        return self


class Count(int):
    def __repr__(self) -> str:
        return "many"


class Ratio(float):
    pass


@dataclass
class Flight:
    tail: str
    legs: int = field(init=False, default=1)


class Leg(msgspec.Struct, rename="camel", tag=True, omit_defaults=True):
    first_stop: str = "a"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (SafeText("é"), "é"),
        (Count(2**70), 2**70),
        (Ratio(0.5), 0.5),
        ({SafeText("a"): [SafeText("b")], Count(1): Ratio(1.5)}, {"a": ["b"], "1": 1.5}),
        (one(Any, SafeText("a")), {"value": "a"}),
    ],
)
def test_a_text_or_number_of_a_class_of_its_own_is_stored_as_what_it_is(
    body: Any, expected: Any
) -> None:
    encoded, raw = encode_body(body, LARGE)
    assert (msgspec.json.decode(encoded), raw) == (expected, False)
    assert encode_bodies([body], LARGE) == [encoded]


def test_a_number_of_a_class_of_its_own_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(BadBody, match=r"JSON cannot hold nan, found at body\['a'\]"):
        encode_body({"a": Ratio("nan")}, LARGE)


@pytest.mark.parametrize("body", [Flight("a"), Leg("b"), Leg(), Right.READ | Right.WRITE])
def test_a_dataclass_a_struct_and_a_flag_come_back_equal(body: Any) -> None:
    assert decoder_of(type(body))(encode_body(body, LARGE)[0]) == body


class Moment(datetime):
    pass


@pytest.mark.promise(8)
@pytest.mark.parametrize("body", [Moment(2026, 1, 2), {True: 1}, {None: 1}])
def test_what_would_come_back_as_something_else_is_refused(body: Any) -> None:
    with pytest.raises(BadBody, match="unsupported"):
        encode_body(body, LARGE)
