"""The SQS front: clients of SQS, in any language, on the queues that a team has.

    client ── JSON ──► json_protocol ──┐                     ┌─► QueueVerbs ───► QueueBook
           ── form ──► query_protocol ─┴► SqsFront (rights) ─┼─► MessageVerbs ─► Gateway
           ◄─ JSON, XML ───────────────────── answers ───────┴─► MoveVerbs ────► both

* A **queue** is a topic of the same name and the group `sqs` in it: `delay` for a standard queue,
  `ordered` for a FIFO queue, whose message group is the key. So other groups may collect from it,
  and whoever publishes into the topic publishes into the queue.
* Attributes, tags and moves of a queue are its **record**, a document in the system topic
  `qframe.sqs` that is written by comparing versions (`queues`).
* **Receipts, leases and owners** are the gateway's: the visibility of a message is the lease of its
  delivery, and a receipt handle is the receipt.
* A message that was received too often is **dead** in its own queue. A request that looks into the
  dead-letter queue of its redrive policy moves it there first (`service`), published before it is
  dropped; a move task without a destination retries those that are still dead where they are.
* Encryption and policies are kept as they were set, and have no effect: rights are the gateway's.

Failures: each is a code of SQS (`refusals`). The status 503 and the code of a throttled request
say that the client may try again. `docs/sqs.md` has each difference of meaning.
"""

from qframe.web.gateway.sqs.front import SqsFront
from qframe.web.gateway.sqs.names import Place

__all__ = ["Place", "SqsFront"]
