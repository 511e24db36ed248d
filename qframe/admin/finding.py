"""Finding messages: one and why it is where it is, or all that have something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from qframe.admin.context import AdminRole
from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.explainer import Explainer, checked_sought
from qframe.admin.search import LOOK, SEARCHED, Hits, Query, searched
from qframe.errors import BadOption
from qframe.options.rules import checked_limit
from qframe.topic import Topic


class FindingAdmin(AdminRole):
    """Explanations and searches."""

    def explain(
        self,
        topic: Topic | str | None = None,
        message_id: str | None = None,
        *,
        key: str | None = None,
        offset: int | None = None,
        slot: int | None = None,
        look: int = LOOK,
    ) -> list[Explanation]:
        """Where a message is for each group, and why; see docs/explain.md.

        Args:
            topic: the topic; all topics if it is left out.
            message_id: the message's id.
            key: the message's key; alone, all messages of that key are explained.
            offset: an offset of a stream, of which each slot has its own.
            slot: the only slot to look at.
            look: how many messages to look at, one by one, where no index leads to it.

        Returns:
            One explanation for each place that has it. Where none has, one that says so, with what
            the store still knows of it: its state is `absent`.

        Raises:
            BadOption: if neither id, key nor offset is given, or the topic has no such slot or no
                offsets.
        """
        topics = self._topics(topic)
        sought = checked_sought(topics, message_id, key, offset, slot, named=topic is not None)
        if offset is not None:
            topics = [each for each in topics if not each.has_subjects]
        explainer = Explainer(
            self._context.store, roster=self._context.roster, sought=sought, look=look,
            shown=self._context.shown, end_shown=self._context.end_shown,
        )  # fmt: skip
        return explainer.explained(topics)

    def search(
        self,
        topic: Topic | str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - as in `publish`
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        error: str | None = None,
        state: str | None = None,
        body: Mapping[str, str] | None = None,
        limit: int = 20,
        look: int = LOOK,
        place: str | None = None,
        redact: Callable[[str], bool] | None = None,
    ) -> Hits:
        """Finds messages by what they have; all that is given must fit.

        An id, or a key where a topic queues subjects, is looked up. All else is looked for message
        by message, no more than `look` of them; `place` of the result says where to go on. A key
        that a look-up has found in some of all topics is not looked for in streams, which `unread`
        of the result names: search each of them by its name.

        Args:
            topic: the topic; all topics if it is left out.
            id: the id.
            key: the key.
            tag: one of the tags.
            headers: headers by name; None for any value.
            error: a text in the last error, whatever the case.
            state: waiting, todo, doing, dead, settled or held.
            body: values in the body by path, such as `{"user.id": "5"}`.
            limit: how many messages are enough; a page that has more is returned whole.
            look: how many messages to look at, at most.
            place: where an earlier search has ended, with the same arguments.
            redact: says by its name whether the value of a field or header is hidden from whoever
                searches; by default none is.

        Raises:
            BadOption: if `state` or `place` is not as described, a number is below 1, or a value
                that is hidden is asked for.
            NotAllowed: if headers, error or body are asked for without the right to see bodies.
        """
        context = self._context
        if headers or error is not None or body:
            context.require("body")
        if state is not None and state not in SEARCHED:
            raise BadOption(
                "state", state, "there is no such state", f"use one of {', '.join(SEARCHED)}"
            )
        query = Query(
            id=id, key=key, tag=tag, headers=headers or {}, error=error, state=state,
            body=body or {}, redact=redact,
        )  # fmt: skip
        query.check_shown()
        topics = self._topics(topic)
        hits = searched(
            context.store,
            topics,
            query,
            place=place,
            limit=checked_limit(limit),
            look=max(1, look),
        )
        return replace(hits, records=context.all_shown(hits.records))

    def _topics(self, topic: Topic | str | None) -> list[Topic]:
        """The topic that is named, or all."""
        context = self._context
        return context.topics() if topic is None else [context.topic(topic)]
