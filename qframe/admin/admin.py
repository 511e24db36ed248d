"""The operations for a person on call: find messages, settle dead letters, move groups.

Every operation takes a topic and a group, and first refuses names that do not exist. Reading
changes nothing; each verb that changes something checks the rights of who asks, and leaves an audit
event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from qframe.admin.audit_log import AuditLog
from qframe.admin.context import AdminContext
from qframe.admin.copying import CopyAdmin
from qframe.admin.dead import DeadAdmin
from qframe.admin.finding import FindingAdmin
from qframe.admin.groups import GroupAdmin
from qframe.admin.growing import GrowthAdmin
from qframe.admin.holds import HoldAdmin
from qframe.admin.keys import KeyAdmin
from qframe.admin.looking import LookingAdmin
from qframe.admin.outbox_verbs import OutboxAdmin
from qframe.admin.removal import RemovalAdmin
from qframe.admin.repair import RepairAdmin
from qframe.admin.rights import checked_rights
from qframe.admin.schedule_verbs import ScheduleAdmin
from qframe.admin.stacks import StackAdmin
from qframe.admin.stored_audit import AuditAdmin
from qframe.admin.timer_verbs import TimerAdmin
from qframe.codec import MAX_BODY
from qframe.events import Events
from qframe.roster import Roster
from qframe.schedules.verbs import Schedules
from qframe.stores.base import Store
from qframe.topic import Topic


class Admin(
    LookingAdmin, FindingAdmin, DeadAdmin, GroupAdmin, HoldAdmin, KeyAdmin, TimerAdmin,
    ScheduleAdmin, OutboxAdmin, StackAdmin, AuditAdmin, RepairAdmin, RemovalAdmin, CopyAdmin,
    GrowthAdmin,
):  # fmt: skip
    """Looks at topics and groups, and changes them: `app.admin`.

    A topic is given by its name or as a `Topic`; only the name counts. Each verb that changes
    something emits one event, `admin.action`: who did what, from where, to how many.

    Args:
        store: where the messages are.
        roster: returns the members of a topic's group.
        events: hears what was done.
        schedules: returns the schedules of the store, for the verbs of schedules.
        keep_action: keeps what was done where other processes see it; None keeps nothing.
        by: who acts; by default the user and host of this process.
        source: where the calls come from; by default the host and process.
        rights: the name of a role, `viewer`, `reader`, `operator` or `owner`, or rights one by one;
            by default all.
        max_body: the largest body that a timer may get, in bytes.

    Raises:
        BadOption: if there is no such role or right, or a name is not allowed.
    """

    def __init__(
        self,
        store: Store,
        *,
        roster: Callable[[Topic, str], Roster],
        events: Events | None = None,
        schedules: Callable[[], Schedules] | None = None,
        keep_action: Callable[[Mapping[str, Any]], None] | None = None,
        by: str | None = None,
        source: str | None = None,
        rights: Iterable[str] | str = "owner",
        max_body: int = MAX_BODY,
    ) -> None:
        heard = Events() if events is None else events
        audit = AuditLog(heard, keep=keep_action, by=by, source=source)
        super().__init__(
            AdminContext(
                store, roster=roster, audit=audit, rights=checked_rights(rights),
                max_body=max_body, schedules=schedules,
            )
        )  # fmt: skip

    def acting(
        self,
        *,
        by: str | None = None,
        source: str | None = None,
        rights: Iterable[str] | str | None = None,
    ) -> Self:
        """The same operations in the name of somebody else: for the audit, and with their rights.

        Args:
            by: who acts, such as a user's name; None for the user and host of this process.
            source: where the call comes from, such as an address; None for this process.
            rights: the name of a role, or rights one by one; None for those that are there. None
                is added to them.

        Raises:
            BadOption: if there is no such role or right, or a name is empty or longer than 200
                characters.
        """
        context = self._context
        return type(self)(
            context.store, roster=context.roster, events=context.audit.events,
            schedules=context.schedules_of, keep_action=context.audit.keep, by=by, source=source,
            rights=context.rights if rights is None else context.rights & checked_rights(rights),
            max_body=context.max_body,
        )  # fmt: skip
