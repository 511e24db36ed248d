"""A worker: from the store to the handler and back.

One *line* per consumer, of four parts with a thread or more each, joined by plain queues:

    pull loop ──deliveries──► lanes ──runs──► pool ──settlements──► settler
       ▲  sleeps on the bell    │               │ threads             │ one call for many
       └──────── room ──────────┴── in flight ◄─┴─────────────────────┘
                                    │
                                 renewal (keeps the leases of what is in flight)

* The **pull loop** asks the store, in one call for all slots, for what fits. A slot whose answer
  was lost is *in doubt*: it is left out until what it may have handed out was recalled.
* **Lanes** let one delivery of a key through at a time (of a slot, where the consumer is serial);
  what comes behind it waits in its lane.
  Free ones are cut into *runs*: many to a run where the handler is quick, single ones where it is
  slow.
* A **pool** thread takes a run, calls the handler for each, and at the run's end hands over all
  that were acknowledged in one list, frees their lanes, and goes on with what waited in them. Who
  is stuck in a slow message is relieved of the rest of its run within 20 ms.
* The **settler** gathers settlements for up to 10 ms or 256 deliveries and sends them in one call.
  It repeats what failed: a settlement whose reply was lost is stale the second time and harms
  nothing. What of several servers one cannot take is kept for another try; the rest goes on.
* **Renewal** prolongs leases every third of their length, on a connection of its own.

* The **subscription** makes the group collect, and where it expires (a broadcast consumer's) says
  from time to time that it is served still.

What a delivery can become (`handling`): acknowledged; handed to its handler again after a short
pause, its lane waiting; given back for a delayed retry; dead; or, when the worker stops or loses
the slot, given back uncounted. In a topic with subjects a delayed retry gives back all that waits
in the lane, so that order holds; in a stream what is behind it goes on.

Invariants: a lane never has two deliveries with handlers; whatever was pulled is in `InFlight`
until the store has answered its settlement or it was lost; nobody but the settler settles.

Failures: a store that cannot be reached is asked again, with growing pauses; any other error in a
part is its last word and ends the worker, whose leases then run out. Stopping is `terminator`.

Several workers are several processes: `supervisor` starts a `child` for each, by executing the
program anew, and starts it again when it dies; a `lifeline` joins the two, on which a worker says
that it serves and notices that its supervisor is gone.
"""
