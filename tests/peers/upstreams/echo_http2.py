"""A WebSocket server that sends back what it gets, over HTTP/1.1 or HTTP/2, on the port given."""

import asyncio
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def echo(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": b"plain"})
    assert scope["type"] == "websocket", "its start and end are of no interest"
    print("WebSocket over HTTP/" + scope["http_version"], flush=True)
    assert (await receive())["type"] == "websocket.connect"
    chosen = scope["subprotocols"][0] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": chosen})
    while (event := await receive())["type"] == "websocket.receive":
        kind = "text" if event.get("text") is not None else "bytes"
        await send({"type": "websocket.send", kind: event[kind]})


config = Config()
config.bind = [f"127.0.0.1:{sys.argv[1]}"]
config.h2_max_concurrent_streams = 100
asyncio.run(serve(echo, config))
