"""Tests of handlers: an app without its store, its coordinator and its clock.

A `Harness` rewires an app while a `with` block lasts: its store is one in memory (`stores.model`,
the specification of all the others), its clock stands still until the test moves it, and one worker
owns every slot. Everything that the app publishes goes there. Nothing runs by itself and
nothing sleeps: handlers are called in the thread of the test, one message at a time, in an order
that is always the same.

    harness ──► worker ──► stepper ──► runtime.consume ──► handler
       │          │           │  pulls one message         │
       │          │           ◄──── inline, settling ──────┘  in place of threads
       │          └── crashes: where the worker is to be lost
       └── wiring: gives the app `store` (the model, with a `journal` of what it was told),
           `ownership` and the clock, and takes them back

The consumers are the worker's own (`runtime.consume`), so retries, dead letters, explicit
acknowledgement, lanes and checkers are those of a real worker. Only the parts that have threads
are others: `inline` runs the handlers, `settling` tells the store at once, and `stepper`
pulls.

* **Time.** `run_until_idle` handles what is due now. `advance` goes from one moment at which
  something falls due to the next. Pauses inside a worker (a local retry) cost no time. A backoff
  waits its whole bound, without jitter, so that a test can say when a message comes again.
* **Crashes.** A lost worker calls no handler more and tells the store nothing more. Its messages
  come back, counted, when the next one takes over: after `session_timeout`, by `advance`. Its
  transactions are rolled back at once, and its claims of other checkers are given up.
* **Not simulated.** Threads, several workers at once, a bell, sweeping. Times of databases and
  of Redis (a checker's leases, an outbox's rows) are real ones.

`plugin` has the fixtures for pytest.
"""

from __future__ import annotations

from qframe.errors import NeverIdle
from qframe.testing.crashes import Point
from qframe.testing.harness import Harness
from qframe.testing.journal import End, Handing, Publication, Standing, Tally

__all__ = ["End", "Handing", "Harness", "NeverIdle", "Point", "Publication", "Standing", "Tally"]
