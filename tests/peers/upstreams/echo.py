"""A WebSocket server that sends back what it gets, on the port given."""

import asyncio
import logging
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def main():
    # The suite breaks the protocol on purpose; a trace for each time helps nobody.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    port = int(sys.argv[1])
    async with serve(echo, "127.0.0.1", port, max_size=None, ping_interval=None, compression=None):
        await asyncio.Future()


asyncio.run(main())
