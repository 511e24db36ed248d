"""The reference store, in memory: the contract of `qframe.stores` as the shortest program.

Every operation runs under one lock, so it is one atomic step; the clock is given, so tests move
it. Nothing outlives the process. The other stores are held against this one by the same suite
and by a state machine that does to both the same and compares.

A topic has slots; a slot of a stream has a log, any slot may hold back messages (`later`, `held`)
and remembers marks. A group has a *cursor* in each slot: its position in the log, and the heads of
subjects with what stands behind them. A head is either in doing, or not; whether it is waiting or
todo is only a question of the time.

Each role has the module of its name, as in the other stores. Beside them are `state` (what the
store holds), `window` (what is handed out of a stream's line), `parking` (what left it), `queues`
(heads of subjects), `sequences` (messages behind a gap) and `standing` (pulls that found nothing,
and are answered by publishing).
"""
