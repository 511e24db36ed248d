"""The process from which Spark forks its Python workers, with qframe imported already.

A session with `spark.python.daemon.module=qframe.spark.daemon` starts a worker in milliseconds.
Else each new one, such as that of a task that is tried again, imports qframe for a second or more.
"""

from __future__ import annotations

from pyspark.daemon import manager

# So that all that a task needs is there before the fork, whichever its store is.
from qframe.spark import source  # noqa: F401
from qframe.stores.redis import store as redis_store  # noqa: F401
from qframe.stores.sql import store as sql_store  # noqa: F401

if __name__ == "__main__":
    manager()
