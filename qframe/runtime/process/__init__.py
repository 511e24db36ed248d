"""The process around the consumers: start, live settings, watching, and a clean stop.

`worker` runs all consumers of a process, `shutdown` stops them in order, `watchdog` notices a
consumer that makes no progress, `sweeper` tidies topics, and `live_settings` applies what operators
set in the store. `health` says whether a process lives and is ready, and `probes` tells that to
others. `supervisor` runs several workers, each as a `child` that `supervisor_pipe` joins
to it.

Imports `consume`; no wing imports this one.
"""
