"""Faults that are planted on purpose, one at a time, to see whether the tests find them.

`kept` has the list. `make mutants` copies the project, plants each fault in the copy, and runs the
simulator against it, then the tests that fit it; it prints who has found it, and which survive.
`ARGS="lanes settler"` plants those alone whose names or files contain one of the words, and
`ARGS="--quick"` runs the quick suite against what survives the rest. A fault in a store is not in
the simulator's reach. `tests/unit/test_mutants.py` keeps the list valid.
"""
