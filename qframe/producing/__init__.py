"""Publishing: from a user's body to the entries that a store writes.

* `outgoing` is one message as its publisher describes it, with the options of `publish`.
* `producer` is the way of a call: it finds the topic, has all messages checked and encoded before
  the store sees any of them, and has them stored.
* `catalog` finds topics by name, declares them, and has the app's own groups subscribed to them.
* `entry` checks and encodes one message; `bulk` does so for many plain ones of a list at once.
* `entry_sender` gives entries to the store; again where a reply was lost or a slot is being split.
* `buffered` gathers what many threads publish.

This folder uses `stores` to write and `batching` to gather. It knows no worker, no consumer and no
app.
"""
