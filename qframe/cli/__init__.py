"""The command line: one file per command group, `main` puts them together.

Every command opens an app from the same sources as a program does (`options/settings.py`), with
`--store`, `--coordinator`, `--namespace` and `--config` on top, does one thing, and closes it.

    exit code 0    done
              1    refused or failed: one line on stderr says what, why, and the remedy
              2    the command itself was spelt wrong
              128 + n    a worker was ended at once, by a second signal n

Invariants: with `--json`, stdout bears one JSON value and nothing else, with `--watch` one in each
line; reading creates nothing, not even a database; texts from messages are shown with their control
characters escaped, so that a body can neither colour nor clear the reader's terminal; tables are
plain text where stdout is no terminal.
"""
