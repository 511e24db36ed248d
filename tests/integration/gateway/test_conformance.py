"""The conformance features of CloudEvents for HTTP, as their project wrote them down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
from eventing import pulled
from starlette.testclient import TestClient

pytestmark = pytest.mark.gate

FEATURE = Path(__file__).parent / "features" / "http-protocol-binding.feature"


class Scenario(NamedTuple):
    """A scenario: a request, and what it means."""

    name: str
    headers: dict[str, str]
    body: str
    attributes: dict[str, str]
    data: Any


def scenarios() -> Iterator[Scenario]:
    """Each outline with each of its examples."""
    outlines = FEATURE.read_text(encoding="utf-8").split("Scenario Outline: ")[1:]
    for outline in outlines:
        steps, _, examples = outline.partition("Examples:")
        [column, *values] = [row[0] for row in rows_of(examples)]
        for value in values:
            yield scenario(steps.replace(f"<{column}>", value))


def scenario(text: str) -> Scenario:
    name = text.partition("\n")[0].strip()
    request, data = (dedent(each).strip() for each in re.findall(r'"""\n(.*?)"""', text, re.DOTALL))
    head, _, body = request.partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    [_, *attributes] = rows_of(text)
    return Scenario(name, headers, body, dict(attributes), json.loads(data))


def rows_of(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.strip().startswith("|")
    ]


ALL = list(scenarios())


def test_the_features_are_all_there() -> None:
    assert [each.name.partition(" ")[0] for each in ALL] == 2 * ["Binary"] + 2 * ["Structured"]


@pytest.mark.parametrize("one", ALL, ids=[each.name for each in ALL])
def test_an_event_has_the_attributes_and_data_of_the_feature(
    web: TestClient, one: Scenario
) -> None:
    headers = {name: each for name, each in one.headers.items()
               if name not in ("Host", "Content-Length")}  # fmt: skip
    reply = web.post("/v1/topics/stream/messages", content=one.body, headers=headers)
    assert reply.is_success, reply.text
    message = pulled(web)
    found = {name.removeprefix("ce-"): each for name, each in message["headers"].items()}
    found["datacontenttype"] = found.pop("content-type")
    assert (found, message["body"]) == (one.attributes, one.data)
