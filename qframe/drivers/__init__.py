"""Connections to servers and databases, and nothing of queues."""
