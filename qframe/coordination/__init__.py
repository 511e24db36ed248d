"""Which worker owns which slots: a protocol, and what keeps it.

A worker *joins* each (topic, group) that it consumes and is told which slots it owns, each under an
*epoch*. It pulls from no other slot, and the store refuses it when its epoch has passed, so a
worker that has not noticed its loss can harm nothing.

    joined ──take──► owning ──leave──► left
                        │
                        └──a newer epoch──► fenced (its deliveries are cancelled)

`sole` is the rule of this version: all slots belong to the worker that came last.
"""
