"""Recognising messages that were done before: for a later version.

The names stand here with their parameters, so that code written against them fails at once and
says so. Until then a handler recognises `message.id` in its own transaction, as the example
`examples/flights` does.
"""
