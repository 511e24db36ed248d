"""A worker: from the store to the handler and back.

Its wings, each of which imports only wings above it here, and says in its docstring what lives
there:

    context   the facts that all parts of one consumer share
    handler   how a handler is called, and how its return or its error is read
    flow      how much may be pulled, and whether a handler may begin
    order     which delivery may go next
    executors where handlers run
    policies  what is asked before a handler, and told after it
    feed      pulling, slots, leases, settling
    consume   one consumer: joins all of the above
    process   the worker around its consumers

One *line* per consumer, of four parts with a thread or more each, joined by plain queues:

    pull loop ──deliveries──► lanes ──runs──► pool ──settlements──► settler
       ▲  sleeps on the bell    │               │ threads             │ one call for many
       └──────── room ──────────┴── in flight ◄─┴─────────────────────┘
                                    │
                                 renewal (keeps the leases of what is in flight)

* The **pull loop** asks the store, in one call for all slots, for what fits. A slot whose answer
  was lost is *in doubt*: it is left out until what it may have handed out was revoked.
* `admission` says how much it may ask for: as many as are not too many in flight, as there are
  tokens in a `token_bucket` (the worker's own or a `shared_token_bucket`), none while the consumer
  is paused or its `breaker` is open. Under a rate or a breaker it checks before each handler too.
* **Lanes** let one delivery of a key through at a time (of a slot, where the consumer is serial);
  what comes behind it waits in its lane.
  A consumer with `tags=` has a *tag filter* for lanes: what it does not want is settled there (a
  handler of batches has none, see below).
  Free ones are cut into *runs*: many to a run where the handler is quick, single ones where it is
  slow.
* A **pool** thread takes a run, calls the handler for each, and at the run's end hands over all
  that were acknowledged in one list, frees their lanes, and goes on with what waited in them. Who
  is stuck in a slow message is relieved of the rest of its run within 20 ms, by the steward of the
  pool's `crew`, who rests while nobody works.
* An async handler has an `async_pool` instead: each message is a task in the worker's one
  `event_loop`, at most `threads` of them at once. What is lost, or outlasts a stop's grace, has its
  task cancelled, and its lane is busy until the task has ended.
* A `once_line` settles its runs before it handles them, past the settler's queue; under a rate or a
  breaker message by message, each when `flow` lets it begin.
* A `pulled_line` has a `tray` instead, from which a loop of the user's own takes its messages.
* A handler of batches has a `batch_pool`: what is pulled is gathered in `batches`, and a thread
  takes a batch when it is full, due, or can get no more. See below.
* A `time_limit` marks the messages of handlers that run for longer than `timeout=`.
* The **settler** gathers settlements for up to 10 ms or 256 deliveries and sends them in one call.
  It repeats what failed: a settlement whose reply was lost is stale the second time and harms
  nothing. What of several servers one cannot take is kept for another try; the rest goes on.
* The **lease renewer** prolongs leases every third of their length, on a connection of its own.

* A message that its handler has returned unsettled is in `custody` until somebody settles it, or
  nobody holds it any more.
* The worker's **settings poller** reads every second what is set for its lines' groups, and applies
  it: the pool's threads, the most in flight, rate and pause (`live_settings`).
* The **subscription** makes the group collect, and where it expires (a broadcast consumer's) says
  from time to time that it is served still.

What a delivery can become (`retry_policy`): acknowledged; handed to its handler again after a short
pause, its lane waiting; given back for a delayed retry; dead; or, when the worker stops or loses
the slot, given back uncounted. In a topic with subjects a delayed retry gives back all that waits
in the lane, so that order holds; in a stream what is behind it goes on.

**Batches** (`batch=`) are lanes and gathering in one. A batch in hand has all that it holds of a
lane, in order; who comes meanwhile waits behind it. The first message waits for `within` at most,
and for nothing where the pull loop has no room for more and nothing is in hand that could make
some, or in a burst when nothing more is due. A thread works a batch off in *parts*:

    batch ──► claimed (under a checker, in one call) ──► handler ──returned──► acknowledged
                 │ done before: acknowledged                │ raised: what is not settled
                 └ another one has it: pauses               ├─ NeedRetry: each retried, as said
                                                            ├─ one message: its own error
                                                            └─ several: two halves, tried at once

* What is unwanted by its tags is acknowledged before it is gathered. A message takes its token
  when its claim is had and its handler is called. Where a batch has failed and a half of it must
  wait for tokens, or for the breaker, its messages are tried alone then (`suspects`).
* A delivery counts once, however many parts it was in. A message that pauses (a retry in place, a
  checker away) is gathered again later, and those of its lane that were in its batch go back behind
  it, whatever thread they are in.
* The runs of an ordered topic are settled in their order (`settlement_order`): an ending ahead of
  its turn waits, and one that is retried takes all behind it in the run back with it.
* Under a TransactionalChecker a batch's transaction has the marks of the messages in the handler's
  list and no others. `message.ack` is a vote there, counted when the handler has returned: one
  against, or one that is not this worker's any more, and all is rolled back; the others are tried
  again without it.
* An async handler is called in the event loop, and the thread waits for it (`loop_call`).

Invariants: a lane never has two deliveries with handlers, but in one batch; whatever was pulled is
in `InFlight` until the store has answered its settlement or it was lost (a `once_line`'s until its
handler has ended); nobody but the settler settles. So a line is quiet, and its worker may
stop, when nothing is in flight but what the settler is sending: no part can be asked for what is on
its way from one to another.

Failures: a store that cannot be reached is asked again, with growing pauses; any other error in a
part is its last word and ends the worker, whose leases then run out. Pull loops and relays that
stand still are the `watchdog`'s concern. Stopping is `shutdown`.

Several workers are several processes: `supervisor` starts a `child` for each, by executing the
program anew, and starts it again when it dies; a `supervisor_pipe` joins the two: on it a worker
reports that it serves, and notices that its supervisor is gone.
"""
