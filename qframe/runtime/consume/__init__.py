"""One consumer of a worker: joins feed, order, executor and policy.

`consumer` holds the parts of one consumer, `engine` begins attempts and `finisher` ends them,
`manual_acks` keeps those that their user settles, and `varieties` says which policy and which
executor a consumer has. Nothing here is subclassed: what varies is handed in.

Imports every wing but `process`.
"""
