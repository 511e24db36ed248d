"""The gateway: publishing, pulling and settling over HTTP. Needs the extra `web`.

    client ── publish ──► routes ──► limits ──► Gateway ──► the app's producer
           ── pull ─────►   │        (token)      │
           ◄─ deliveries ───┤                     ├─► OpenGroup ──► Pull: a worker of the group
           ── settle ───►───┘                     │     receipts, leases
           ◄─ outcomes ─────┘                     └─► another gateway, by the receipt

* A gateway is **a worker of each group that its clients pull from**. It joins when the first client
  pulls, and leaves when nobody has pulled for `idle` or it is stopped, as a worker does: each slot
  passes to others once nothing of it is open. So the slots of a gateway without clients are not
  kept from others. A client that pulls meanwhile makes it join anew, beside what is still open.
  Several gateways and workers share a group's slots.
* An **open group** has one `Pull`, which renews the store's leases, fences, retries and keeps one
  delivery of a key in hand at a time. A thread takes from it as many messages as clients wait for.
* A client's **lease** is a deadline in the gateway, set by the pull and moved by `extend`. When it
  has passed, the delivery goes back to the store to be handed out again at once; it has counted, as
  a delivery does. The key's next message waits until then, as for any delivery that is not settled.
* A **receipt** names its gateway and one handing out. It is known to its open group alone, so it
  settles this delivery of this topic and group once, before its lease ends. Otherwise it is stale,
  and changes nothing. Epoch and store receipt are checked by the store as for any worker: a
  settlement is `settled` when the store has said so, and `unknown` where it has not said it in
  time.
* A receipt of **another gateway** is passed on to it where both have the same secret, and is
  otherwise answered with that gateway's address.
* All states are written in the event loop; `OpenGroup` has them. Calls to the store are in threads.
* **Callers share** what a gateway has: places of groups and requests, bytes, threads, connections
  (`qframe/shares.py`). A caller takes another place only while more are free than it holds: one
  alone gets half, and nobody takes the last. Nothing that was given is taken back, so this needs no
  list of callers, and no quota that somebody would have to set. What waits has turns, one line for
  each caller (`turns`): pulls of a group, calls to the store, requests that are about to begin.
* What a caller **makes** stays for all, so a gateway makes it within bounds (`making`): a group
  that its `consume` names, or on a topic that it may declare, and 100 of a topic; 1,000 topics of
  the names that it may declare. So the file of tokens, which somebody wrote, bounds the rest.

Failures: a client that is gone lets its leases end. A gateway that is killed loses its session, and
its slots pass to others with all that was open. Nothing is lost; a client of the dead gateway that
goes on has no valid receipt. Its lease protects it from another client with the same key only while
the gateway lives, or for the rest of the session: two thirds of the session timeout at the least.
A gateway that is stopped hands out nothing more, waits for settlements up to the grace, and gives
the rest back, uncounted.
"""

from qframe.web.gateway.deliveries import OpenDelivery, Settle, SettleOutcome, SettleReply, Verb
from qframe.web.gateway.gateway import Gateway

__all__ = ["Gateway", "OpenDelivery", "Settle", "SettleOutcome", "SettleReply", "Verb"]
