"""Pausing and resuming: a topic, a group, or a key."""

from __future__ import annotations

from qframe.admin.context import AdminRole
from qframe.errors import BadOption
from qframe.options.hold import MAX_KEYS, Hold, checked_why, name_of, text_of
from qframe.options.tuning import YES, Tuning
from qframe.topic import Topic, checked_key


class HoldAdmin(AdminRole):
    """Holds of groups and keys."""

    def pause(
        self,
        topic: Topic | str,
        group: str | None = None,
        *,
        key: str | None = None,
        why: str | None = None,
    ) -> None:
        """Pauses a group, or one key: within 2 s its workers stop handling it, until it is resumed.

        Handlers finish the messages in hand. Other messages of a paused group are given back,
        uncounted; those of a paused key wait in their order, while all other keys go on. New
        messages are still collected.

        Args:
            topic: the topic.
            group: the group; None for all groups that the topic has now.
            key: the key; None for all of the group's messages.
            why: a reason, for those who find it paused.

        Raises:
            BadOption: if `why` is too long, or 1,000 keys of the group are paused already.
            NotAllowed: without the right to pause.
        """
        context = self._context
        context.require("pause")
        found = context.topic(topic)
        names = context.groups(found, group)
        name = name_of(None if key is None else checked_key(key))
        reason = checked_why(why)
        now_ms = context.store.now_ms(found)
        tunings = context.tunings(found, names)
        for each, tuning in zip(names, tunings, strict=True):
            before = _hold_in(tuning, key)
            if before is None and key is not None and len(tuning.keys) >= MAX_KEYS:
                raise BadOption(
                    "key", key, f"{MAX_KEYS} keys of {found.name}/{each} are paused already",
                    "resume some of them, or pause the whole group",
                )  # fmt: skip
        for each, tuning in zip(names, tunings, strict=True):
            before = _hold_in(tuning, key)
            since_ms = before.since_ms if before is not None and before.since_ms else now_ms
            hold = Hold(key=key, by=context.audit.by, why=reason, since_ms=since_ms)
            texts = {name: text_of(hold)}
            context.store.tune(found, each, texts if key is not None else {**texts, "paused": YES})
        context.audit.record("pause", found, group, count=len(names), key=key, why=reason)

    def resume(
        self, topic: Topic | str, group: str | None = None, *, key: str | None = None
    ) -> list[str]:
        """Ends the pause of a group (None for all groups), or of a key; keys are resumed singly.

        Returns:
            The groups for which a pause has ended; others had none.
        """
        context = self._context
        context.require("pause")
        found = context.topic(topic)
        names = context.groups(found, group)
        name = name_of(None if key is None else checked_key(key))
        texts = {name: None} if key is not None else {name: None, "paused": None}
        resumed = [
            each for each, tuning in zip(names, context.tunings(found, names), strict=True)
            if _hold_in(tuning, key) is not None or (key is None and tuning.paused)
        ]  # fmt: skip
        for each in names:
            context.store.tune(found, each, texts)
        context.audit.record("resume", found, group, count=len(resumed), key=key)
        return resumed

    def holds(self, topic: Topic | str, group: str | None = None) -> dict[str, list[Hold]]:
        """Pauses, by whom, why and since when, for each group that has one.

        The pause of the whole group comes first, those of keys after it.
        """
        found = self._context.topic(topic)
        names = self._context.groups(found, group)
        tunings = self._context.tunings(found, names)
        return {
            each: tuning.holds for each, tuning in zip(names, tunings, strict=True) if tuning.holds
        }


def _hold_in(tuning: Tuning, key: str | None) -> Hold | None:
    return tuning.hold if key is None else tuning.keys.get(key)
