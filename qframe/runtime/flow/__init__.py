"""How much a consumer may pull, and whether a handler may begin now.

`in_flight` counts what was pulled and is not settled yet, `token_bucket` and `shared_token_bucket`
keep a rate, `breaker` pauses a consumer whose handler fails, and `admission` joins them with the
user's pause.

Imports `handler` only. The store is asked for nothing but the tokens of a shared bucket.
"""
