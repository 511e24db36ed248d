"""Telling what happens in a running app: a log made of events, and numbers of all sorts.

Lower floors emit events (`events.py`) and know nothing of logs. `logs` turns events into lines:
key-value on a terminal, JSON elsewhere, both to stderr, so that stdout stays the program's own.
`root_log` does the same for records of the user's own loggers, in a worker that `qframe` started.

    app.events ──name, facts──► EventLog ──► facts, redaction ──► lines: one write

Invariants: no credential is ever in a line, and no body or header in one for programs. Texts are
cut to their first line and cleared of credentials; an exception that a handler raised has its type
and place only, because people write bodies into messages of exceptions (and so do validation
libraries). Its text is kept with the message: `qframe explain`, `qframe dead show`. On a terminal,
where a developer sits, it is shown with its traceback (`log_errors`).

An event that can come thousands of times a second (a failure, a retry, a stale settlement) is
logged at once the first time, and then once per interval with its count.

**Numbers** have two sources, which share no name:

    store     StoreNumbers     any one process: messages by state, the oldest due, owners, timers
    workers   Meters           one ConsumerMeter for each topic and group; TimedStore for the store

The store's are true though every worker is dead; `qframe store metrics` serves them. A worker's are
counted by a `Meter` (`runtime/handler/meter.py`), which executors and senders call once for a run
of messages or a settlement call, if there is one: without it they pay an `if` for each of these,
and the loop of the fast path (`Engine._run_direct`) does not know of it. `families` is the form in
which numbers travel; `prometheus` alone knows prometheus_client, and loads it when it is used.

    worker ──every second──► folder ◄──when asked── supervisor ──► one port for all of its workers
           └─shared memory──► (what was handled survives a SIGKILL)

Labels are bounded: topic, group, outcome, operation; never a key, an id or a slot.

Failures: a line that cannot be written (a closed pipe) is dropped; logging ends no worker. A store
that is away is `qframe_store_up 0`. A worker that is frozen or killed keeps its last numbers.
"""
