"""The store on a database: one portable schema, each operation one transaction.

Tables (`schema`): `topics`, `groups`, `expiries` (when groups go that expire); `slots` (the next
offset of each) and `cursors` (what a group has done of a slot); `log` (streams); `subjects` (heads,
and what left a stream's line) with `backlog` behind them; `dead`; `later` and `held` (what no group
has seen yet); `marks` and `sequences`; `documents` and `buckets` (what stands beside the messages
of a group, and its tokens); `history` and `endings` (how attempts have ended, of
topics that keep that); `growths` (how far topics have grown); `numbers` (none is given twice). The
numbers of slots and cursors make all those of a topic or group one range of a primary key, so that
a pull sees many slots at one glance (`slot_overview`).

Isolation. Operations that write run under READ COMMITTED: each statement sees what is committed, so
after a lock one looks again. Operations that read one state (stats, verify) run under REPEATABLE
READ and take no lock; those of one statement (the look before a pull) are in no transaction at all.
The time is the server's, read once the locks are held: so `joined_at` grows with `seq`. SQLite has
no clock and takes this machine's, and one writer at a time: `BEGIN IMMEDIATE`, with a lock of this
process in front of it.

Locks are taken in one order, each sort ascending, and only on what an operation uses:

    topic    who adds or drops a group, or splits a slot
    group    who writes a document of it or drops it
    slot     who publishes to it, joins what was delayed or held, seeks, subscribes, sweeps, or
             deletes the topic; so offsets are given out in the order of commits, and no reader
             passes a gap
    cursor   who pulls, renews, settles, takes, moves, or puts into its queue (publishing to
             subjects does); so epoch and receipt are checked in the transaction that acts

Growth. A closed slot has a head below zero, and its cursors leases that end below zero, so whoever
locks one of them to change something notices without another statement; so has a new one until it
is in use. An operation that goes over all slots and locks none of them (reading, dead letters,
groups that come or go) compares how far the topic has grown with what it went by. In both cases
`SlotsClosed` is raised, nothing is done, and `role` runs the operation again. The cursors of slots
that were split stay, and groups that come later have them too, so a worker that has not heard of
the growth is fenced, and not told that its group is gone. A pull looks at the slots that it was
asked for and at those between.

An operation that waited for a cursor and finds it gone knows that the group was dropped: publishing
leaves that group out, all else says `UnknownGroup`. Pulling needs no `SKIP LOCKED`, since a cursor
has one owner, and what another does with it (publish, renew) is short; sweeping has it, so that it
makes nobody wait and waits for nobody. Deadlocks that remain (a group that is dropped while
somebody publishes), serialization failures and lost connections before a commit are run again by
the driver: an operation changes nothing but the database, so no attempt is burned.

Order. `subjects` has one index, (cursor, state, rank, due, seq). `rank` is -priority in todo, 0 in
waiting and the end of the lease in doing, so what to hand out next, what falls due next and whose
lease ends next are each the first entry of a range. Kinds ordered by time are never moved to todo:
those of them whose time has passed are the beginning of waiting.

A stream's window needs no row per message: floor, read, the ranges settled between them, one
receipt and one lease stand in its cursor.

Heads and lines of many subjects are looked up in one statement where a parameter may be an array
(`lookups`), and what becomes of them is written in batches at the end of an operation.

Bells (`notification_hub`). A transaction that makes something due sends a notification
(`notifications`) when it is committed: to all processes through PostgreSQL's NOTIFY, elsewhere to
this process, while a query for the heads of slots (MariaDB) or a look at a counter of the file
(SQLite) finds what others did.

Files. Each role has the module of its name, as in the other stores. Beside them are

    rows           `topic_ref` and `cursors` (numbers, locks), `records`, `ranges`, `migrate`
    growth         `growing`, and `copying` under its tokens
    publishing     `marks`, by which duplicates are known
    statements     `lookups`, `named` and `padding` (many rows in one statement)
    streams        `window`, `parking` and `stream_settle`
    subjects       `heads`, `arrivals`, `sequences`, `promotions`, `hand_out`, `subject_settle`
    leases         `leases`, part of pulling
    the end        `histories`, `malformed` (rows that others have changed), `sweep`
    for people     `counts`, `row_counts`, `audit`

Failures. A transaction is done whole or not at all. A failure before the commit is told as
`StoreUnavailable` or `StoreFull`; a commit that failed without saying how, as `AnswerLost`, and
everything can then be repeated: publishing by its marks, settling by its receipts, pulling by
position or after `revoke`. A server that ends a session whose transaction is idle for 30 s frees
what a frozen worker had locked. Tables of a later version than this code are refused (`migrate`).
"""
