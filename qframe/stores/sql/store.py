"""The store on a database: the sum of its roles, each of them in the module of its name."""

from __future__ import annotations

from collections.abc import Sequence

from qframe.clock import Clock
from qframe.drivers.sql import Database
from qframe.stores.base import Topics
from qframe.stores.controls import Controls
from qframe.stores.documents import Space
from qframe.stores.edits import Edits
from qframe.stores.rosters import Rosters
from qframe.stores.sql.bell import NotifiedBell
from qframe.stores.sql.buckets import SqlBuckets
from qframe.stores.sql.copying import SqlCopying
from qframe.stores.sql.documents import SqlDocuments
from qframe.stores.sql.edits import SqlRewriting
from qframe.stores.sql.groups import SqlGroups
from qframe.stores.sql.growing import SqlGrowing
from qframe.stores.sql.history import SqlHistory
from qframe.stores.sql.inspect import SqlInspecting
from qframe.stores.sql.logs import SqlLogs
from qframe.stores.sql.migrate import check, migrate
from qframe.stores.sql.notification_hub import NotificationHub
from qframe.stores.sql.pages import SqlPages
from qframe.stores.sql.publish import SqlPublishing
from qframe.stores.sql.pull import SqlPulling
from qframe.stores.sql.repair import SqlRepairing
from qframe.stores.sql.settle import SqlSettling
from qframe.stores.sql.topics import SqlTopics
from qframe.stores.types import Capabilities
from qframe.topic import Topic


class SqlStore(
    SqlTopics, SqlPublishing, SqlPulling, SqlSettling, SqlGroups, SqlDocuments, SqlBuckets,
    SqlPages, SqlRewriting, SqlRepairing, SqlInspecting, SqlHistory, SqlLogs, SqlCopying,
    SqlGrowing, Topics, Rosters, Controls, Edits,
):  # fmt: skip
    """Messages in the tables of a database.

    Args:
        url: see `qframe.drivers.sql.Database`.
        namespace: keeps apart what several systems keep in one database.
        clock: None for the server's own, as it must be where more than one machine is at work;
            SQLite has none, and takes this machine's.

    Raises:
        BadUrl: if the URL cannot be used.
        SchemaMismatch: if the tables are of a later version, or of an earlier one and the URL says
            `?migrate=no`.
        StoreUnavailable: if the database cannot be reached.
    """

    def __init__(self, url: str, *, namespace: str = "qframe", clock: Clock | None = None) -> None:
        database = Database(url, clock=clock, on_notified=self._on_notified)
        super().__init__(database, namespace)
        self.url: str = database.shown
        backend = database.backend
        self._bells = NotificationHub(database)
        try:
            (migrate if backend.may_migrate else check)(database)
        except BaseException:
            database.close()
            raise
        self.capabilities: Capabilities = Capabilities(bell=backend.notifies)

    def bell(self, topics: Sequence[Topic]) -> NotifiedBell:
        """A bell that rings when one of these topics may have something new."""
        return self._bells.of_topics([self._ref(topic).id for topic in topics])

    def document_bell(self, topic: Topic, group: str, space: Space) -> NotifiedBell | None:
        """A bell for a space's documents; None where the server cannot say."""
        return self._bells.of_documents(self._ref(topic).id, group, space)

    def reconnect(self) -> None:
        """Lets go of connections that nobody uses now."""
        self._database.renew()

    def close(self) -> None:
        """Frees connections; the store cannot be used any more."""
        self._bells.close()
        self._database.close()

    def _on_notified(self, notifications: Sequence[str]) -> None:
        self._bells.on_committed(notifications)
