"""Why a message is where it is: `app.admin.explain`, and `qframe explain`.

    look-up ──► records ──┐
                          ├──► causes ──► explanations
    circumstances of a ───┘
    group: pause, roster, reports

`explainer` looks a message up in topics, by what is indexed first (`Reads.find`), then by a
bounded scan. `circumstances` has what is known of a group: how it is tuned and paused, who lives
and owns which slots, and what the workers last said of themselves. `reasons` says from both, for
one record, which causes there are, in the order in which they have to go; it asks nobody. `cause`
has the closed set of causes, `words` what their sentences are made of.

Each group of a topic that knows of a message is answered for: it has it, has settled it, has it
not (`absent`, if all was looked at), or was not looked at (`unknown`, with the place to go on
from); the last two are worded in `nowhere`.

`past` has how attempts of a message have ended, where its topic keeps that: it explains also what
groups have settled and the store has no more.

Facts of a worker's memory (rate, breaker, tags) are known by its last report, and the report's age
is told. An explanation says what a store does not keep: without a history a settled message of a
queue is gone, with when and by whom; a stream still has it, without that.
"""
