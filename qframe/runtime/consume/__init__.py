"""One consumer of a worker: joins feed, order, executor and policy.

`line` is the consumer of a plain handler; the others vary it for async handlers, batches, checkers,
at most once, and for a loop of the user's own. `custody` keeps messages that their user settles.

Imports every wing but `process`.
"""
