"""The store on a database: one portable schema, each operation one transaction.

Tables (`schema`): `topics`, `groups`, `expiries` (when groups go that expire); `slots` (the next
offset of each) and `cursors` (what a group has done of a slot); `log` (streams); `subjects` (heads,
and what left a stream's line) with `backlog` behind them; `dead`; `later` and `held` (what no group
has seen yet); `marks` and `sequences`; `rosters`, `members` and `owners` (who takes part in a
group, and which slots are whose). The numbers of slots and cursors make all those of a topic or
group one range of a primary key, so that a pull sees all slots at one glance (`pull.look`).

Locks. The row of a slot is the lock of those who publish to it, so offsets are given out in the
order of commits and no reader passes a gap. The row of a cursor is the lock of those who pull,
settle or take, so epoch and receipt are checked in the transaction that acts on them. The row of a
group is the lock of those who change its roster; who only looks takes none. SQLite has one writer
at a time anyway: `BEGIN IMMEDIATE`, with a lock of this process in front of it.

Order. `subjects` has one index, (cursor, state, rank, due, seq). `rank` is -priority in todo, 0 in
waiting and the end of the lease in doing, so what to hand out next, what falls due next and whose
lease ends next are each the first entry of a range. Kinds ordered by time are never moved to todo:
those of them whose time has passed are the beginning of waiting.

A stream's window needs no row per message: floor, read, the ranges settled between them, one
receipt and one lease stand in its cursor.

Failures. A transaction is done whole or not at all. What fails before its commit is told as
`StoreUnavailable` or `StoreFull`; a commit that failed without saying how, as `AnswerLost`, and
everything can then be repeated: publishing by its marks, settling by its receipts, pulling by
position or after `recall`. Tables of a later version than this code are refused (`migrate`).
"""
