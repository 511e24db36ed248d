"""Faults that are planted on purpose, one at a time, to see whether the tests find them.

`kept` has the list. `make mutants` copies the project, plants each fault in the copy, and runs the
tests that the fault names: those of the gate, then all. Then it asks the simulator, if that reaches
the fault, and then the whole gate. It prints who has found the fault, and which survive.
`ARGS="lanes settler"` plants those alone whose names or files contain one of the words,
`ARGS="--only simulator"` asks the simulator alone, for at most 60 s of a core's time each, about
the faults in what it runs. `tests/unit/test_mutants.py` keeps the list valid.
"""
