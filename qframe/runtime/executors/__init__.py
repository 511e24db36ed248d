"""Where handlers run: threads, an event loop, or a loop of the user's own.

`pool` and `batch_pool` call handlers in the threads of a `crew`, `async_pool` runs them as tasks
of the worker's `event_loop`, and `tray` holds messages for a loop of the user's own. `loop_call`
lets a thread wait for an async handler; `daemon_threads` run what blocks.

Imports `handler` and `order`. An executor knows neither the store nor a checker.
"""
