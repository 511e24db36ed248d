"""Deleting topics."""

from __future__ import annotations

from collections.abc import Callable

from qframe.admin.context import AdminRole
from qframe.errors import BadOption
from qframe.topic import Topic


class RemovalAdmin(AdminRole):
    """Topics that are to be gone."""

    def delete_topic(
        self,
        topic: Topic | str,
        *,
        confirm: str,
        force: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> None:
        """Deletes a topic with all groups, messages and dead letters, for good.

        It works in steps: groups first, then messages, the declaration last. One that was
        interrupted is finished by calling it again. A producer that still publishes is not seen:
        stop it first.

        Args:
            topic: the topic.
            confirm: the topic's name once more, so that none is deleted by a slip.
            force: whether to delete it even while workers of it are alive, which fail then.
            on_progress: called after each step with the number of steps so far; it may raise to
                stop.

        Raises:
            BadOption: if `confirm` is another name, or workers are alive and `force` is not given.
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        found = context.topic(topic)
        if confirm != found.name:
            raise BadOption(
                "confirm", confirm, f"it is not the name of the topic, {found.name}",
                "give the name of the topic that is to be deleted",
            )  # fmt: skip
        groups = context.store.groups(found)
        alive = 0 if force else sum(context.alive(found, group) for group in groups)
        if alive:
            raise BadOption(
                "topic", found.name, f"{alive} of its workers are alive",
                "stop them first, or delete it with --force (force=True)",
            )  # fmt: skip
        steps = 1
        while not context.store.delete(found):
            if on_progress is not None:
                on_progress(steps)
            steps += 1
        context.audit.record("delete_topic", found, None, count=1, force=force or None)
