"""The meaning of what a Redis server refuses, and of what becomes of its connections."""

from __future__ import annotations

from collections.abc import Mapping
from socket import gaierror
from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from qframe.drivers.redis_connections import BROKEN
from qframe.drivers.tls import NO_FILES, OF_REDIS, meaning_of
from qframe.errors import BadUrl, StoreDamaged, StoreForbidden, StoreFull, StoreUnavailable

# Replies of a server that has done nothing, and may do it later or elsewhere. A script can only be
# killed before it has written.
AGAIN: Final = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)
AGAIN_TEXTS: Final = (  # which have no class
    "BUSY ", "MISCONF", "NOREPLICAS", "Script killed by user", "UNBLOCKED",
)  # fmt: skip
_FORBIDDEN_TEXT: Final = "The user executing the script can't"  # before 7.2, in place of NOPERM
_UNKNOWN_TEXTS: Final = ("unknown command", "unknown redis command")
# What becomes of a connection before its first answer; later on nothing of redis-py's reads it.
_UNGREETED: Final = ("Error while reading from", "Connection closed by server")
_UNANSWERED: Final = "handshake operation timed out"
NO_RIGHT: Final = "grant the permission; docs/wire.md lists what each role needs"
_REMEDIES: Final = {
    # As the client cuts it.
    "You can't write against a read only replica": "name the primary in the URL, or its "
    "Sentinels: redis+sentinel://…",
    "NOREPLICAS": "bring a replica back, or lower the server's min-replicas-to-write",
    "MISCONF": "see in the server's log why it cannot save, such as a full disk",
}


def refusal_of(shown: str, error: BaseException) -> Mapping[str, str]:
    """The `what` and `remedy` of a `StoreUnavailable`, where a server runs and will not do it."""
    text, scheme = str(error), shown.partition("://")[0].lower()
    for begins, remedy in _REMEDIES.items():
        if text.startswith(begins):
            return {"what": "refuses writes", "remedy": remedy}
    if isinstance(error.__context__, gaierror):
        return {"remedy": "correct the host's name in the URL, or the DNS of this machine"}
    if scheme.startswith("rediss"):
        if _UNANSWERED in str(error.__context__):
            plain = scheme.replace("rediss", "redis")
            return {
                "what": "does not answer in TLS",
                "remedy": f"if it listens there without TLS, write {plain}://",
            }
        if isinstance(error.__context__, (FileNotFoundError, PermissionError)):
            return NO_FILES
        return meaning_of(text, OF_REDIS)
    if text.startswith(_UNGREETED) and scheme.startswith("redis"):
        secure = scheme.replace("redis", "rediss")
        return {"remedy": f"check that it runs; if it speaks TLS there, write {secure}://"}
    return {}


def _of_sentinels(shown: str, error: MasterNotFoundError) -> BaseException:
    """The meaning of Sentinels that name no primary; the errors of some may be the cause."""
    group = error.__cause__
    faults = group.exceptions if isinstance(group, ExceptionGroup) else ()
    if any(isinstance(fault, AuthenticationError) for fault in faults):
        return StoreForbidden(
            shown, "a Sentinel refuses the name or password",
            remedy="add ?sentinel_password=…, and &sentinel_username=… where it needs one",
        )  # fmt: skip
    last = {type(fault.__context__): fault for fault in faults}  # of each kind
    why = ": ".join([str(error), *map(str, last.values())])
    refusals = filter(None, (refusal_of(shown, fault) for fault in last.values()))
    return StoreUnavailable(shown, why, **next(refusals, {}))


def translated(shown: str, error: BaseException) -> BaseException:
    """The meaning of a driver's error here.

    Args:
        shown: the URL without what nobody may see.
        error: the error.
    """
    if isinstance(error, RedisClusterException) and error.__cause__ is not None:
        error = error.__cause__  # why the last of its nodes could not be asked
    if isinstance(error, AuthenticationError | AuthorizationError) or "NOAUTH" in str(error):
        remedy = "name the user and the right password in the URL: redis://user:password@host"
        return StoreForbidden(shown, str(error), remedy=remedy)
    if isinstance(error, NoPermissionError) or str(error).startswith(_FORBIDDEN_TEXT):
        return StoreForbidden(shown, str(error), remedy=NO_RIGHT)
    if isinstance(error, MasterNotFoundError):
        return _of_sentinels(shown, error)
    if isinstance(error, InvalidResponse):
        return BadUrl(
            "store", shown, f"the server there is not Redis ({error})", "check its host and port"
        )
    if isinstance(error, OutOfMemoryError):
        return StoreFull(shown, "its maxmemory is reached")
    text = str(error)
    if isinstance(error, MovedError) and "+cluster:" not in shown:
        return BadUrl(
            "store", shown, "the server there is one node of a cluster",
            "name the cluster: redis+cluster://host:6379",
        )  # fmt: skip
    if text.startswith("unknown command 'SENTINEL'"):
        return BadUrl(
            "store", shown, "the server there is no Sentinel",
            "name the Sentinels, or the server by redis://host:6379",
        )  # fmt: skip
    if text.lower().startswith(_UNKNOWN_TEXTS):
        return BadUrl(
            "store", shown, f"the server lacks a command ({text})",
            "use Redis 7, Valkey 7 or newer, and rename no command",
        )  # fmt: skip
    if isinstance(error, (*BROKEN, RedisClusterException, AskError, *AGAIN)):
        return StoreUnavailable(shown, text or type(error).__name__, **refusal_of(shown, error))
    if isinstance(error, ResponseError):
        if text.startswith(AGAIN_TEXTS):
            return StoreUnavailable(shown, text, **refusal_of(shown, error))
        return StoreDamaged(shown, text)
    return error
