"""What is asked before a handler, and told after it, so that an effect happens once.

`checkers` finds a consumer's idempotent checker, `loop_checker` adapts one of an async engine,
`run_claims` claims the messages of a run in one call, and `claims` renews claims that are held.

Imports `handler` and `executors`, and the checkers of `qframe.idempotency`; no store.
"""
