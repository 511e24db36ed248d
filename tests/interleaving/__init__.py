"""Pairs of store operations on real stores, the second one run in the middle of the first.

Conformance does one thing after another; the simulator has a store whose operations are one step
each. Between the two lies what a real store does in several: a transaction reads, then locks, then
writes; an operation on Redis sends several scripts; `Admin` lists first and changes then. There
another process may act, and no test that runs on its own meets that moment twice.

Points. Each statement that a transaction sends, COMMIT among them, is a point of its operation, and
so is each script or command that goes to Redis. They are met in the driver (`points`): a connection
or a client is handed to the store with a stand before each of them, and the product knows nothing
of it. A point is named by its operation, its number and what is about to be sent there, such as
`publish 4: SELECT cursors FOR UPDATE`. BEGIN is none, since nothing has been read, but on SQLite,
where it takes the only lock.

A run. A scene (`scenes`) is a topic with a past: groups, messages that wait, are due, in hand,
dead, delayed or held, leases and groups about to end. It is drawn from a seed, as are two
operations of the table in `operations`, which has a row for each operation of the contract and some
of `Admin`. The first one runs up to a point, and stands there. The second one runs in another
thread, on another store object on the same messages, as another process has it: to its end, or
until it waits for a lock of the first. That it waits is asked of the database and never guessed
from time (`places`): `pg_blocking_pids`, `Innodb_row_lock_current_waits`, or the refusal of SQLite
with a busy timeout of 0. Then the first one goes on.

What must hold (`oracle`). Both results and all that is there afterwards must be those of the model
on which the same two were done one after the other. Which order that may be follows from the run:

- the second one has ended before the first had changed anything: it was first, and the first must
  act on what it left, so a group that was dropped is not written to, and a new one is not left out;
- it waited for the first: it was second, unless a deadlock undid the first; one of several calls
  may have begun before the first, and be on its way to a later call;
- the first changes nothing, or had changed something already (on Redis): either way;
- the first is several calls of the store, as those of `Admin` are: between any two of them.

What is there afterwards is counts, records in each state with their attempts and times, rosters,
settings, and what one more pull hands out in which order; `verify` must be content. Where something
became due for workers that had looked before (a scene that is idle), a bell must have rung.

What is not compared, and why, stands beside the rule that leaves it out, as `Exempt` in `oracle`.

    operations  the table                     places  the real stores, and who waits in them
    scenes      how a topic stands before     points  where the first one stands
    oracle      what the model allows         pairs   one run, all runs, and what is said of a fault

`make interleave` runs all pairs at all points; `test_interleaving` has a share of them.
"""
