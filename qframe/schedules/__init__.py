"""Schedules: one message for each tick.

`timing` says which moments are the ticks of a schedule.
"""
