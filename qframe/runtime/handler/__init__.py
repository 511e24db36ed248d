"""The user's handler: how it is called, and how its return or its error is read.

`attempt` is a delivery in this worker, with its state. `spec` describes a registered consumer.
`binding` fills a handler's parameters, `middleware` wraps it, `time_limit` times it, `retry_policy`
decides from an error what its message becomes, and `outcomes` applies that decision to one consumer
and reports it.

Imports no other wing. Threads, stores and slots are unknown here.
"""
