"""Ownership of slots: each slot has one owner, so each key has one serial worker.

A worker *joins* each (topic, group) that it consumes and is told which slots are its own, each
under an *epoch* that only grows. It takes them in the store under that epoch, and the store refuses
every pull and settlement under another: a worker that has not noticed its loss can harm nothing.

    base        the contracts: `Membership` for the consumer, `CoordinatorSession` for each
                coordinator, and `LeaseStore` for the store that keeps sessions
    assignment  who should own what: pure, on average, sticky
    handover    the states of a slot: missing, owned, leaving, going
    member      the thread that looks, releases and claims; and a watch over its time
    lease       sessions that the store keeps, by leases on its clock
    zookeeper   sessions that are ephemeral nodes

Everybody computes the same assignment from the same members and owners; there is no leader. A slot
passes on only when its owner has drained it and let it go, or when its session has passed, never
sooner: so two allocations that differ for a moment cost time, and never an overlap.

**When the coordinator is not heard.** At the first loss of the connection nothing more is pulled.
Two thirds of a session after the last answered sign of life was *sent*, by the own monotonic clock,
the member is in doubt: its handlers' messages are cancelled, its slots dropped. It does so by
itself, since nobody can tell it while it is cut off; the last third is the margin for clocks that
run unevenly and for a thread that wakes late. The settler still sends its settlements under the old
epoch: the store knows whether another member has taken the slot since, and refuses them then.

    heard ──connection lost──► paused ──2/3 of a session──► in doubt ──heard again──► joins anew
      ▲                          │
      └── heard again, same session, its nodes still there ──┘

**Failures.** A killed worker's slots are free after a session (of a store: a lease, three times as
long), or at once where a neighbour on the same machine sees that its process is gone. A frozen one
wakes up in doubt and cancels. A store that refuses an epoch makes the member let the slot go and
claim it anew half a second later. A coordinator that has lost its data gives epochs below those
that the store has seen: they are refused, and it then gives greater ones.
"""
