"""Publishing: from a user's body to the entries that a store writes.

* `outgoing` is one message as its publisher describes it, with the options of `publish`.
* `producer` checks and encodes all messages of a call before the store sees any of them; it repeats
  a call whose reply was lost, which is safe under the same ids.
* `catalog` finds topics by name, declares them, and has the app's own groups subscribed to them.
* `bulk` encodes many plain bodies of a list at once.
* `buffered` gathers what many threads publish.

This folder uses `stores` to write and `batching` to gather. It knows no worker, no consumer and no
app.
"""
