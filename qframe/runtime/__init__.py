"""A worker: from the store to the handler and back.

Its wings, each of which imports only wings above it here, and says in its docstring what lives
there:

    context   the facts that all parts of one consumer share
    renewal   when leases and claims are renewed
    handler   how a handler is called, and how its return or its error is read
    flow      how much may be pulled, and whether a handler may begin
    order     which delivery may go next
    executors where handlers run
    policies  what is asked before a handler, and told after it
    feed      pulling, slots, leases, settling
    consume   one consumer: joins all of the above
    process   the worker around its consumers

One `Consumer` per handler, of four parts with a thread or more each, joined by plain queues:

    pull loop ──deliveries──► order ──attempts──► executor ──settlements──► settler
       ▲  sleeps on the bell    │                   │ threads, loop           │ one call for many
       └──────── room ──────────┴──── in flight ◄───┴─────────────────────────┘
                                          │
                                       renewal (keeps the leases of what is in flight)

* The **pull loop** asks the store, in one call for all slots, for what fits. A slot whose answer
  was lost is *in doubt*: it is left out until what it may have handed out was revoked. So is one
  of which something that was given back has not reached the store: what is behind would pass it.
  A stream's slot in which its own leases have passed it gives up, and takes anew.
* `flow` says how much it may ask for: as many as are not too many in flight, as there are tokens in
  a `bucket` (the worker's own or `shared_bucket`), none while the consumer is paused or its
  `circuit` is open. Under a rate or a breaker it stands before the handler as well.
* The **order** lets one delivery of a key through at a time (of a slot, where the consumer is
  serial); the others wait in its lane. In a consumer with `tags=` it settles what is not wanted.
* An **attempt** is a delivery in this worker. Its handler sees it as a `Message`; its state is
  written by its own methods alone (`handler/attempt.py` has the states).
* The **engine** leads attempts through their handler: its *starter* begins them (are they ours, is
  there a token, what does the policy say), and its *finisher* ends them (acknowledged, tried again
  here or by the store, given back, left to their user). It is the same for one attempt and for a
  batch, in every executor, and a policy tells it what is to become of each attempt. There is one
  fast path: plain handlers in threads, with no policy, rate or breaker, are called in a loop of
  their own.
* The **policy** makes an effect happen as often as it should: `Direct` asks nobody, `SettleFirst`
  settles before the handler is called, `Marks` and `Transactional` ask an idempotent checker.
* The **executor** calls the handler. `ThreadExecutor` cuts attempts into runs: many to a run where
  the handler is quick, single ones where it is slow. At the end of a run all that was acknowledged
  is handed over in one list. A monitor gives the rest of a stuck thread's run to others within 20
  ms, and sleeps while nobody works. `LoopExecutor` has each attempt in a task of the worker's one
  event loop. `BatchThreadExecutor` has threads that take batches. `PullBuffer` holds attempts for a
  loop of the user's own. A harness has one that works in the test's thread.
* Under marks a `MarkSender` marks effects while threads go on with their runs: one call at a time,
  with all that has returned meanwhile. A run is claimed in one call.
* Where blocking is allowed: a policy may wait for its server in a thread of the executor, or in a
  thread beside the event loop; never in the loop, in the pull loop or in the settler. A part that
  reports a loss releases claims in the background.
* A `time_limit` marks the messages of handlers that run for longer than `timeout=`.
* The **settler** gathers settlements for up to 10 ms or 256 deliveries and sends them in one call.
  It repeats what failed: a settlement whose reply was lost is stale the second time and harms
  nothing. Settlements that one of several servers cannot take are kept for another try; the rest
  goes on.
* The **lease renewer** prolongs leases every third of their length, on a connection of its own.

* An attempt whose handler has returned without settling it is in `ManualAcks` until its user
  settles it, or nobody holds it any more: then it is handed back, and counts.
* The worker's **tuner** asks every second what is set for its consumers' groups, and changes their
  threads, what is in flight, rate and pause (`flow`).
* The **subscription** makes the group collect, and where it expires (a broadcast consumer's) says
  from time to time that it is served still.

The ends of a delivery (`handler/retry_policy.py`): acknowledged; handed to its handler again
after a short pause, its lane waiting; given back for a delayed retry; dead; or, when the worker
stops or loses the slot, given back uncounted. In a topic with subjects a delayed retry gives back
all that waits in the lane, so that order holds; in a stream what is behind it goes on.

**Batches** (`batch=`) are lanes and gathering in one. A batch in hand has all that it holds of a
lane, in order; who comes meanwhile waits behind it. The first message waits for `within` at most,
and for nothing where the pull loop has no room for more and nothing is in hand that could make
some, or in a burst when nothing more is due. A thread works a batch off in *parts*:

    batch ──► claimed (under a checker, in one call) ──► handler ──returned──► acknowledged
                 │ done before: acknowledged                │ raised: what is not settled
                 └ another one has it: pauses               ├─ NeedRetry: each retried, as said
                                                            ├─ one message: its own error
                                                            └─ several: two halves, tried at once

* A message that its tags exclude is acknowledged before it is gathered. A message takes its token
  when its claim is had and its handler is called. Under a rate or a breaker a failed batch is cut
  into single messages at once: halves that had to wait would be gathered with others.
* A delivery counts once, however many parts it was in. A message that pauses (a retry in place, a
  checker away) is gathered again later, and those of its lane that were in its batch go back behind
  it, whatever thread they are in.
* The runs of an ordered topic are settled in their order (`order/settlement_order.py`): an ending
  ahead of its turn waits, and one that is retried takes all behind it in the run back with it.
* Under a TransactionalChecker a batch's transaction has the marks of the messages in the handler's
  list and no others. It ends with the handler, so `message.ack` and `auto_ack = False` are refused
  there. If one is not this worker's any more, all is rolled back, and the others are tried again.
* An async handler is called in the event loop, and the thread waits for it (`BatchCall`).

When a worker is lost, or its slot is: attempts with handlers are cancelled, and their ends refused
by the store; the others leave at once. A claim passes with its lease, a transaction with its
connection. A stop gives back what has no handler, waits for the grace, then cancels the rest and
gives it back, uncounted. An effect that is being finished then is finished, and settled.

Invariants: a lane never has two deliveries with handlers, but in one batch; whatever was pulled is
in `InFlight` until the store has answered its settlement or it was lost (settled first, until its
handler has ended); nobody but the settler settles. So a consumer is quiet, and its worker may
stop, when nothing is in flight but what the settler is sending: no part can be asked for what is on
its way from one to another.

Failures: a store that cannot be reached is asked again, with growing pauses; any other error in a
part is its last word and ends the worker, whose leases then run out. Pull loops and relays that
stand still are the `watchdog`'s concern. Stopping is `process/shutdown.py`.

Several workers are several processes: `supervisor` starts a `child` for each, by executing the
program anew, and starts it again when it dies; a `supervisor_pipe` joins the two: on it a worker
reports that it serves, and notices that its supervisor is gone.
"""
