"""Gathering items of any type, and handing them on in batches.

    gathering   items on their way into batches: channels, deadlines, what is due; pure
    batcher     the lock, the threads, the end: what the three below have in common
    settling    what becomes of a batch's items when `process` has returned or raised
    executor    `BatchExecutor`: what is there, at once
    flusher     `Flusher`: a batch that is full, or whose first item is `interval` old
    multiple    `MultipleQueueFlusher`: the same per channel, one channel's batches in order

**Duty.** `put` and `add` append an item to its channel's open batch. The batch is full with
`batch_size` items, and due when its first item is `interval` old; a free thread takes it whole
and gives it to `process`. Batches are cut when items come, not when they leave: the lock is held
for an append or a hand-off, and threads are woken for a batch that opens or fills, not per item.

    waiting ──full or due, a thread is free──► running ──process returned──► processed
       │                                          └─────process raised────► failed: on_error
       └──close(timeout) has passed──► reported: in what close returns

**Invariants.** An item that was taken is processed once, failed once, or reported once by `close`.
A batch has 1 to `batch_size` items in the order in which they came. While a thread is free, no
item waits longer than `interval`, the first of its batch included. A channel of
`MultipleQueueFlusher` has at most one batch running, and its batches run in order. At most
`queue_size` items wait in a channel.

**Messages.** An item that is a `Message` with `auto_ack = False` is settled for its handler, unless
it is already: acked when `process` has returned, acked with the error when it raised.

**Failures.** Whatever `process` raises, `SystemExit` and `KeyboardInterrupt` too, fails its batch
and no other: `on_error` gets the items, or else a line is logged; the thread goes on. A signal's
`KeyboardInterrupt` strikes the main thread: a `put` that waits for room has not taken its item, and
`close` can be called again. A fork copies a batcher without its threads, and what the copy holds is
the parent's: in the child `put` and `add` raise `BatcherForked`. A batcher that nobody closed lives
as its threads do: it is not collected, and the end of the process closes it, for at most 30
seconds. Its threads are daemons, so `process` can delay the end, and not prevent it. A process that
is killed loses what it held, which is what explicit ack is for.
"""
