"""The bare loops on Redis: the same messages in the same batches, and no framework around them."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from zlib import crc32

import msgspec
import redis

from benchmarks.redis_server import Reading, RedisServer
from benchmarks.workload import KEYS, PUBLISH, SLOTS, THREADS, body

RECORDS = 4
CLAIM = 100
LEASE_MS = 30_000

APPEND = """
local n = tonumber(ARGV[1])
local first = redis.call('INCRBY', KEYS[2], n) - n
redis.call('XADD', KEYS[1], string.format('%d-%d', first + 1, n), 'b', ARGV[2])
return first
"""

QUEUE = """
local todo, doing, bodies, numbers = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local count = #ARGV / 2
local number = redis.call('INCRBY', numbers, count) - count
local subjects, fields, scores = {}, {}, {}
for i = 1, count do subjects[i] = ARGV[2 * i - 1] end
local waiting = redis.call('ZMSCORE', todo, unpack(subjects))
local taken = redis.call('ZMSCORE', doing, unpack(subjects))
for i = 1, count do
  fields[2 * i - 1], fields[2 * i] = subjects[i], (number + i) .. '|' .. ARGV[2 * i]
  if not waiting[i] and not taken[i] then
    scores[#scores + 1] = now
    scores[#scores + 1] = subjects[i]
  end
end
if #scores > 0 then redis.call('ZADD', todo, unpack(scores)) end
redis.call('HSET', bodies, unpack(fields))
return count
"""

TAKE = """
local todo, doing, bodies, tries, waiting, epoch =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
if redis.call('GET', epoch) ~= ARGV[1] then return {} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, from in ipairs({doing, waiting}) do
  local due = redis.call('ZRANGEBYSCORE', from, '-inf', now, 'LIMIT', 0, 100)
  for i = 1, #due do redis.call('ZADD', todo, now, due[i]) end
  if #due > 0 then redis.call('ZREM', from, unpack(due)) end
end
local subjects = redis.call('ZRANGE', todo, 0, ARGV[2] - 1)
if #subjects == 0 then return {} end
redis.call('ZREM', todo, unpack(subjects))
local scores, attempts = {}, {}
for i = 1, #subjects do
  scores[2 * i - 1], scores[2 * i] = now + ARGV[3], subjects[i]
  attempts[i] = redis.call('HINCRBY', tries, subjects[i], 1)
end
redis.call('ZADD', doing, unpack(scores))
return {subjects, redis.call('HMGET', bodies, unpack(subjects)), attempts}
"""

ACK = """
local doing, bodies, tries, epoch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('GET', epoch) ~= ARGV[1] then return -1 end
local subjects, gone = {}, {}
for i = 2, #ARGV, 2 do subjects[#subjects + 1] = ARGV[i] end
local stored = redis.call('HMGET', bodies, unpack(subjects))
local taken = redis.call('ZMSCORE', doing, unpack(subjects))
for i = 1, #subjects do
  local number = stored[i] and string.match(stored[i], '^(%d+)|')
  if taken[i] and number == ARGV[2 * i + 1] then gone[#gone + 1] = subjects[i] end
end
if #gone > 0 then
  redis.call('ZREM', doing, unpack(gone))
  redis.call('HDEL', bodies, unpack(gone))
  redis.call('HDEL', tries, unpack(gone))
end
return #gone
"""


class Record(msgspec.Struct, array_like=True, gc=False):
    """A message as the loops store it."""

    id: str
    key: str
    headers: dict[str, str]
    body: bytes
    at: int


class Taken:
    """A message in its handler's hands, as any consumer makes one of each record."""

    __slots__ = ("offset", "record", "settled", "slot")

    def __init__(self, record: Record, slot: int, offset: int) -> None:
        self.record = record
        self.slot = slot
        self.offset = offset
        self.settled = False

    @property
    def body(self) -> dict[str, object]:
        """The decoded body."""
        return FROM_JSON(self.record.body)


ENCODE = msgspec.msgpack.Encoder().encode
DECODE = msgspec.msgpack.Decoder(Record).decode
DECODE_ALL = msgspec.msgpack.Decoder(list[Record]).decode
TO_JSON = msgspec.json.Encoder().encode
FROM_JSON = msgspec.json.Decoder().decode


def xadd(server: RedisServer, count: int) -> Reading:
    """Appends messages to one stream, one XADD a call."""
    client = redis.Redis(port=server.port)
    with server.reading(count) as reading:
        for number in range(count):
            client.xadd("bare", {"b": TO_JSON(body(number))})
    client.close()
    return reading


def stream(server: RedisServer, count: int) -> tuple[Reading, Reading]:
    """Appends to a log of records, 16 slots and a script for each; reads it on 8 threads."""
    client = redis.Redis(port=server.port)
    with server.reading(count) as published:
        _append(client, count)
    with server.reading(count) as consumed:
        _read(client, count)
    client.close()
    return published, consumed


def subjects(server: RedisServer, count: int) -> tuple[Reading, Reading]:
    """Queues subjects by a script per slot; claims and acknowledges them by the hundred."""
    client = redis.Redis(port=server.port)
    for slot in range(SLOTS):
        client.set(*_keys(slot, "epoch"), "e1")
    with server.reading(count) as published:
        _queue(client, count)
    with server.reading(count) as consumed:
        _claim(client, count)
    client.close()
    return published, consumed


def latencies_ms(server: RedisServer, count: int, gap_s: float) -> list[float]:
    """Milliseconds from before an XADD to its decoded body, in a thread that waits by XREAD."""
    took: list[float] = []
    ready = threading.Event()

    def read() -> None:
        client = redis.Redis(port=server.port)
        position: bytes | str = "0"
        client.ping()
        ready.set()
        while len(took) < count:
            for _, entries in client.xread({"bare": position}, block=5000):
                for name, fields in entries:
                    position = name
                    sent = FROM_JSON(fields[b"b"])["sent"]
                    took.append((time.monotonic() - sent) * 1000)
        client.close()

    reader = threading.Thread(target=read)
    reader.start()
    client = redis.Redis(port=server.port)
    client.ping()
    ready.wait()
    for number in range(count):
        client.xadd("bare", {"b": TO_JSON(body(number) | {"sent": time.monotonic()})})
        time.sleep(gap_s)
    reader.join()
    client.close()
    return took


def _keys(slot: int, *names: str) -> list[str]:
    return [f"bare:{{{slot}}}:{name}" for name in names]


def _record(number: int, key: str) -> Record:
    return Record(f"01f3a9-{number}", key, {}, TO_JSON(body(number)), 1_700_000_000_000)


def _append(client: redis.Redis, count: int) -> None:
    append = client.register_script(APPEND)
    for start in range(0, count, PUBLISH):
        shares: list[list[Record]] = [[] for _ in range(SLOTS)]
        for number in range(start, min(count, start + PUBLISH)):
            key = f"k{number % KEYS}"
            shares[crc32(key.encode()) % SLOTS].append(_record(number, key))
        with client.pipeline(transaction=False) as pipe:
            for slot, share in enumerate(shares):
                if share:
                    append(_keys(slot, "log", "head"), [len(share), ENCODE(share)], client=pipe)
            pipe.execute()


def _read(client: redis.Redis, count: int) -> None:
    todo: SimpleQueue[list[list[Taken]] | None] = SimpleQueue()
    done: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while (lanes := todo.get()) is not None:
            for lane in lanes:
                for message in lane:
                    _handle(message)
                    message.settled = True
            done.put(None)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    got, ends = 0, [1] * SLOTS
    while got < count:
        with client.pipeline(transaction=False) as pipe:
            for slot, end in enumerate(ends):
                pipe.xrange(_keys(slot, "log")[0], f"{end}-0", "+", count=RECORDS)
            answers = pipe.execute()
        runs = 0
        for slot, entries in enumerate(answers):
            for name, fields in entries:
                first, size = map(int, name.split(b"-"))
                todo.put(_lanes(DECODE_ALL(fields[b"b"]), slot, first))
                runs, got, ends[slot] = runs + 1, got + size, first + size
        for _ in range(runs):
            done.get()
        with client.pipeline(transaction=False) as pipe:
            for slot, entries in enumerate(answers):
                if entries:
                    pipe.set(_keys(slot, "floor")[0], ends[slot])
            pipe.execute()
    for _ in threads:
        todo.put(None)
    for thread in threads:
        thread.join()


def _lanes(records: list[Record], slot: int, first: int) -> list[list[Taken]]:
    """The messages of a record batch, those of one key behind each other."""
    lanes: dict[str, list[Taken]] = {}
    for offset, record in enumerate(records, first):
        lanes.setdefault(record.key, []).append(Taken(record, slot, offset))
    return list(lanes.values())


def _handle(message: Taken) -> None:
    assert message.body["status"] == "paid"


def _queue(client: redis.Redis, count: int) -> None:
    queue = client.register_script(QUEUE)
    for start in range(0, count, PUBLISH):
        shares: list[list[str | bytes]] = [[] for _ in range(SLOTS)]
        for number in range(start, min(count, start + PUBLISH)):
            key = f"k{number}"
            shares[crc32(key.encode()) % SLOTS] += (key, ENCODE(_record(number, key)))
        with client.pipeline(transaction=False) as pipe:
            for slot, share in enumerate(shares):
                if share:
                    queue(_keys(slot, "todo", "doing", "bodies", "numbers"), share, client=pipe)
            pipe.execute()


def _claim(client: redis.Redis, count: int) -> None:
    take, ack = client.register_script(TAKE), client.register_script(ACK)
    taken = [_keys(i, "todo", "doing", "bodies", "tries", "waiting", "epoch") for i in range(SLOTS)]
    acked = [_keys(i, "doing", "bodies", "tries", "epoch") for i in range(SLOTS)]
    got = 0
    while got < count:
        with client.pipeline(transaction=False) as pipe:
            for keys in taken:
                take(keys, ["e1", CLAIM, LEASE_MS], client=pipe)
            answers = pipe.execute()
        with client.pipeline(transaction=False) as pipe:
            for keys, answer in zip(acked, answers, strict=True):
                if not answer:
                    continue
                settled: list[str | bytes] = ["e1"]
                for subject, stored, _ in zip(*answer, strict=True):
                    number, _, record = stored.partition(b"|")
                    assert FROM_JSON(DECODE(record).body)["status"] == "paid"
                    settled += (subject, number)
                got += len(answer[0])
                ack(keys, settled, client=pipe)
            pipe.execute()
