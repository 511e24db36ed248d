"""Faults that simulated runs find: of missing rights, deleted topics, two stores of an outbox."""

from __future__ import annotations

from typing import Final

from mutants.mutant import PULL, SETTLER, Mutant

BINDING: Final = "tests/integration/outbox/test_binding.py"
DELETED: Final = "tests/integration/publishing/test_deleted_topics.py"

SIMULATED: Final = [
    Mutant(
        "a settlement that the store forbids is taken as settled",
        "runtime/feed/settlement_sender.py",
        "            self._context.unavailable(self._name, error)\n"
        "            return [Settled.AWAY] * len(batch)\n",
        "            self._context.unavailable(self._name, error)\n"
        "            is_forbidden = type(error).__name__ == 'StoreForbidden'\n"
        "            return [Settled.SETTLED if is_forbidden else Settled.AWAY] * len(batch)\n",
        SETTLER,
        "simulator",
    ),
    Mutant(
        "a pull of which a part is forbidden is not in doubt",
        "runtime/feed/pull_loop.py",
        "        except StoreUnavailable:\n            unanswered.doubt(asks, terms.receipt)\n",
        "        except StoreUnavailable as error:\n"
        "            if 'has refused its user a part' not in str(error):\n"
        "                unanswered.doubt(asks, terms.receipt)\n",
        PULL,
        "simulator",
    ),
    Mutant(
        "a database tells of another kind, and a producer that knows a name goes on with the old",
        "producing/entry_sender.py",
        "                except TopicMismatch:\n                    if is_anew:\n",
        "                except TopicMismatch:\n                    if True:\n",
        DELETED,
    ),
    Mutant(
        "a relay does not ask whether its store is the outbox's",
        "outbox/relay.py",
        "        if self._binding is not None:\n            self._binding.confirm(",
        "        if self._binding is None:\n            self._binding.confirm(",
        BINDING,
    ),
    Mutant(
        "an outbox that is bound elsewhere is taken for bound here",
        "outbox/binding.py",
        "        self._is_sure = self._rows.bound(connection) == self._confirmed\n",
        "        self._is_sure = True\n",
        BINDING,
    ),
    Mutant(
        "an outbox has a mark before its store has it",
        "outbox/binding.py",
        "        self._store.declare(mark_topic(mark))\n"
        "        with self._outbox.engine.begin() as connection:\n"
        "            self._rows.bind(connection, mark)\n",
        "        with self._outbox.engine.begin() as connection:\n"
        "            self._rows.bind(connection, mark)\n"
        "        self._store.declare(mark_topic(mark))\n",
        BINDING,
    ),
]
