"""A client of WebSocket over HTTP/2 (RFC 8441), on the stacks of h2 and wsproto.

`talk_http2.py PORT STREAMS END` opens so many WebSockets at once on one connection to an echo server,
sends messages of many sizes, and exits with an error unless each comes back as it was and is closed
in good order. Afterwards, END is `finish` if the server ends its side of a stream, and `reset` if it
leaves that to the client and expects no more than a reset, as hypercorn does.
"""

import random
import socket
import sys

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2 import events as http
from h2.settings import SettingCodes
from wsproto import events as ws
from wsproto.connection import Connection, ConnectionState, ConnectionType

SIZES = [0, 1, 125, 126, 65_535, 65_536, 300_000]


class WebSocket:
    """One of them, on its stream."""

    def __init__(self, stream):
        self.stream = stream
        self.frames = Connection(ConnectionType.CLIENT)
        self.is_over = False
        self.unsent = b""
        self.left = []
        for n, size in enumerate(SIZES):
            noise = random.Random(stream * 100 + n).randbytes(size)
            self.left.append(noise.hex() if n % 2 else noise)
        self.came = None

    def send_next(self):
        if not self.left:
            self.unsent += self.frames.send(ws.CloseConnection(code=1000, reason="done"))
            return
        kind = ws.TextMessage if isinstance(self.left[0], str) else ws.BytesMessage
        self.unsent += self.frames.send(ws.Ping(payload=b"there?"))
        # In two frames, to see that they stay two.
        half = len(self.left[0]) // 2
        self.unsent += self.frames.send(kind(data=self.left[0][:half], message_finished=False))
        self.unsent += self.frames.send(kind(data=self.left[0][half:], message_finished=True))

    def on_bytes(self, data):
        self.frames.receive_data(data)
        for event in self.frames.events():
            if isinstance(event, (ws.TextMessage, ws.BytesMessage)):
                self.came = event.data if self.came is None else self.came + event.data
                if event.message_finished:
                    assert self.came == self.left.pop(0), f"stream {self.stream}: another message"
                    self.came = None
                    self.send_next()
            elif isinstance(event, ws.CloseConnection):
                assert event.code == 1000, event
            elif isinstance(event, ws.Pong):
                assert event.payload == b"there?", event


class Client:
    def __init__(self, port, resets):
        self.resets = resets
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.codec = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.codec.initiate_connection()
        self.authority = f"127.0.0.1:{port}"
        self.sockets = {}
        self.plain = {}
        while self.codec.remote_settings.get(SettingCodes.ENABLE_CONNECT_PROTOCOL) != 1:
            self.turn()

    def connect(self):
        stream = self.codec.get_next_available_stream_id()
        head = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/chat"),
            (":authority", self.authority),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
        ]
        self.codec.send_headers(stream, head)
        self.sockets[stream] = WebSocket(stream)

    def get(self, path):
        stream = self.codec.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", "http"), (":path", path)]
        head.append((":authority", self.authority))
        self.codec.send_headers(stream, head, end_stream=True)
        self.plain[stream] = None
        while self.plain[stream] is None:
            self.turn()
        return self.plain[stream]

    def turn(self):
        """Sends what may be sent and reads once."""
        for each in self.sockets.values():
            while each.unsent:
                room = self.codec.local_flow_control_window(each.stream)
                room = min(room, self.codec.max_outbound_frame_size)
                if room <= 0:
                    break
                self.codec.send_data(each.stream, each.unsent[:room])
                each.unsent = each.unsent[room:]
        self.socket.sendall(self.codec.data_to_send())
        data = self.socket.recv(1 << 16)
        assert data, "the connection ended"
        for event in self.codec.receive_data(data):
            self.on_event(event)

    def end(self, each):
        if self.resets:
            self.codec.reset_stream(each.stream, ErrorCodes.CANCEL)
            each.is_over = True
        else:
            self.codec.end_stream(each.stream)

    def on_event(self, event):
        each = self.sockets.get(getattr(event, "stream_id", None))
        if isinstance(event, http.ResponseReceived):
            fields = dict(event.headers)
            if each is None:
                self.plain[event.stream_id] = fields[":status"]
            else:
                assert fields[":status"] == "200", fields
                assert "sec-websocket-accept" not in fields, fields
                assert fields.get("sec-websocket-protocol") == "chat", fields
                each.send_next()
        elif isinstance(event, http.DataReceived):
            self.codec.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if each is not None and event.data and not each.is_over:
                each.on_bytes(event.data)
                if each.frames.state is ConnectionState.CLOSED:
                    self.end(each)
        elif isinstance(event, http.StreamEnded):
            if each is not None:
                assert each.frames.state is ConnectionState.CLOSED, each.frames.state
                each.is_over = True
        elif isinstance(event, http.StreamReset):
            assert each is None or each.is_over, f"{event}"
        elif isinstance(event, http.ConnectionTerminated):
            raise AssertionError(f"{event}")


def main():
    client = Client(int(sys.argv[1]), sys.argv[3] == "reset")
    for _ in range(int(sys.argv[2])):
        client.connect()
    while not all(each.is_over for each in client.sockets.values()):
        client.turn()
    for each in client.sockets.values():
        assert not each.left, f"{len(each.left)} messages did not come back"
    assert client.get("/afterwards") in ("200", "426"), "the connection is of no use any more"


main()
