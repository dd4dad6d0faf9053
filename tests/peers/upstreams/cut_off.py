"""A way to a server on which connections are cut off.

`cut_off.py PORT SERVER` passes connections to PORT on to the port SERVER. Of every other one it passes so
many bytes of the server's as a seed draws, and then ends or resets both sides.
"""

import asyncio
import itertools
import random
import socket
import struct
import sys

PORT, SERVER = int(sys.argv[1]), int(sys.argv[2])
NUMBERS = itertools.count()


async def copy(source, sink, left):
    """Whether all of `left` bytes were passed; fewer if the source ended."""
    while left > 0:
        data = await source.read(min(left, 65536))
        if not data:
            sink.write_eof()
            return False
        left -= len(data)
        sink.write(data)
        await sink.drain()
    return True


async def serve(reader, writer):
    number = next(NUMBERS)
    draw = random.Random(number)
    # A handshake, its tickets and a short response have some 2,000 bytes.
    left = draw.randrange(2000) if number % 2 else 1 << 40
    server, to_server = await asyncio.open_connection("127.0.0.1", SERVER)
    up = asyncio.create_task(copy(reader, to_server, 1 << 40))
    try:
        is_cut = await copy(server, writer, left)
        if not is_cut:
            await up
        elif draw.randrange(2):
            # A reset.
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    up.cancel()
    writer.close()
    to_server.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, backlog=512)
    await server.serve_forever()


asyncio.run(main())
