"""Faults at the edges: the gateway, moves of SQS, and pushes over TLS."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

GATEWAY: Final = "tests/integration/gateway/"
MOVES: Final = GATEWAY + "test_sqs_moves.py"
PUSH: Final = "tests/integration/push/test_receivers_in_time.py"

EDGES: Final = [
    # The gateway.
    Mutant(
        "what is open when a group ends counts against its client for ever",
        "web/gateway/open_group.py",
        "        for receipt in list(self._open):\n            self._closed(receipt)\n",
        "        self._open.clear()\n",
        UNIT + "test_open_group.py",
    ),
    Mutant(
        "a group that was left keeps its place in the gateway",
        "web/gateway/gateway.py",
        "        if group in self._leaving:\n            self._leaving.remove(group)\n",
        "",
        GATEWAY + "test_open_groups.py -k has_its_place",
    ),
    Mutant(
        "messages are read for a client that has gone with nothing",
        "web/gateway/open_group.py",
        "                self._ask(is_less=True)\n",
        "                pass\n",
        UNIT + "test_open_group.py",
    ),
    Mutant(
        "another gateway is asked in plain text though its address is https",
        "web/gateway/forwarding.py",
        'HTTPSConnection if url.scheme == "https" else HTTPConnection',
        "HTTPConnection",
        GATEWAY + "test_forwarding.py",
    ),
    Mutant(
        "a group is left while a client waits in it",
        "web/gateway/open_group.py",
        "        if self._waiters:\n            self._asked_s = self._clock.monotonic_s()\n",
        "",
        UNIT + "test_open_group.py",
    ),
    # Messages and moves of SQS.
    Mutant(
        "a move has no rate",
        "web/gateway/sqs/move_verbs.py",
        "                await asyncio.sleep(len(found) / rate)\n",
        "                await asyncio.sleep(0)\n",
        MOVES,
    ),
    Mutant(
        "a move does not say when its gateway was last seen",
        "web/gateway/sqs/move_verbs.py",
        "_as(how(one), seen_ms=now_ms) if",
        "how(one) if",
        MOVES,
    ),
    Mutant(
        "a move out of a FIFO queue forgets the message group",
        "web/gateway/sqs/move_verbs.py",
        "key=delivery.key if queue.is_fifo else None",
        "key=None",
        MOVES,
    ),
    Mutant(
        "a move that fails on its way says that it has moved nothing",
        "web/gateway/sqs/move_verbs.py",
        "moved=max(one.moved, moved)",
        "moved=moved",
        MOVES,
    ),
    Mutant(
        "a message that dies again has another id",
        "web/gateway/sqs/service.py",
        "FIRST_ID: headers.get(FIRST_ID, record.id)",
        "FIRST_ID: record.id",
        MOVES,
    ),
    Mutant(
        "a queue keeps its messages for a thousandth of its period",
        "web/gateway/sqs/message_verbs.py",
        "self._service.clock.now_ms() - period_s * 1000",
        "self._service.clock.now_ms() - period_s",
        GATEWAY + "test_sqs_message_verbs.py",
    ),
    # Pushes over TLS.
    Mutant(
        "an answer over TLS has no end",
        "push/timed_connections.py",
        "        return TimedStream(stream, self._network)\n",
        "        return stream\n",
        PUSH,
    ),
    Mutant(
        "a handshake has a limit of its own",
        "push/timed_connections.py",
        "left_s = self._network.left_s(timeout)\n        stream = self._stream.start_tls(",
        "left_s = timeout\n        stream = self._stream.start_tls(",
        PUSH,
    ),
    Mutant(
        "anybody's certificate is a receiver's",
        "push/webhook.py",
        "            max_connections=None, keepalive_expiry=KEPT_S,\n",
        "            max_connections=None, keepalive_expiry=KEPT_S,\n"
        '            ssl_context=__import__("ssl")._create_unverified_context(),\n',
        PUSH,
    ),
    Mutant(
        "a receiver's name is looked up again for the connection",
        "push/addresses.py",
        "                    address, port, share_s, local_address, socket_options\n",
        "                    host, port, share_s, local_address, socket_options\n",
        UNIT + "test_push.py",
    ),
    Mutant(
        "a body that is taken slowly holds its thread",
        "push/timed_connections.py",
        "        for start in range(0, len(buffer), _PIECE):\n"
        "            left_s = self._network.left_s(timeout)\n"
        "            self._stream.write(buffer[start : start + _PIECE], left_s)\n",
        "        self._stream.write(buffer, self._network.left_s(timeout))\n",
        PUSH,
    ),
    Mutant(
        "a look that a write has overtaken is kept as what a queue is",
        "web/gateway/sqs/queues.py",
        "        if writes != self._writes:\n            self._read.pop(name, None)\n",
        "",
        UNIT + "test_sqs_queues.py",
    ),
    Mutant(
        "a queue is forgotten before it is written, not after",
        "web/gateway/sqs/queues.py",
        "        finally:  # others may have looked meanwhile\n            self._writes += 1\n"
        "            self._read.pop(name, None)\n            self._listed = None\n",
        "        finally:\n            pass\n",
        UNIT + "test_sqs_queues.py",
    ),
]
