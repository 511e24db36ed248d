"""The store on Redis: each operation one script for each slot that it touches.

All keys of a slot begin with `qf:{namespace:topic:slot}:`, so that a cluster keeps them together
and a script can make their names. `qf:{namespace}:topics` is a hash of what is declared. Per slot:

    head       the next offset or number        log, first       a stream; its first kept offset
    groups     a hash: group, claims or joins   later, ticket    by due: what joins the log then
    ids        marks, by when they pass         sequences        a hash: key, next number
    claimed    some group took what was kept    letters, held,   what waits behind a gap: values by
    asleep     who waits, and how pulls stand      gaps          member; by name; by when it passes
    expiries   groups that expire, by when they are dropped
    closed     it is being split in two, or was; is new, and not in use yet; or its topic was
               deleted, or declared anew since (`parts/closed.lua`)
    opened     the next token of who makes it; - while it is discarded; = and the end of the lease
               under which it comes into use, from then on
    birth      in slot 0, a name of what is here: another one once it was lost

Per slot and group, after `g:<group>:` (what no group has claimed stands under an empty name):

    cursor     a hash: epoch and counts; of a stream floor, read, receipt, lease, settled ranges
    body       a hash: each subject's head, its meta and envelope
    tries      a hash: seq, tries, lost, run, receipt and error of what was handed out before
    waiting, retry   by due     heads to come, the second those that were handed out before
    todo             by rank    heads that are due; the member is due, seq, subject
    doing            by lease   heads that are handed out
    next             a hash     the next round behind a head in doing
    behind:<subject> a list     what stands behind the head of an ordered subject, or a parked key
    dead, graves     dead messages, by when they died; the member is the seq; a hash of the rest
    named, keyed     leads to them: an id or a key, and the seq; all with the score 0

Per group, in slot 0 alone, after `g:<group>:`: its documents (`documents:<space>`, a hash: name,
version, when it was written, value) and `bucket` (a hash: the tokens' level, and when it was that).
They are little and change seldom, so one slot has all of a topic. A write that changes a value
publishes to `qf:bell:<namespace>:<topic>:<group>:<space>`, whether anybody listens or not. A group
of a topic with a history has in each slot `history` and `ended` (how attempts have ended, and when:
`parts/history.lua`).

A head's member stands in exactly one of the four sorted sets, its value in `body` wherever it
stands, so a change of state moves a few bytes and never the message, and each count is one ZCARD.
Equal scores sort by member, bytes in order: so todo is ordered by rank, then due, then seq, without
a score that would have to hold all three. The cursor counts what stands behind heads that wait
(`parked`) or are handed out (`running`), and of a stream all that does (`behind`). Numbers are
big-endian (`parts/head.lua`).

A message is an envelope, `[id, key, headers, body]` in msgpack, from the producer to the handler.
Its time of publishing is the server's and its body opaque, so what only the server knows stands
beside the envelope, and no script parses or rewrites one (`change` cuts it by its lengths). The
log's entries are record batches: the id is `<first offset>-<count>`, the field `b` that many
envelopes. A thousand messages are one XADD, any offset is found by one XREVRANGE, and a client
turns an entry into an array by putting a header before it.

A stream's window, what lies between floor and read, is part of the cursor: the ranges settled in
it, one receipt, one lease. A pull writes the cursor once and so does a settlement, however many
messages they are about; the log is read beside the script (`log_readahead`). When the lease passes
or a new epoch comes, what is unsettled is copied out of the log into `body` under the text of its
offset, and goes through the sorted sets by itself, with due 0 and its offset as seq: before all
else, in order. Where the group keeps order (`max_parked` in the cursor), it is copied under its
key, in line with what has left of that (`parts/parking.lua`), and a pull that finds anything in
`body` reads the log itself, takes from the line what is of those keys, and says which offsets to
skip.

A script is one atomic step, at every cut. Redis does not undo what a script has written when one
of its commands is refused, so each asks for all its rights before its first write, and a user who
lacks one is refused whole (`drivers/scripts.py`); those that only read are marked `no-writes`. It
checks the epoch in the cursor, and the receipt in `tries` or in the
cursor, before it changes anything, and takes the time from its server, once. A publisher gives one
mark for a batch (or an id, where it was named) and finds in the same step whether it was there.

The bell: a pull that finds nothing sets `asleep`, in the same step; what brings something deletes
it, and where it was there publishes to `qf:bell:<namespace>:<topic>`. A busy slot publishes
nothing. A message that falls due by itself rings nothing: a sleeper was told when that will be.

A pull that stands has its terms in `asleep`, beside the mark of those who only sleep. The script
that publishes one message, due now, hands it out by them (`parts/answer.lua`) and publishes it to
the sleeper's own channel, `qf:bell:<namespace>:<topic>:<address>`, first: where nobody hears that,
or anything else stands in the way, it rings instead. So a worker that has died is handed nothing.
A cluster's nodes know their own listeners only, so no pull stands there. Groups that keep order
have none either, since a pull of theirs looks at all that is parked.

Each dead letter has one member of `named`, also one that cannot be read. An id that was assigned to
an unreadable message tells its place and needs no look-up.

Layout. The hash of topics has with each kind the number of the layout (`keys.LAYOUT`), so a program
of another one knows no such kind, and refuses the topic before it touches what is there of it.

Growth. The hash of topics has beside the kind how far the slots have grown (`keys.grown_from`). A
script that would change a closed slot replies with the error CLOSED (`parts/closed.lua`), which the
driver raises as `Refused`, after the replies of the other slots. Publishing passes that on as
`SlotsClosed`; all else is run again once the topic has grown (`role._call`), and notes what it has
done so far. The owner of a slot is fenced by the epoch of its cursors, which stay when all else of
a slot is discarded; so nothing that a worker does often looks at `closed`. Slot 0 keeps the list of
groups, and what stands there alone, when it is split: `enlist` then decides in place of
`subscribe`. A slot that is made is written under a token, which each write replaces by the next
one; it is closed, too, for whoever knows it from before a failover. Before `grow` puts it into use,
which touches keys of another server, `use` opens it and changes the token into a mark that nobody
writes by, and refuses where the token is another one; then it is looked whether both marks and
`closed` are there, in case a server has just taken over.

Failures. A call that a server refused undone is tried again for a few seconds (`drivers/redis.py`).
A reply that never came is told as `AnswerLost`; then publishing is repeated by its marks, settling
by its receipts, pulling by position or after `revoke`. A call about several slots may be done in
some. The frequent calls of a worker (pull, renew, revoke, settle) wait for no server: they are done
where they can be, and the reply names what is away, for the worker to repeat, so that no node waits
for another. At `maxmemory` Redis refuses the scripts that bring or change messages (`#!lua`) before
they begin, as `StoreFull`; all others may pass it (`flags=allow-oom`), since they free memory. A
subscription that broke off is repeated: slot 0 decides who gets what was kept, the others follow
it. A group is dropped from the last slot to the first, in steps, and what is left is removed before
one of its name subscribes again. `sweep` removes passed marks, old entries and groups that have
expired, 500 at a time; each slot knows for itself when a group expires, so what a sweep that broke
off has left is found by the next one. Messages that a server loses, by power or failover, are lost
here too: docs/guarantees.md tells how many that may be.

Files. Each role has the module of its name, as in the other stores. Beside them are `keys` (names
of keys, calls of scripts), `rights` (what the server's user must be allowed, asked for before the
first publish and subscription), `envelopes` and `reading` (messages to bytes and back), `records`
(the same for people), `log_readahead`, `leases` (part of pulling), `malformed` (messages that
cannot be read), `histories` (notes of ends, and entries), `counts` and `audit`. `pages` stands on
`places` (sorted sets), `scan` (whole hashes) and `leads` (dead letters by ids and keys).
"""
