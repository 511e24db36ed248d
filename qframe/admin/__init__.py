"""Looking at topics and groups, and intervening by hand: what `app.admin` and `app.timers` serve.

* `admin` has a method for each question and act, and leaves the acts to `dead`, `groups`,
  `holds`, `keys`, `stacks` and `removal`; `timers` has those of messages that wait for a time.
* `context` is what all of them share; `audit_log` emits one event for each act, which
  `stored_audit` keeps. `causes` groups
  dead letters by their errors.
* `totals` and `owners` are what it returns: a topic's counts over all slots, and who owns which.

Everything goes through a `Store` or a roster that is handed in, so the same calls serve a program,
the CLI and a test. This folder starts nothing and does not know whether a worker runs.
"""
