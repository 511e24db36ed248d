"""Planted faults in what one caller of the gateway may hold."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

_BOUNDS_TEST: Final = "tests/integration/gateway/test_bounds.py"

BOUNDS: Final[list[Mutant]] = [
    Mutant(
        "a token makes each group that its patterns fit",
        "web/gateway/callers.py",
        'self.names(topic, group) or self.may("admin", topic)',
        'self.may("consume", topic, group)',
        _BOUNDS_TEST,
    ),
    Mutant(
        "a gateway makes groups without end",
        "web/gateway/making.py",
        "len(known) >= MOST_GROUPS_OF_TOPIC",
        "len(known) < 0",
        _BOUNDS_TEST,
    ),
    Mutant(
        "calls of a busy caller have all of its threads though others ask",
        "web/gateway/turns.py",
        "return is_few and self._share.take(client)",
        "return self._share.take(client)",
        _BOUNDS_TEST,
    ),
    Mutant(
        "the pulls of one caller have all turns",
        "web/gateway/turns.py",
        "            self._lines[holder] = line\n",
        "            self._lines = {holder: line, **self._lines}\n",
        _BOUNDS_TEST,
    ),
    Mutant(
        "requests that are refused wait for no turn",
        "web/gateway/asking.py",
        "await self._turns.wait(client)  # also",
        "pass  # also",
        _BOUNDS_TEST,
    ),
    Mutant(
        "a request that has ended keeps its place",
        "web/gateway/asking.py",
        "            self._requests.give_back(self.client)\n",
        "",
        _BOUNDS_TEST,
    ),
    Mutant(
        "a reply that nobody got keeps its messages",
        "web/gateway/asking.py",
        "scope.get(IS_LOST, _never)()",
        "_never()",
        _BOUNDS_TEST,
    ),
    Mutant(
        "the numbers of a group stay when it is left",
        "web/gateway/gateway.py",
        "            meters.forget(group.topic, group.group)\n",
        "            pass\n",
        _BOUNDS_TEST,
    ),
    Mutant(
        "the front of SQS is changed by an image",
        "web/gateway/sqs/front.py",
        'if request.method != "POST" and',
        'if request.method == "PUT" and',
        _BOUNDS_TEST,
    ),
    Mutant(
        "deep JSON comes back as base64",
        "web/gateway/wire.py",
        "        return Raw(delivery.body)\n    except",
        "        return None\n    except",
        _BOUNDS_TEST,
    ),
]
