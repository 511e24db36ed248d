"""What was done, kept in Redis."""

from __future__ import annotations

from qframe.errors import NotSupported


class RedisChecker:
    """Remembers in Redis what was done, for `ttl`.

    Raises:
        NotSupported: in this version.
    """

    def __init__(self, url: str, *, ttl: float | str = "24h", key: object = None) -> None:
        raise NotSupported("RedisChecker", "recognise message.id in the handler's own transaction")
