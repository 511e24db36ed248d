"""Brokers from Debian's packages beside qframe: the same messages, confirmed and acknowledged.

Publishing is counted when the broker has confirmed a message, one at a time, by one program.
Consuming is a backlog that one program works off, each message acknowledged for itself. All write
to the same disk: `synced` means that a message which is confirmed is on the disk itself (fsync),
and `written` that it outlives the broker's process, but not the machine's power.
"""
