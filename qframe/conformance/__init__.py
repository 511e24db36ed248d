"""The suite of conformance: what every store must do, as tests that a store of your own can run.

    pip install 'qframe[conformance]'
    pytest --pyargs qframe.conformance --qframe-store=myscheme://host/name

Its files are those of `tests/conformance/`, by which qframe tests its own stores. They are here
when qframe was installed from a wheel. They import each other by short names (`bench`, `rosters`),
so run them by themselves, and not together with tests of yours.

The store is opened as an app opens it, by its URL (`qframe.stores.open`), with a namespace of its
own for each test, and with a clock that stands still until the test moves it: the store has to go
by that clock and by no other. Several stores of one namespace are open at a time, as those of
several processes are. In the URL `{folder}` stands for a directory of the test's own: a store in a
file is then new for each test (`myscheme:///{folder}/store.db`), and so no bell rings for another
test. Without it, run the suite in one process.

`test_state_machine.py` and `test_roster_machine.py` do random operations on the store and on the
model store, and compare every answer.
"""
