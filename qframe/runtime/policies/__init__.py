"""Policies: called before and after a handler, so that its effect happens once.

`base` says what a policy is: it is asked about a unit, which is an attempt or a batch, and returns
what is to become of each attempt. `direct` asks nobody, `settle_first` settles before the handler,
`marks` and `transactional` ask an idempotent checker, on the common ground of `checked`.

`checkers` finds a consumer's checker, `loop_checker` adapts one of an async engine, and `claims`
renews claims that are held.

Imports `handler` and `executors`, and the checkers of `qframe.idempotency`; no store.
"""
