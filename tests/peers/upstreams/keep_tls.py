"""Connections of TLS that stay open, on Python's own ssl.

`keep_tls.py PORT CA NEWER OLDER` opens so many connections of TLS 1.3, and so many of 1.2, to a server that is shop.example by the
word of the file CA, and prints "open". For each line of its input it then asks once on every connection, with a body that no other
request has and that must come back, and prints how many were answered: "answered 5000". It closes them at the end of its input.
"""

import resource
import socket
import ssl
import sys

PORT, CA, NEWER, OLDER = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
NAME = "shop.example"
_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))


def context(version):
    made = ssl.create_default_context(cafile=CA)
    made.minimum_version = made.maximum_version = version
    return made


CONTEXTS = [context(ssl.TLSVersion.TLSv1_3), context(ssl.TLSVersion.TLSv1_2)]


def connect(number):
    sock = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls = CONTEXTS[number >= NEWER].wrap_socket(sock, server_hostname=NAME)
    assert tls.version() == ("TLSv1.2" if number >= NEWER else "TLSv1.3"), tls.version()
    return tls


def ask(tls, body):
    head = f"POST /echo HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {len(body)}\r\n\r\n"
    tls.sendall(head.encode() + body)
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < len(body):
        data = tls.recv(65536)
        assert data, f"closed after {answer}"
        answer += data
    head, _, echo = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and echo == body, answer


connections = [connect(number) for number in range(NEWER + OLDER)]
print("open", flush=True)
for turn, _ in enumerate(sys.stdin):
    for number, tls in enumerate(connections):
        try:
            ask(tls, f"request {turn} on connection {number} of TLS".encode())
        except (AssertionError, OSError) as error:
            sys.exit(f"request {turn} on connection {number}: {error!r}")
    print(f"answered {len(connections)}", flush=True)
