"""Planted faults in what one caller of the SQS front may hold."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

BOUNDS: Final = "tests/integration/gateway/test_sqs_bounds.py"

QUEUES: Final[list[Mutant]] = [
    Mutant(
        "a client of HTTP says where a message died, and who sent it",
        "web/gateway/wire.py",
        "        check_headers(self.headers)\n",
        "",
        BOUNDS,
    ),
    Mutant(
        "the headers of a timer that is changed are not looked at",
        "web/gateway/wire.py",
        "MessageIn(self.body, self.body_base64, headers=self.headers).outgoing().body",
        "MessageIn(self.body, self.body_base64).outgoing().body",
        BOUNDS,
    ),
    Mutant(
        "who may not read a queue has its messages moved to where it may",
        "web/gateway/sqs/service.py",
        '        self.check(source, "consume")\n',
        "",
        BOUNDS,
    ),
    Mutant(
        "an attempt is repeated for any client",
        "web/gateway/sqs/message_verbs.py",
        "return call.caller.name, queue.name, checked_word(",
        'return "", queue.name, checked_word(',
        BOUNDS,
    ),
    Mutant(
        "a receive does not count against the rate",
        "web/gateway/sqs/message_verbs.py",
        "        call.caller.take(1)\n        deliveries = await self._repeated",
        "        deliveries = await self._repeated",
        BOUNDS,
    ),
    Mutant(
        "a repeated attempt gets more than it asks for",
        "web/gateway/sqs/message_verbs.py",
        "if (one := each()) is not None][:most]",
        "if (one := each()) is not None]",
        BOUNDS,
    ),
    Mutant(
        "all clients have one number of things that are remembered",
        "web/gateway/sqs/remembered.py",
        "self._keys.setdefault(client, OrderedDict())",
        'self._keys.setdefault("", OrderedDict())',
        BOUNDS,
    ),
    Mutant(
        "one client makes all the queues that there may be",
        "web/gateway/sqs/queue_verbs.py",
        "if own >= MOST_QUEUES - len(queues):",
        "if len(queues) >= MOST_QUEUES:",
        BOUNDS,
    ),
    Mutant(
        "a move that has ended keeps its place",
        "web/gateway/sqs/move_verbs.py",
        "        finally:\n            self._running.give_back(call.caller.client)\n",
        "        finally:\n",
        BOUNDS,
    ),
    Mutant(
        "what a move publishes counts against no rate",
        "web/gateway/sqs/move_verbs.py",
        "while wait_s := call.caller.wait_s(len(found)):",
        "while wait_s := 0.0:",
        BOUNDS,
    ),
    Mutant(
        "a move goes on without the right to it",
        "web/gateway/sqs/move_verbs.py",
        '            call.check(queue.name, "admin")  # it may have lost the right\n',
        "",
        BOUNDS,
    ),
    Mutant(
        "what a token has under way goes on when the token is gone",
        "web/gateway/callers.py",
        "            gone.obey(TokenRule(hashes=[]))\n",
        "            pass\n",
        "tests/integration/gateway/test_rights.py",
    ),
    Mutant(
        "of two gateways that change a queue at once one undoes the other's change",
        "web/gateway/sqs/queues.py",
        "[Write(name, text, version)]",
        "[Write(name, text)]",
        UNIT + "test_sqs_queues.py",
    ),
]
