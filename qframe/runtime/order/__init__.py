"""The order in which deliveries reach handlers, and in which they are settled.

`base` says what an order is; `key_order` and `batch_order` are the two. `lanes` lets one delivery
of a key through at a time, `batches` gathers batches and keeps the order of their keys,
`tag_filter` drops what a consumer does not want, `settlement_order` keeps the order of a run's
settlements, and `parked_keys` knows which keys of a stream may not be taken from its line.

Imports `handler` only. No threads, no store: each call is short and returns what may go on.
"""
