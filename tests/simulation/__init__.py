"""Whole workers under one scheduler: the same seed, the same disaster.

A run has three workers with every loop of the runtime (pull loop, engine, settler, lease renewer,
membership, expiry, settings poller, sweeper, claim renewal, the threads of the executor), a store,
those who publish, and operators. Nothing runs at the same time, and no time passes but virtual one:

    plan ──► world ──► scheduler: whose turn is it?      history ──► printed, or shrunk first
              │          │
              │          ├── workers: a process each, that may freeze, die, be stopped, come back
              │          ├── connections: calls that take time, get lost, come late, are cut in two
              │          └── users, operators, faults
              └── ledger: what has truly happened, held against the promises after each step

* **The scheduler** (`scheduler`) has a heap of moments and one task for each thread. A task is a
  greenlet: it hands over where it waits, and at every so many locks, as a thread whose turn is
  over. Every moment bears a drawn jitter, so that tasks that wait for the same thing go on in any
  order.
* **No line of the runtime is written for this.** `threads` stands in place of `threading`,
  `SimpleQueue` and the sources of chance in qframe's modules, so that its own `run` methods are
  what runs. The pauses of some loops that look often are longer here, and handlers of some seconds
  count as quick, so that lone messages are handled where they were pulled; nothing else differs.
* **A process** is a set of tasks, a clock (with a rate of its own, and a wall clock that is set)
  and a connection. Frozen, its tasks wait and its clock goes on; killed, its tasks end where they
  stand.
* **A call** to the store (`store`) or to the database of effects (`database`) takes a drawn time
  to get there and a drawn time back. In times of trouble it is refused, is lost on the way there
  or on the way back, comes seconds late, or reaches some slots and is heard of others only. The
  store is `stores.model`, behind a clock that stands still and goes back; its bells arrive late,
  or never. Slots are shared through it by the leases of `coordination.lease`. In some runs rights
  are revoked and given back: for a while the store refuses some operations of a worker, or of all,
  or their parts of some slots, and does all others.
* **A plan** (`plan`) is drawn from the seed alone: kind, slots, options, 50 messages with what
  their handlers do call by call, and 10 faults. A third of the plans are gentle: they have only
  faults after which a delivery may not count whose handler has not failed.
* **Parts that some plans have** are drawn apart from all else, so that a seed stays what it was
  when there is one more: `pulling`, loops of the user's own that take messages and settle them by
  `ack`, where others have handlers; `relaying`, an outbox over the database of `outbox_tables`,
  with users who publish in transactions and roll some back, and a relay in each worker. Its rows
  come into their topic once, in the order of commits, and are deleted after that. `growing`, a
  topic whose slots are doubled meanwhile by a process that is cut off, dies, or stands still until
  another has taken over; whoever calls again finishes it, or a worker's sweeper; `scheduling`,
  schedules that the workers lead, and an operator who pauses, retimes and rewrites them. Each tick
  comes once, in order and on time, but for those that its rules leave out, each of which is
  counted; `deciding`, many dead letters, which operators retry and drop: by their ids, by cause, or
  all. A dead letter that is retried begins with its first attempt, on `ordered` behind what its key
  has waiting; `timing`, timers that are moved, replaced and cancelled while they fall due. What is
  cancelled never comes after that, and what is moved not before its new time; `purging`, groups
  that operators empty, whose workers end by that and begin again where they were dropped. What a
  group was emptied of does not come after that, and all else does; `failing_over`, a
  store that is replaced by one that is up to three seconds behind, and has forgotten messages,
  settlements, slots, epochs, and what operators did. Only what was published within that time may
  be missing, keys keep their order, and until old leases have passed alone two workers may have
  one. In half of such plans with streams that keep order, keys are parked most of the time, and
  handlers overrun their time. Some are those of one of several servers, which has some of the
  slots, and the roster if it has the first. The database of an outbox fails over as well;
  `redeclaring`, a second topic, which operators delete and declare anew, with another kind or
  other slots. Two users publish to it: one gives a `Topic`, the other its name. What is stored
  after the last deletion is there at the end, once. Publishing and declaring raise the errors that
  they name, and no others; `straying`, a second store whose relay serves the same outbox, which may
  have belonged to it at first. That store gets nothing, and its relay changes no row.
* **Pulls stand** in half of the plans (`bell`), as on Redis: a message that comes alone into a slot
  that a pull has left quiet is handed out at once, and the reply goes to the worker's bell. It
  comes late, to a worker that is frozen, or that was killed and not missed yet; or it is lost with
  the bell's connection, which the worker notices, in harsh plans seconds later. There the store
  rings for those slots alone that a pull has left quiet, and workers do not start slowly, since no
  pull of such a one stands.
* **The ledger** hears of each message that is stored, handed out and settled, and of each call of
  a handler. It checks as that happens: no two handlers of a key while both their workers are
  certain, order of each key, attempts, nothing before it is due, nothing acknowledged that was
  not handled, each effect of a transaction once, no death without `on_dead`. Twice a second
  `audit` has the store verified. When the faults are over, all must be done within a bounded
  time: each message was handled by each group, or is dead, or was dropped. Then dead letters are
  retried and messages are published, and idle workers must have them within seconds; then no part
  may hold anything more.
* **Replaying**: a run draws from its seed only, so it is the same run on another machine. A
  failing one is shrunk (`shrink`): fewer faults, fewer messages, fewer options, as long as it
  fails alike.

`make simulate ARGS="--minutes 60"` runs new seeds, `ARGS="--seed 81 --history"` one of them.
Add a fault in `plan.HARSH` or `plan.GENTLE`, and what it does in `faults`.
"""
