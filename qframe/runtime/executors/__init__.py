"""Where handlers run: threads, an event loop, or a loop of the user's own.

`base` says what an executor is. `thread_executor` and `batch_executor` call handlers in the threads
of `worker_threads`: a `run_worker` or a `batch_worker` is what one of these has in hand.
`loop_executor` runs handlers as tasks of the worker's `event_loop`, and `pull_buffer` holds
attempts for a loop of the user's own. `engine_calls` keeps what blocks out of the loop,
`batch_call` lets a thread wait for an async handler, and `daemon_threads` run what blocks.

Imports `handler` and `order`. An executor knows neither the store nor a checker.
"""
