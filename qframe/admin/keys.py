"""Keys that are blocked: their first message skipped, or its retry made due now."""

from __future__ import annotations

from qframe.admin.context import AdminRole
from qframe.errors import BadOption
from qframe.options.hold import checked_why
from qframe.outcomes import Moved
from qframe.stores.records import Record
from qframe.topic import Topic, checked_key


class KeyAdmin(AdminRole):
    """Messages that stand first for their key."""

    def first_of_key(self, topic: Topic | str, group: str, key: str) -> Record:
        """The message that blocks a key, which `skip` takes.

        On a stream, where nothing blocks a key, it is the oldest of its messages that wait for a
        retry.

        Raises:
            BadOption: if the group has no such message.
        """
        context = self._context
        found = context.topic(topic)
        return context.shown(self._first(found, context.group(found, group), key))

    def skip(
        self,
        topic: Topic | str,
        group: str,
        key: str,
        *,
        message_id: str | None = None,
        why: str | None = None,
        force: bool = False,
    ) -> Record:
        """Writes the message that blocks a key among the dead letters; the next one follows.

        Its error says who skipped it and why, its traceback what it failed with before. On a
        stream, where nothing blocks a key, it is the oldest of its messages that wait for a retry.

        Args:
            topic: the topic.
            group: the group.
            key: the key.
            message_id: the message that is meant; if another one blocks the key meanwhile, nothing
                is skipped.
            why: a reason, for those who find the dead letter.
            force: whether to skip it even while a worker has it in hand. Its handler runs on, sees
                `message.cancelled` within 2 s, and cannot settle it; in this worker the key's next
                message waits until it has ended.
                A message of a paused key has not begun, and needs no force.

        Returns:
            The message that was skipped.

        Raises:
            BadOption: if the key has no message to skip, it is another one than is meant, or a
                worker has it in hand.
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        found = context.topic(topic)
        context.group(found, group)
        reason = checked_why(why)
        [tuning] = context.tunings(found, [group])
        may_force = force or key in tuning.keys
        record = self._first(found, group, key, message_id)
        error = f"skipped by {context.audit.by}{f': {reason}' if reason else ''}"
        moved = context.store.skip(found, group, record.head_place, error, force=may_force)
        if moved is Moved.DOING:
            raise BadOption(
                "key", key, f"a worker has its message {record.id} in hand",
                "wait until its handler ends, pause the key first, or skip it with --force "
                "(force=True)",
            )  # fmt: skip
        if moved is Moved.ABSENT:
            raise BadOption(
                "key", key, f"its message {record.id} has just been settled", "look again"
            )
        if record.state == "doing":
            context.took_from_workers(found, group)
        context.audit.record(
            "skip", found, group, count=1, key=key, ids=[record.id], why=reason,
            force=force or None,
        )  # fmt: skip
        return context.shown(record)

    def unblock(self, topic: Topic | str, group: str, key: str) -> int:
        """Makes a key's waiting retries due now; returns how many messages that were.

        Where keys are in order it is the first message, and 0 if that is due or in hand already. On
        a stream it is every message of the key that waits for a retry, 100 at most.

        Raises:
            BadOption: if the group has no message of the key.
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        found = context.topic(topic)
        context.group(found, group)
        waiting = [each for each in self._all_first(found, group, key) if each.state == "waiting"]
        done = 0
        for each in waiting:
            done += context.store.hasten(found, group, each.head_place) is Moved.DONE
        if done:
            ids = [each.id for each in waiting]
            context.audit.record("unblock", found, group, count=done, key=key, ids=ids)
        return done

    def _first(
        self, topic: Topic, group: str, key: str, message_id: str | None = None
    ) -> Record:  # fmt: skip
        found = self._all_first(topic, group, key)
        first = next((each for each in found if each.state == "waiting"), found[0])
        if message_id is None:
            return first
        meant = next((each for each in found if each.id == message_id), None)
        if meant is None:
            raise BadOption(
                "message", message_id, f"it does not block key {key} any more, but {first.id} does",
                f"see: qframe explain {topic.name} --key {key}",
            )  # fmt: skip
        return meant

    def _all_first(self, topic: Topic, group: str, key: str) -> list[Record]:
        found = self._context.store.first_of_key(topic, group, checked_key(key))
        if not found:
            what = (
                "of its messages stands before others: nothing of it waits for a retry"
                if not topic.has_subjects
                else "message of it is there"
            )
            raise BadOption(
                "key", key, f"in {topic.name}/{group} no {what}",
                f"see: qframe messages peek {topic.name} {group}",
            )  # fmt: skip
        return found
