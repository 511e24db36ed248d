"""Other frameworks on the same Redis server, each a small program that runs by itself.

`python -m benchmarks.peers.NAME publish` publishes `BENCH_COUNT` messages to the server at
`BENCH_REDIS`, one by one; `... work` handles them in one process. Both print their seconds.
"""
