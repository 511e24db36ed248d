"""The outbox: messages that are published when, and only when, a business transaction commits.

    Outbox.publish(session, …)          the user's transaction: lock the line, insert the row
            │ commit
    table outbox ── Relay ──► topic     in any worker: read, mark, publish, delete

**Tables**, in the user's database (`qframe.tables`). `outbox` has a row for each message that is
not known to be in its topic. `lines` has the rows 0 to 1023, each the lock of the keys that hash to
it, and the row -1, whose count is a random number: the outbox's identity, by whatever URL its
database is reached. The row -2 is for refused messages, and -3 names the store; both come later.

**Order.** Who publishes with a key first updates the row `crc32(topic, key) % 1024` of `lines`, and
so holds it until the transaction ends; the row of `outbox` gets its number after that. So among the
rows of a line the order of numbers is the order of commits, and when one is visible all before it
are. A message without a key needs no order: it locks nothing, and its line is 1024 + a hash of its
id. Nothing else is said about numbers: a slower transaction commits below those that were read, so
a relay never asks for what is above the last seen, but for what is there, the lowest numbers first.

**The life of a row**

    (transaction) ──commit──► stored ──marked──► sending ──published──► gone
          │                     ▲                  │
       rollback: nothing        └──── refused ─────┘   its line pauses, for longer each time

One transaction of the relay deletes what the last batch has brought into the topic, reads the next
batch, and marks it: `sent_at` is when a row was first handed to the store. Then the batch is
published under the rows' own ids. The results of a crash, or of a lost reply, are these:

- before the mark: nothing has happened.
- between mark and delete: the rows are read and published again, and the topic knows their ids.
- the same, and nobody comes by for longer than the topic's `dedupe_window`: rows whose mark is
  nearly as old are looked up in the store first (`explain`). Ids that it still knows are not
  published again. Ids that it does not know are, since they may never have come there: at least
  once.

**Relays.** The lines are shared out in 16 slots, by the app's coordinator, over an internal
topic that never has a message, `qframe.outbox.<prefix>-<identity>`, group `relay`. A slot has one
relay. One that was frozen and wakes up looks first whether it may still; the moment that lies
between that look and the store's answer can only repeat what is known by its id, in the same order:
every relay begins with the lowest rows of a line.

**The store.** An outbox belongs to one store and namespace: rows that go elsewhere are lost. The
row -3 of `lines` is a *mark*, a number that was drawn when the outbox was bound, and the store has
an internal topic of that name, `qframe.bound.<mark>`, that never has a message. So it is the same
store by whatever URL, and a restored one, but not a copy (`qframe store copy` leaves marks out),
not one that was flushed, and not another namespace.

    no row -3 ──first relay──► bound ──another store──► refused (`WrongStore`) ──bind──► bound

A relay looks before it reads a row, whenever its slots change. It reads the row -3 again in each
transaction that reads rows, so once an outbox is bound elsewhere, no further batch goes to the old
store. One that is refused marks, publishes and deletes nothing, and looks again every 5 s; its
worker's consumers go on. The store has its mark before the row -3 does, so no crash leaves an
outbox with a mark that no store has; of several stores that bind it at once, the first row wins. A
relay whose store loses a mark that it had (a flush under running workers) puts it back, as running
workers declare their topics again. A store in a process's memory takes what is bound to none.

**Refused messages.** A row that the store refuses (`TopicFull`, `UnknownTopic`, `TopicMismatch`,
`BadBody`) stays, and pauses its topic's line, or the whole topic if that is what is wrong; all
others go on.
`inspector` shows and drops refused rows, and works out the reasons anew; the count in the row -2 of
`lines` grows when relays are to try at once what is paused. If the store or the database is away,
the relay waits, and goes on. One that hangs or has died ends its worker:
`runtime.process.watchdog`.

**Waking.** A commit in the relay's own process rings its bell; on PostgreSQL every commit notifies
all relays; elsewhere they look every 5 to 250 ms. A bell is a hint: without it they look too.
"""
