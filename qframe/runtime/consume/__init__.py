"""One consumer of a worker: joins feed, order, executor and policy.

`consumer` holds the parts of one consumer. `in_hand` has its attempts, `starter` begins them,
`engine` calls handlers in threads, and `finisher` ends attempts; `manual_acks` keeps those that
their user settles, and `manual_finisher` ends them. `varieties` says which policy and which
executor a consumer has. Nothing here is subclassed: what varies is handed in.

Imports every wing but `process`.
"""
