"""Rights of the server's user, asked for before it first writes: docs/wire.md lists them.

Each script asks for its own as well (`drivers/scripts.py`), since they can be taken later; here all
that are missing are told at once.
"""

from __future__ import annotations

from typing import Final

from qframe.drivers.redis import Command, Redis
from qframe.drivers.redis_errors import NO_RIGHT
from qframe.errors import StoreForbidden, StoreUnavailable

# Commands with arguments that fit; KEY and CHANNEL stand for their own.
_PRODUCER: Final = (
    "del KEY", "get KEY", "hdel KEY a", "hexists KEY a", "hget KEY a", "hincrby KEY a 1",
    "hkeys KEY", "hlen KEY", "hmget KEY a", "hset KEY a b", "incr KEY", "incrby KEY 1", "llen KEY",
    "lpop KEY", "publish CHANNEL a", "rpush KEY a", "time", "xadd KEY * a b", "zadd KEY 1 a",
    "zcard KEY", "zcount KEY 0 1", "zlexcount KEY - +", "zmscore KEY a", "zrangebylex KEY - +",
    "zrangebyscore KEY 0 1", "zrem KEY a", "zscore KEY a",
)  # fmt: skip
_CONSUMER: Final = (
    *_PRODUCER, "copy KEY KEY", "exists KEY", "hgetall KEY", "hrandfield KEY", "hscan KEY 0",
    "lindex KEY 0", "linsert KEY before a b", "lrange KEY 0 1", "ping", "rename KEY KEY",
    "set KEY a", "subscribe CHANNEL", "type KEY",
    "unlink KEY", "unsubscribe CHANNEL", "xrange KEY - +", "xrevrange KEY + -",
    "xtrim KEY MAXLEN 1", "zpopmin KEY", "zrange KEY 0 1", "zrank KEY a",
    "zrevrangebyscore KEY 1 0",
    "zscan KEY 0",
)  # fmt: skip
_FOR_REPLICAS: Final = ("set KEY a", "wait 1 1")
COMMANDS: Final = {"producer": _PRODUCER, "consumer": _CONSUMER}
"""The commands that each role of docs/wire.md needs."""

# A command that the server does not have is an error; one that cannot be asked about is allowed.
_FORBIDDEN: Final = """
local missing = {}
for _, line in ipairs(redis.acl_check_cmd and ARGV or {}) do
    local words = {}
    for word in string.gmatch(line, "%S+") do words[#words + 1] = word end
    for at, word in ipairs(words) do if word == "KEY" then words[at] = KEYS[1] end end
    local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(words))
    if not (is_known and is_allowed) then missing[#missing + 1] = words[1] end
end
return missing
"""


def missing(redis: Redis, key: bytes, channel: str, role: str) -> list[str]:
    """The names of a role's commands that the user may not run, or that the server does not have.

    Raises:
        StoreUnavailable: if the server of the key cannot be asked now.
        StoreForbidden: if the user may not even ask.
    """
    needed = (*COMMANDS[role], *(_FOR_REPLICAS if redis.replicas else ()))
    lines: list[str | bytes | int] = [line.replace("CHANNEL", channel) for line in needed]
    words = ("EVAL", _FORBIDDEN, 1, key, *lines)
    return [bytes(name).decode() for name in redis.one(Command(key, words), partly=True)]


def is_allowed(redis: Redis, key: bytes, channel: str, role: str) -> bool:
    """Whether it is known that the user may run a role's commands; else the server is away.

    Raises:
        StoreForbidden: if the user may not run one.
    """
    try:
        names = missing(redis, key, channel, role)
    except StoreForbidden:
        raise
    except StoreUnavailable:
        return False
    if names:
        why = f"it may not run {', '.join(names)}, as a {role} does"
        raise StoreForbidden(redis.shown, why, remedy=NO_RIGHT)
    return True
