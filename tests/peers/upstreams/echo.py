"""A WebSocket server that sends back what it gets, on the port given."""

import asyncio
import logging
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


def choose(connection, offered):
    return offered[0] if offered else None


async def main():
    # The suite breaks the protocol on purpose; a trace for each time is of no use.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    port = int(sys.argv[1])
    options = {"max_size": None, "ping_interval": None, "compression": None}
    async with serve(echo, "127.0.0.1", port, select_subprotocol=choose, **options):
        await asyncio.Future()


asyncio.run(main())
