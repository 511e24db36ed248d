"""Faults that are planted on purpose, one at a time, to see whether the tests find them.

`kept` has the list. `make mutants` copies the project, plants each fault in the copy, and runs the
tests that are to find it, then the simulator, if it reaches the fault, then the quick suite; it
prints who has found it, and which survive. `ARGS="lanes settler"` plants those alone whose names or
files contain one of the words, `ARGS="--only simulator"` asks the simulator alone,
for at most 60 s of a core's time each, about the faults in what it runs.
`tests/unit/test_mutants.py` keeps the list valid.
"""
