"""Examines an installation: what is wrong with it, or soon will be, and the remedy of each.

`examine` looks at the settings, the store, its topics and the coordinator. Each check is a small
function of the facts that were read, in the table of its module: it returns a `Finding`, or None if
all is well. A check changes nothing, and one that cannot be made is a finding too.

Levels: an `error` stops messages or loses them; a `warning` will, under load or after a failure; a
`note` is worth knowing.
"""
