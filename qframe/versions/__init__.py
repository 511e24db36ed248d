"""Applying events to rows of a user's own table that bear a version.

* `apply` has `apply_if_newer` and `apply_next`: one conditional UPDATE each, in the user's own
  transaction.
* `rows` checks the table, key, version and values before anything is written.

This folder uses SQLAlchemy, and of qframe only errors and outcomes: it needs neither an app nor a
store.
"""

from qframe.versions.apply import apply_if_newer, apply_next

__all__ = ["apply_if_newer", "apply_next"]
