"""What the tests see of a store beside Spark: topics, and all that was published to them."""

from __future__ import annotations

from itertools import count
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

from qframe import Outgoing, QFrame, Topic
from qframe.message import Delivery
from qframe.stores.open import open_store
from qframe.stores.types import PullRequest, PullTerms


class Space:
    """A namespace of a store."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self.store = open_store(url, namespace=namespace)
        self._numbers = count(1)

    def close(self) -> None:
        self.store.close()

    def topic(
        self, name: str = "orders", kind: str = "stream", slots: int = 4, **more: Any
    ) -> Topic:
        """A topic, declared, with a group that collects."""
        topic = Topic(name, kind, slots, **more)
        self.store.declare(topic)
        self.store.subscribe(topic, "g")
        return topic

    def options(self, topic: Topic | str, **more: str) -> dict[str, str]:
        """The options that name a topic, and others."""
        name = topic if isinstance(topic, str) else topic.name
        return {"store": self.url, "namespace": self.namespace, "topic": name, **more}

    def writer(self, df: DataFrame, topic: Topic | str, **more: str) -> DataFrameWriter:
        """What writes a DataFrame to a topic; `save` starts it."""
        return df.write.format("qframe").options(**self.options(topic, **more)).mode("append")

    def write(self, df: DataFrame, topic: Topic | str, **more: str) -> None:
        """Writes a DataFrame to a topic."""
        self.writer(df, topic, **more).save()

    def reader(self, spark: SparkSession, topic: Topic | str, **more: str) -> DataFrameReader:
        """What reads a topic; `load` makes a DataFrame of it."""
        return spark.read.format("qframe").options(**self.options(topic, **more))

    def read(self, spark: SparkSession, topic: Topic | str, **more: str) -> DataFrame:
        """A topic as a DataFrame."""
        return self.reader(spark, topic, **more).load()

    def fill(self, topic: Topic, count: int, first: int = 0) -> None:
        """Publishes numbers, each under its own text as the key."""
        app = QFrame(store=self.url, namespace=self.namespace)
        items = [Outgoing(number, key=str(number)) for number in range(first, first + count)]
        app.publish_many(topic, items)
        app.close()

    def trim(self, topic: Topic) -> None:
        """Removes what is settled and older than the topic's `retain`."""
        while self.store.sweep(topic):
            pass

    def messages(self, topic: Topic) -> list[Delivery]:
        """All messages that are due, slot by slot, each in the order in which it is handed out."""
        epoch = f"{next(self._numbers):016x}"
        self.store.take(topic, "g", dict.fromkeys(range(topic.slots), epoch))
        asks = [PullRequest(slot, epoch, 100_000) for slot in range(topic.slots)]
        found = self.store.pull(topic, "g", asks, PullTerms("r", 600_000, 99, run=100_000))
        return found.deliveries

    def bodies(self, topic: Topic) -> list[bytes]:
        """The bodies of all messages that are due, sorted."""
        return sorted(each.body for each in self.messages(topic))

    def published(self, topic: Topic) -> int:
        """How many messages the topic has taken in for its group."""
        return sum(one.published for one in self.store.stats(topic, "g"))
