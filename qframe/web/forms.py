"""Forms: the fields that a page of the console sends, and those that were sent already."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Final
from urllib.parse import parse_qs

from anyio import fail_after
from starlette.requests import Request
from starlette.responses import Response

from qframe.errors import BadOption

MOST_FORM_BYTES: Final = 256 * 1024
MOST_FIELDS: Final = 2000
FORM_S: Final = 10.0
_KEPT: Final = 500


class Form:
    """The fields of a form.

    Args:
        fields: by name, all values of each.
    """

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    @property
    def identity(self) -> Hashable:
        """Equal of forms that a page has sent twice; None of one without a page's number."""
        if self.maybe("once") is None:
            return None
        return tuple((name, *values) for name, values in self._fields.items())

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return self._fields.get(name, [])

    def maybe(self, name: str) -> str | None:
        """A field's value without blanks around it; None where it is absent or blank."""
        return (self.all(name) or [""])[0].strip() or None

    def exact(self, name: str) -> str:
        """A field's value as it was sent, since a key may begin with a blank.

        Raises:
            BadOption: if it is absent or empty.
        """
        value = (self.all(name) or [""])[0]
        if not value:
            raise BadOption(name, None, "the form has no value for it", "fill it in")
        return value

    def number(self, name: str) -> int | None:
        """A field's number, None where it is absent or blank.

        Raises:
            BadOption: if it is no whole number.
        """
        text = self.maybe(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise BadOption(name, text, "it is no whole number", "write it in digits")
        return int(text)

    def confirm(self, wanted: str) -> None:
        """Sees that somebody has typed the name of what is to be changed for good.

        Raises:
            BadOption: if not.
        """
        if (given := self.maybe("confirm")) != wanted:
            raise BadOption("confirm", given, "it is another name", f"type {wanted} to confirm")

    def key(self) -> str | None:
        """The key, None where the form has no field for one.

        Raises:
            BadOption: if it is empty.
        """
        return self.exact("key") if self.all("key") else None


async def form_of(request: Request) -> Form | None:
    """The fields of a form; None if it is too large or too slow, or has too many of them."""
    text = b""
    try:
        with fail_after(FORM_S):
            async for part in request.stream():
                text += part
                if len(text) > MOST_FORM_BYTES:
                    return None
    except TimeoutError:
        return None
    try:
        fields = parse_qs(
            text.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )  # fmt: skip
    except ValueError:
        return None
    return Form(fields)


class _Sent:
    """A form that was sent: whoever sends it again waits for its reply."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.reply: Response | None = None


class SentForms:
    """The last 500 forms, each of which is done once: a double click sends one twice.

    Each page gives its forms a number of its own. A form that could not be done is not kept.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sent: OrderedDict[Hashable, _Sent] = OrderedDict()

    def reply(self, act: str, form: Form, make: Callable[[], Response]) -> Response:
        """The reply to a form: what `make` returns, or has returned when it was sent before."""
        if form.identity is None:
            return make()
        with self._guard:
            sent = self._sent.setdefault((act, form.identity), _Sent())
            if len(self._sent) > _KEPT:
                self._sent.popitem(last=False)
        with sent.guard:
            if sent.reply is None:
                sent.reply = make()
            return sent.reply
