"""What a running app tells the outside; made of events, and of nothing else.

Lower floors emit events (`events.py`) and know nothing of logs. `logs` turns events into lines:
key-value on a terminal, JSON elsewhere, both to stderr, so that stdout stays the program's own.

    app.events ──name, facts──► EventLog ──► redaction ──► one line

Invariants: no body, no header and no credential is ever in a line. Texts are therefore cut to
their first line and cleared of what stands in a URL before the `@`; of an exception that a handler
raised only its type and place are told, because people write bodies into messages of exceptions
(and so do validation libraries). Its text is kept with the message: `qframe explain`, `qframe dead
show`.

What can come thousands of times a second (failures, retries, stale settlements) comes at once the
first time, and from then on once per interval with the number of times that it came.

Failures: a line that cannot be written (a closed pipe) is dropped; logging ends no worker.
"""
