"""Schedules: one message for each tick, whoever dies on the way.

    put ──► record in the system topic ──due──► decided ──► written ahead ──► published ──► finished
              (one message per schedule)                      `sending`        in a series

**Records.** A schedule is one message of the internal topic `qframe.schedules`, of kind `delay`,
whose key is the schedule's name, whose body is the whole `Schedule` as JSON, and whose due time
orders them by when somebody has to look at each next. Nobody pulls these messages: the leader asks
for the first ones (`Reads.timers`), people look them up by name (`timer`). Their due times
lie 317 years ahead, so that none ever is due, or late. A record is replaced by publishing
the next one under the same key, with its version as the place in a series (`Entry.series`) and the
version that it follows: of two that follow version 8, one is stored and the other is a duplicate,
and reads again. So every change is a comparison and a swap, on every store, whether it comes from
the leader or from a person. A leader counts the version up, and what a person changes has the time
for its version: so none that a failover has forgotten is its equal, and a leader who still knows
such a one writes over no change. A schedule that was deleted leaves its record behind as a
tombstone, which keeps the version.

**The leader** is the worker that owns slot 0 of that topic in the group `leader`, by the app's
coordinator. It looks before each publish whether it may still be the owner; that there is
no second message does not depend on it, since any number of leaders may try:

1. `decision` works out, from the record and the store's clock, which ticks fire, and which are
   missed, skipped or dropped.
2. The leader writes the record with the ticks and the message as it is now in `sending`. One that
   loses here does nothing more. An edit keeps `sending`, so what is under way is not changed by it.
3. It publishes a message for each tick. Its id is `cron/<name>/<tick>`, and its place in the series
   `cron/<name>` is the tick: the topic's slot remembers the last place for ever, so a tick that
   comes again is a duplicate, an hour or a year later.
4. It writes the record without `sending`, and due at the next tick.

A leader that dies before 2 has done nothing; between 2 and 4 its successor finds `sending` and does
3 again. A topic that refuses the message (it is full, it is gone) is tried again, for longer each
time, up to a minute; other schedules go on.

**Late ticks.** A tick is late if nobody has looked at it for a minute. `catch_up` says which of the
late ones fire: none, the latest, or all that are not older than `window`; the rest are *missed*.
Ticks that are not late all fire. While the message of the tick before is not settled, `overlap`
decides: `allow` publishes all the same, `skip` passes the tick over (*skipped*), `queue_one` and
`queue_all` hold 1 or 1,000 ticks back, and a tick without room is *dropped*. A message is settled
once no group has it to do: it is looked up by its key and id, in a stream by the offset that the
leader has noted behind 3. All three are counted in the record, and told as events.

`timing` says which moments are ticks; `record` is what is kept, `checked` what may be; `records`
reads and writes it; `decision` and `leader` are the steps above; `verbs` is `app.schedules`;
`preview` looks ahead.
"""
