"""Passes settlements on to the gateway that handed their deliveries out."""

from __future__ import annotations

from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from qframe.clock import SYSTEM_CLOCK, Clock
from qframe.web.gateway.asking import asking_client
from qframe.web.gateway.deliveries import Settle, SettleOutcome, SettleReply, Verb
from qframe.web.gateway.receipts import Receipts
from qframe.web.gateway.turns import FairThreads
from qframe.web.gateway.wire import ExtendIn, RejectIn, RetryIn, SettledOut, SettleIn

FORWARDED: Final = "qframe-forwarded"  # what was passed on once is not passed on again
TIMEOUT_S: Final = 15.0
AWAY_S: Final = 5.0
THREADS: Final = 8
_MOST_BYTES: Final = 2**20
_IN_ORDER: Final = (Verb.ACK, Verb.RETRY, Verb.REJECT, Verb.EXTEND)  # of a request and its replies


class _ReplyLost(OSError):
    """Raised when another gateway was asked, and its reply has not come."""


class Forwarder:
    """Asks other gateways, where they share this one's secret.

    It has threads of its own, which callers share, and leaves a gateway that cannot be reached
    alone for a while, so that one whose machine is gone delays nothing but what was meant for it.

    Args:
        receipts: finds out whose a receipt is.
        clock: measures that while.
    """

    def __init__(self, receipts: Receipts, clock: Clock = SYSTEM_CLOCK) -> None:
        self._receipts = receipts
        self._clock = clock
        self._away: dict[str, float] = {}
        self._threads = FairThreads(THREADS, "qframe.gateway.forwarder")

    async def settle(
        self,
        topic: str,
        group: str,
        wanted: Sequence[Settle],
        results: list[SettleReply],
        authorization: str,
    ) -> None:
        """Passes on what is elsewhere, and writes down what came of it.

        A gateway that cannot be reached leaves its results as they are: with its address. Where its
        reply is lost they are unknown, since it may have done all that it was asked.
        """
        places: dict[str, list[int]] = {}
        for place, result in enumerate(results):
            if result.outcome is SettleOutcome.ELSEWHERE:
                owner = self._receipts.owner(result.receipt)
                if owner is not None and owner.is_believed and owner.address:
                    places.setdefault(owner.address, []).append(place)
        path = f"/v1/topics/{quote(topic)}/groups/{quote(group)}/settle"
        for address, mine in places.items():
            mine.sort(key=lambda place: _IN_ORDER.index(wanted[place].verb))
            asked = [wanted[place] for place in mine]
            found = await self._threads.call(
                asking_client(), self._ask, address, path, asked, authorization
            )
            if len(found) == len(mine):
                for place, reply in zip(mine, found, strict=True):
                    results[place] = reply

    def _ask(
        self, address: str, path: str, asked: list[Settle], authorization: str
    ) -> list[SettleReply]:
        if self._clock.monotonic_s() < self._away.get(address, 0.0):
            return []
        try:
            found = _ask(address, path, asked, authorization)
        except OSError as error:
            self._away[address] = self._clock.monotonic_s() + AWAY_S
            if isinstance(error, _ReplyLost):
                return [SettleReply(one.receipt, SettleOutcome.UNKNOWN) for one in asked]
            return []
        return found


def _ask(address: str, path: str, asked: list[Settle], authorization: str) -> list[SettleReply]:
    """Asks another gateway; no replies where it refuses.

    Raises:
        OSError: if it cannot be reached; a `_ReplyLost` if it was asked all the same.
    """
    url = urlsplit(address)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    headers = {"content-type": "application/json", FORWARDED: "1"}
    if authorization:
        headers["authorization"] = authorization
    connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        try:
            connection.request("POST", url.path.rstrip("/") + path, _written(asked), headers)
            body = connection.getresponse().read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            raise _ReplyLost from error
        return msgspec.json.decode(body, type=SettledOut).results
    except (ValueError, msgspec.DecodeError):
        return []
    finally:
        connection.close()


def _written(asked: list[Settle]) -> bytes:
    request = SettleIn()
    for one in asked:
        if one.verb is Verb.ACK:
            request.ack.append(one.receipt)
        elif one.verb is Verb.RETRY:
            request.retry.append(RetryIn(one.receipt, one.delay, one.at, one.error))
        elif one.verb is Verb.REJECT:
            request.reject.append(RejectIn(one.receipt, one.error))
        else:
            request.extend.append(ExtendIn(one.receipt, one.lease_s))
    return msgspec.json.encode(request)
