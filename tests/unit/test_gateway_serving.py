"""How the gateway listens."""

from __future__ import annotations

import asyncio
import socket

from qframe.web.gateway.serving import bound_socket


def test_a_small_reply_is_sent_at_once() -> None:
    """Else each waits 40 ms for an acknowledgement that its client holds back."""

    async def is_sent_at_once() -> bool:
        found = asyncio.get_running_loop().create_future()

        class Connection(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made = transport.get_extra_info("socket")
                found.set_result(bool(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
                transport.close()

        bound = bound_socket("127.0.0.1", 0)
        port = bound.getsockname()[1]
        async with await asyncio.get_running_loop().create_server(Connection, sock=bound):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return bool(await found)

    assert asyncio.run(is_sent_at_once())
