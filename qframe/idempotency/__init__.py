"""Idempotent checkers: recognising, by a mark, an effect that was done before.

A message may be delivered more than once, and published more than once. A checker gives each of a
group's messages an *effect key* (its id, fields of its body, or a function of it) and keeps a
*mark* for each key of a (namespace, topic, group). A mark is in one of three states:

    absent --claim--> running (token, lease) --finish--> done --kept long enough--> absent
       ^                    |
       +---- release, or the lease has passed

* **claim** returns `CLAIMED` (the effect was absent, or its lease had passed, and is the asker's
  now), `DONE`, or `RUNNING` (another one has it). **renew**, **finish** and **release** need the
  token of the claim; where it has passed to another one they change nothing and say so.
* All four take many claims in one call, and can be repeated: a lost answer is asked for again.

`qframe.runtime.policies` acts on the results: a `DONE` one is acknowledged
unhandled and told as `delivery.duplicate`. A `RUNNING` one waits in its worker, its lane with it,
and asks again after pauses of 20 ms to 1 s; that costs no attempt, so it never dies of it, and it
is never acknowledged before the other one is done. A handler that fails releases its claim, so
that it leaves no mark. The effect is finished before the acknowledgement goes to the settler.

Three checkers, by what they promise when a worker dies (or is frozen, and wakes as one of two):

* `RedisChecker`: the mark is a key of Redis, which ends by itself. A message that was handled and
  not marked yet is handled again: the moment between a handler's return and the reply of Redis,
  which is a call, or, where one is under way, that one, 2 ms and the next. A mark that Redis
  forgets is lost.
* `DatabaseChecker`: the mark is a row, written in transactions of its own; the same moment.
* `TransactionalChecker`: the mark is the first row of the handler's own transaction, in the state
  done. Until the commit nobody sees it, and who would write it too is told that it is running,
  without waiting: by an advisory lock on PostgreSQL, a lock wait of no length on MariaDB (of a
  second on MySQL), a turn of one in a process and a busy timeout of 250 ms on SQLite (where
  commits do not wait for the disk, a thread keeps the turn until its run is over). On PostgreSQL
  BEGIN and the mark are sent together, and so are COMMIT and a last look whether this is the
  mark's transaction still (`short_transaction.py`). So mark and changes commit or vanish
  together, by whomever and however often they are tried: exactly once. The transaction belongs to
  the message and to no thread: `ack()` commits it where it is called. A delivery that is
  cancelled, or may be another worker's already, is not committed but rolled back, and nothing is
  settled.

Failures:

* The checker cannot be asked: its messages wait as running ones do, and `checker.unavailable` is
  told. Messages that were handled are not handled again, only marked, unless their worker dies
  first.
* The answer to a COMMIT is lost: the effect is claimed again, and the mark decides.
* A deadlock or a serialization failure: the transaction is rolled back and the handler called
  again in place, up to 16 times, which costs no attempt; `effect.conflict` is told.
* A handler ends its transaction itself (commit, rollback, close): refused by `CommitRefused`
  before the database hears of it, since half of an effect would stay without its mark. On MySQL
  and MariaDB, statements that commit by themselves (DDL) cannot be seen.
* A handler swallows an error that has ended its transaction: asked of the driver before the commit
  (PostgreSQL would roll back at COMMIT and say nothing; SQLite), or noted when it came (MySQL).
* The claim has passed to another worker (a freeze longer than the lease): its end is refused, the
  message waits, and is acknowledged once the other one is done.
* A retention shorter than a message's retries may last is refused at start.

Told as events, for listeners: `delivery.claimed`, `effect.committing`, `effect.committed`,
`effect.refused`, `effect.passed`, `effect.conflict`, `delivery.duplicate`, `delivery.awaited`,
`checker.unavailable`.
"""
