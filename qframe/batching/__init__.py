"""Gathering items into batches by size, by time, and by channel: for a later version.

The names stand here with their parameters, so that code written against them fails at once and
says so.
"""
