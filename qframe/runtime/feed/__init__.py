"""Between a consumer and the store: deliveries come in, settlements go out.

`subscription` makes the group, `slots` takes and leaves its slots, `pull_loop` pulls what fits,
`lease_renewer` prolongs the leases of what is in flight, and `settler` gathers settlements, which
`settlement_sender` sends together.

Imports `handler` and `flow`. It calls no handler and knows no thread but its own.
"""
