"""Topics as DataFrames: a data source of Spark, format `qframe`, written in Python.

    spark.dataSource.register(QFrameDataSource)
    df.write.format("qframe").option("store", url).option("topic", "orders").mode("append").save()
    spark.read.format("qframe").option("store", url).option("topic", "orders").load()

It stands beside the app, not on it: it uses stores and the producer alone, and whatever runs on an
executor is made there from the options, which are texts. So an executor needs the URL and qframe.

**Where it runs.** Options, columns and topic are checked on the driver (`options.py`,
`columns.py`), before Spark starts a task: in the process that plans the query. Tasks turn Arrow
batches into entries (`rows.py`), or deliveries into Arrow batches (`deliveries.py`).

**Writing twice publishes once.** Spark may run a task again, also beside itself, and a batch of a
streaming query again after a restart. So an id is a function of what is written and never of the
attempt: of the row (column `id`, or `idColumns`), or of job, partition, batch, the batch's content
and the place there (`naming.py`). With the latter a row may be published twice where a partition's
rows come in another order, as they may after a shuffle: the writer cannot see that. None is lost.
Rows go to the store in batches cut by their position, which Arrow's batches have no say in; a batch
has one mark in each slot, and a slot takes its share of it whole or not at all. A second task finds
the mark. In a topic with `max_length` a slot may take a part of a batch, so there each message has
a mark of its own, as it has where a share is stored in parts, since the topic has many groups
(`stores/redis/publish.py`). A streaming query's job is its id and the number of its batch, which
Spark keeps in the checkpoint.

**Reading moves nothing.** A batch read, or a streaming one, reads a stream's log by offsets, one
partition for each slot; no group is involved. Spark keeps a streaming query's offsets in its
checkpoint and reads a batch again, from and to the same offsets, until its sink has it. With
`group=` the reader moves that group's floor behind it once a batch is done, so that the lag can be
seen and nothing is removed that was not read.

**Failures.** Messages that were removed before they were read are a typed error, and so is a slot
that ends before what was read of it, unless `failOnDataLoss` is false. A store that cannot be
reached, or that has no room, fails the task, and Spark runs it again.
"""

from qframe.extras import needed

with needed("spark", __name__):
    from qframe.spark.publishing import publish
    from qframe.spark.source import QFrameDataSource

__all__ = ["QFrameDataSource", "publish"]
