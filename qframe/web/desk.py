"""The desk: what all pages share; and a visit: one request, with the rights of who sent it."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request

from qframe.admin.admin import Admin
from qframe.admin.rights import Right
from qframe.app.qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption, NotAllowed
from qframe.web.access import Visitor
from qframe.web.bodies import Redact
from qframe.web.forms import SentForms
from qframe.web.jobs import Jobs
from qframe.web.sampler import Sampler
from qframe.web.shared import SharedFacts

if TYPE_CHECKING:
    from qframe.outbox.outbox import Outbox

_KEPT_NOTES: Final = 200


class Note(NamedTuple):
    """A sentence about an act, for the page that follows it.

    Attributes:
        text: in a sentence.
        is_bad: whether nothing was done.
    """

    text: str
    is_bad: bool = False


class Desk:
    """All that the pages of a console share.

    Args:
        app: whose store it is.
        environment: the name on the badge, such as `production`; empty for none.
        redact: says by its name whether a field or a header is hidden.
        outboxes: those on the page of outboxes.
        known_by: by what visitors are known, for the audit.
    """

    def __init__(
        self, app: QFrame, *, environment: str, redact: Redact, outboxes: Sequence[Outbox],
        known_by: str,
    ) -> None:  # fmt: skip
        self.app = app
        self.known_by = known_by
        self.environment = environment
        self.redact = redact
        self.outboxes = outboxes
        self.sampler = Sampler(
            lambda: app.store, clock=SYSTEM_CLOCK,
            roster=lambda topic, group: app.coordinator.roster(topic, group),
        )  # fmt: skip
        self.shared = SharedFacts(SYSTEM_CLOCK)
        self.jobs = Jobs(self.changed)
        self.sent = SentForms()
        self._guard = threading.Lock()
        self._notes: OrderedDict[str, Note] = OrderedDict()

    def outbox(self, number: int | None) -> Outbox:
        """An outbox by its place on the page of outboxes.

        Raises:
            BadOption: if there is none.
        """
        if number is None or number >= len(self.outboxes):
            raise BadOption("outbox", number, "this console has none there", "look again")
        return self.outboxes[number]

    def changed(self) -> None:
        """Has the next look at any page be a new one."""
        self.sampler.forget()
        self.shared.forget()

    def noted(self, note: Note) -> str:
        """Keeps a note for the page that follows an act; returns its number."""
        number = secrets.token_urlsafe(9)
        with self._guard:
            self._notes[number] = note
            if len(self._notes) > _KEPT_NOTES:
                self._notes.popitem(last=False)
        return number

    def note(self, number: str | None) -> Note | None:
        """The note of a number."""
        with self._guard:
            return self._notes.get(number or "")


@dataclass(frozen=True)
class Visit:
    """One request.

    Attributes:
        desk: what all pages share.
        request: the request.
        visitor: who sent it.
    """

    desk: Desk
    request: Request
    visitor: Visitor

    @property
    def admin(self) -> Admin:
        """The verbs, with the rights of the visitor and in their name."""
        client = self.request.client
        place = "console" if client is None else f"console {client.host}"
        return self.desk.app.admin.acting(
            by=self.visitor.name, rights=self.visitor.rights,
            source=f"{place}, known by {self.desk.known_by}",
        )  # fmt: skip

    def may(self, right: Right) -> bool:
        """Whether the visitor has a right."""
        return right in self.visitor.rights

    def require(self, right: Right) -> None:
        """Sees that the visitor has a right.

        Raises:
            NotAllowed: if not.
        """
        if not self.may(right):
            raise NotAllowed(self.visitor.name, right, self.visitor.rights)

    def asked(self, name: str) -> str | None:
        """A parameter of the address, None where it is absent or blank."""
        return self.request.query_params.get(name, "").strip() or None

    def number(self, name: str) -> int | None:
        """A number in the address, None where it is absent or blank.

        Raises:
            BadOption: if it is no whole number.
        """
        text = self.asked(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise BadOption(name, text, "it is no whole number", "go back to the page before")
        return int(text)

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    @property
    def root(self) -> str:
        """The path of the console itself, without a slash at its end."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    def url(self, *parts: str, **query: object) -> str:
        """The address of a page, from this host's root."""
        return address(self.root, *parts, **query)


def address(root: str, *parts: str, **query: object) -> str:
    """The address of a page under the path of the console."""
    path = "/".join(quote(part, safe="") for part in parts)
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{root}/{path}" + (f"?{urlencode(given)}" if given else "")
