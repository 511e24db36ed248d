"""The contract of a store: what every store does, and what each operation promises.

`stores/model` is this page as the shortest program; `tests/conformance` holds every store to it.

Every operation takes and returns batches and names the slots that it touches; what it does to one
slot is one atomic step, what it does to several need not be. Times are the store's: `delay_ms` is
counted from the store's clock, `at_ms` compared with it. An operation whose reply was lost can be
repeated: publishing is idempotent by id, settling by receipt, pulling by position and receipt.
`base` and `acts` have most operations, role by role; `documents`, `pages`, `edits` and `bucket` the
others; `types` their requests and results; `records` where messages stand, for people.

The life of a message, for one group:

    publish ──► waiting ──due──► todo ──pull──► doing ──ack──► settled
                   ▲              ▲               │
                   └──── retry ───┴── release ────┼──dead──► dead ──RETRIED──► todo
                                  ▲               │            └──DROPPED──► cancelled
                                  └── lease lost ─┘

**Streams.** A slot is a log of messages at offsets 0, 1, 2 …; a group has a *read* position (the
next offset to hand out), a *floor* (all below is settled) and the set of offsets settled above it.
Between floor and read lies its *window*, under one receipt and one lease, since a slot has one
owner; when the lease passes, or a new epoch is taken, the messages in the window that are not
settled leave the line. They do so too when the owner is ahead of the store, which has failed over
to a server that is behind: it has received what lies beyond read, so that other messages get these
offsets and the receipt must not settle them; or it has fewer in hand than are unsettled, since a
settlement was forgotten. Where nothing is read then, the pull tells it the read position. A message
that left the line (a retry, a release, a loss) is queued for itself, under the text of its offset
as its subject: released and lost ones at the front, by offset, retried ones by due time. Nothing
new is handed out from the line while one of the front waits, so keys keep order.

**Order.** A group of a stream that was subscribed with `max_parked` above 0 *keeps order*: what
leaves its line and has a key is queued under the key (`rules.subject_of_parked`), by the rules of
`ordered` below; what has none, under its offset as ever. While a key has such a subject it is
*parked*: its messages stand by offset, the smallest is the head, and those behind it have neither
times nor attempts. A message takes its place whenever it comes. Before the head, it becomes the
head, due when it says itself, and the old one goes behind it; a lease that this one had ends
uncounted. In the midst of a run it cuts that off before it. A dead letter that is retried passes
by no head that is handed out.

Of a window that is lost only those count as lost that become heads, since nobody but the first of a
key can have had a handler. A message of the line whose key is parked is not handed out: the pull
puts it behind its key and settles its offset, in the same atomic step, and it counts towards the
limit. While `max_parked` messages or more stand behind heads in a slot, its line is not read
further. A message that left the line before the group kept order stands under its offset until it
is settled, and parked ones go on as they stand where order is kept no more.

**Subjects.** The other kinds queue subjects. A subject's *head* is the message to hand out, and
stands in one place: waiting, todo or doing. Behind it wait the others (`ordered`), or at most one
next round (the other kinds), and those only while the head is in doing.

    order among due subjects      equal subject published again, head not in doing
    ordered   -priority, due, seq   appended behind the others
    priority  -priority, due, seq   replaces: priority; due: the new one's if that is to come,
                                    else the earlier of both
    delay     due, seq              replaces: due
    merge     due, seq              merges: the due time stays

A replaced or merged head keeps its `seq`, takes the new id, key, headers, body and published_at,
and its attempts start over. While the head is in doing, the new message becomes the next round
(outcome `stored`), and a further one replaces or merges into that by the same rules. When the head
is settled (ack, dead) the next round takes its place. When the head comes back instead (retry,
release, lost lease), the next round is applied to it as if it were published then, onto the head
with its new due time: two have become one, and `published` falls by one.

For `ordered`, and for parked keys, when the head is settled the next message becomes head, due at
`max(now, its own due)`, so that its subject goes to the end of the queue; a message with a delay
holds back what is behind it. A pull may hand out a *run*: the head and up to `run - 1` messages
behind it that are due, under one receipt. They are settled in order: acknowledging the head makes
the next one the head, still in doing while it belongs to the run. Retrying the head, or losing the
lease, gives the rest of the run back uncounted. Releasing one behind the head cuts the run off
before it. A head with `lost > 0` is handed out alone.

The priority of an `ordered` subject is its head's. `due` of a head that is retried is its retry
time; of one released or lost it is what it was.

**Sequences** (`ordered`, with a key): a slot remembers for each key the next number, from 1. A
message with that number is stored, and so are those behind it that were held; one with a larger
number is held, before any group sees it, until the gap is filled or its own `gap_timeout` has
passed (looked at in every pull from the slot and when another would be held); then the gap is
passed: the lowest held number is stored and becomes the count. One with a smaller number (a late
one), or with that of one that is held already, is stored at once. Held messages count as waiting
for every group.

Messages of a stream that were delayed join the log in the order of their due times, then ids. How
old a message of the log is counts from when it joined, so that the oldest are the first.

**Groups.** Messages of subjects fan out per group at publish. Messages published before there is a
group are kept for the first that subscribes with `start="earliest"`, or whole for each of those
that do so in one call. Where groups differ, an outcome is `stored` if the message is one of its own
for any of them.

**Pulls that stand.** A pull of an idle worker may stand in the slots that it leaves quiet, if the
store can do that and the pull gives an address. The first message that then comes into such a slot,
alone, is handed out in the step that stores it, as if the pull had been made after it, and the
reply goes to the bell at that address. It is answered once, under its epoch, and only where a bell
listens; a later pull, a revocation or a ring ends it. A lost reply is given back by the
receipt, or in a stream by position, as for any other pull.

**Attempts** count when a message is handed out, and are taken back by a release. A message that
was handed out `max_attempts` times goes to dead in the pull that would hand it out again, with the
error of its last retry, or `LOST_ERROR` where it never had one; what follows it is handed out in
that same pull.

**Epochs** are texts of 16 hexadecimal digits that only grow; a pull or settlement with another
epoch than the slot's own changes nothing. Any epoch may be given to `take`, and it is refused if
it is smaller than the slot's. Under `NO_EPOCH`, which is nobody's, nothing can be settled.

**Documents.** What is no message and lies off the hot path is a document of a group: a small text
by name, that is written by comparing versions (`documents`). What stands on documents is written
once for all stores: `rosters` (who takes part, each *member* under a lease on the store's clock,
and which slots are whose) and `controls` (what is tuned of a group, and what its workers report). A
roster only says who is to own what; what fences is the epoch in the slot itself (`take`).

**Reads.** What people and tools look at comes by pages of *sections* (`records.Section`: one sort
of messages of one slot) and by look-ups (`pages`). Lists of timers and dead letters, peek, find,
scan and offsets by time are written once above these (`reads`). A store says what stands in a slot;
`standing` says what that is for a group.

**Growth.** The slots of a topic are doubled while it is used, one after the other in the order of
their numbers: slot `s` is copied into two new ones, by one more bit of the hash, and then these
take its place (`Topic.all_slots`). How far that is stands beside the declaration, and only grows.

    in use ──grow: closing──► in use, owned by nobody ──close_slot──► closed ──grow: split──► gone

A closed slot refuses whatever would change it; whoever is refused reads the topic anew, and goes
where the message belongs now, or waits until that is known. Its cursors keep an epoch that fences
its last owners, for ever, since its number is not used again. The new slots are opened under a
token, and only who has it may write there, so one who was thought dead cannot write into a slot
that is in use by now: `grow` takes the tokens away. It can discard what another has copied, and by
the first part of that the other's token is gone, so that one begins again. A write uses its token
up, and the next write has the next one: so whoever goes on after a failover that has forgotten a
write is refused, and begins again as well. `grow` refuses where the closing is forgotten, and
`splitting` compares what it has read before that with what is there after it. Messages of a log are
numbered anew in each of the two, all others keep their numbers. Each has all marks, since a mark
does not tell of whom.

**Buckets.** For each group the store can keep a bucket of tokens, full when it is first drawn from.
It fills by `rate` tokens every `per_ms` up to `burst`, on the store's clock, and all workers of the
group draw from it. Rate and burst come with each draw, and those of the last one count: so over any
time t no more than `burst + rate * t` are granted, whoever asks. Tokens granted in a reply that was
lost are gone.
"""
