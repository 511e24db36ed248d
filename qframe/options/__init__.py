"""The options of an app, a consumer and a running group: their types, bounds, defaults and help.

Each option is written down once. The CLI's flags, `qframe doctor`, the tables in the docs and the
error for a wrong value are made of it.

* `settings` are an app's options, from arguments, the environment and `config_file`.
* `consumer` are the options of `@consumer`, with the values that stand for several facts: `batch`,
  `flow` (`RateLimit`, `Breaker`).
* `tuning` are the options of a group that can be changed while its consumers run.
* `rules` are the checks and words that all of these share.

Options are values. They open no connection, start no thread and know no store; this folder imports
only the modules that stand directly in `qframe/`.
"""
