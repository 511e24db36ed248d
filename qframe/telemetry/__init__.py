"""The log of a running app, made of events and of nothing else.

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

Failures: a line that cannot be written (a closed pipe) is dropped; logging ends no worker.
"""
