"""A client of TLS that sends records as it likes, on Python's own ssl.

`speak_tls.py PORT CA HOW` speaks to a server that is shop.example by the word of the file CA:

  byte_by_byte      shakes hands and asks, with each byte sent alone
  dawdle            leaves handshakes unfinished, which must be cut off between one and five seconds
  break             sends what is no TLS, or was changed; each must be closed without an answer
  tunnel            upgrades, and ends its side before what it sent has come back
  abort FIRST COUNT leaves COUNT handshakes at places that are drawn from seeds from FIRST on

It exits with an error unless all went as it should.
"""

import random
import socket
import ssl
import struct
import sys
import time

PORT, CA, HOW, ARGUMENTS = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
NAME = "shop.example"
GET = b"GET /seen HTTP/1.1\r\nhost: shop.example\r\n\r\n"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
CONTEXTS = {}
for version in VERSIONS:
    context = ssl.create_default_context(cafile=CA)
    context.minimum_version = context.maximum_version = version
    CONTEXTS[version] = context


def connect():
    sock = socket.create_connection(("127.0.0.1", PORT), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def is_closed(sock):
    """Waits until the other side closes, whatever it says before."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


class Tls:
    """A connection whose records are in our hands."""

    def __init__(self, version):
        self.sock = connect()
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = CONTEXTS[version]
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=NAME)

    def send(self, data):
        self.sock.sendall(data)

    def receive(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError("closed")
        self.incoming.write(data)

    def shake_hands(self):
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send(self.outgoing.read())
                self.receive()
            else:
                self.send(self.outgoing.read())
                return

    def seal(self, data):
        self.tls.write(data)
        return self.outgoing.read()

    def read(self):
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                self.receive()

    def expect_answer(self):
        answer = b""
        while b"\r\n\r\nGET /seen HTTP/1.1\r\n" not in answer or not answer.endswith(b"\r\n\r\n"):
            answer += self.read()
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    def ask(self):
        self.send(self.seal(GET))
        self.expect_answer()

    def alert(self):
        """The alert with which the other side closes; it may be gone without one."""
        try:
            answer = self.read()
        except ssl.SSLError as error:
            return error.reason
        except (EOFError, ConnectionError):
            return None
        # A close_notify is an end, too.
        assert not answer, f"answered {answer}"
        return None


class ByteByByte(Tls):
    def send(self, data):
        for place in range(len(data)):
            self.sock.sendall(data[place : place + 1])


def hello(version):
    """A ClientHello, and a connection to which nothing of it was sent."""
    tls = Tls(version)
    try:
        tls.tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return tls, tls.outgoing.read()


def byte_by_byte():
    for version in VERSIONS:
        tls = ByteByByte(version)
        tls.shake_hands()
        for _ in range(3):
            tls.ask()


def dawdle():
    """All of them at once: (socket, what it sends now and then)."""
    slow = [(connect(), b"")]
    for version in VERSIONS:
        tls, first = hello(version)
        tls.send(first[:-1])
        slow.append((tls.sock, b""))
        tls, first = hello(version)
        slow.append((tls.sock, first))
        tls, first = hello(version)
        tls.send(first)
        # The other side's flight is taken, and not answered.
        tls.receive()
        slow.append((tls.sock, b""))
    slow.append((connect(), b"\x16"))
    finished = Tls(ssl.TLSVersion.TLSv1_3)
    finished.shake_hands()

    start = time.monotonic()
    cut = 0
    while slow:
        now = time.monotonic() - start
        assert now < 5, f"{len(slow)} are still open"
        for one in list(slow):
            sock, rest = one
            place = slow.index(one)
            sock.settimeout(0.05)
            try:
                if rest:
                    sock.sendall(rest[:1])
                    slow[place] = (sock, rest[1:])
                while sock.recv(65536):
                    pass
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            assert now > 0.5, f"cut off after {now} s"
            del slow[place]
            cut += 1
    finished.ask()
    print(f"{cut} were cut off")


def broken_handshakes(version):
    """What stands in the place of a ClientHello: (name, bytes, whether the sender ends then)."""
    noise = random.Random(1).randbytes(2000)
    _, first = hello(version)
    yield "HTTP", b"GET / HTTP/1.1\r\nhost: shop.example\r\n\r\n", False
    yield "HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", False
    yield "noise", b"\x80" + noise, False
    yield "noise in a record", b"\x16\x03\x01\x07\xd0" + noise, False
    yield "a record that is too long", b"\x16\x03\x01\xff\xff" + noise, False
    yield "data before a handshake", b"\x17\x03\x03\x00\x20" + noise[:32], False
    yield "an alert", b"\x15\x03\x01\x00\x02\x02\x28", False
    yield "a hello of SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + noise[:37], False
    yield "a hello without an end", first[:100], True
    yield "half a header", first[:3], True
    yield "nothing", b"", True
    yield "a hello and noise", first + b"\x16\x03\x03\x00\x40" + noise[:64], False
    yield "two hellos", first + first, False
    # The length of the message, not of its record.
    yield "a message that is too long", first[:6] + b"\xff\xff\xff" + first[9:], False
    yield "a short message", first[:6] + b"\x00\x00\x04" + first[9:], False
    for place in range(43, len(first), 7):
        yield f"a hello without byte {place}", first[:place] + first[place + 1 :], True


def broken_records(version):
    """What becomes of a request: (name, function of its record, alert, whether the sender ends)."""
    noise = random.Random(2).randbytes(2000)
    mac = "SSLV3_ALERT_BAD_RECORD_MAC"
    unexpected = "SSLV3_ALERT_UNEXPECTED_MESSAGE"
    overflow = "TLSV1_ALERT_RECORD_OVERFLOW"

    def with_bit(record, place):
        return record[:place] + bytes([record[place] ^ 1]) + record[place + 1 :]

    for place in [5, 20, 40, -1]:
        yield f"a bit at {place}", lambda r: with_bit(r, place % len(r)), mac, False
    yield "noise", lambda r: b"\x17\x03\x03\x07\xd0" + noise, mac, False
    yield "too long", lambda r: b"\x17\x03\x03\xff\xff" + noise, overflow, False
    yield "too short", lambda r: b"\x17\x03\x03\x00\x04" + noise[:4], None, False
    yield "of no type", lambda r: b"\x63" + r[1:], unexpected, False
    yield "not sealed", lambda r: b"\x17\x03\x03" + struct.pack("!H", len(GET)) + GET, mac, False
    yield "no record", lambda r: GET, None, False
    yield "a handshake again", lambda r: b"\x16" + r[1:], None, False
    yield "cut off", lambda r: r[:-1], None, True
    yield "cut off in its header", lambda r: r[:3], None, True
    yield "its end first", lambda r: r[:5] + r[6:] + r[5:6], mac, False


def break_all():
    bystander = Tls(ssl.TLSVersion.TLSv1_3)
    bystander.shake_hands()
    for version in VERSIONS:
        for name, data, ends in broken_handshakes(version):
            sock = connect()
            sock.sendall(data)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            try:
                assert is_closed(sock)
            except TimeoutError:
                raise AssertionError(f"{version}: stays open after {name}") from None
            bystander.ask()
        for name, change, alert, ends in broken_records(version):
            tls = Tls(version)
            tls.shake_hands()
            tls.ask()
            tls.send(change(tls.seal(GET)))
            if ends:
                tls.sock.shutdown(socket.SHUT_WR)
            try:
                received = tls.alert()
                assert alert is None or received == alert, f"{version}, {name}: {received}"
                assert is_closed(tls.sock)
            except TimeoutError:
                raise AssertionError(f"{version}: stays open after {name}") from None
            bystander.ask()
        # Once is a request, twice is a replay.
        tls = Tls(version)
        tls.shake_hands()
        record = tls.seal(GET)
        tls.send(record)
        tls.expect_answer()
        tls.send(record)
        received = tls.alert()
        assert received == "SSLV3_ALERT_BAD_RECORD_MAC", f"{version}, sent twice: {received}"
        bystander.ask()


def tunnel():
    for version in VERSIONS:
        tls = Tls(version)
        tls.shake_hands()
        # The example of RFC 6455, section 1.3.
        upgrade = (
            b"GET /chat HTTP/1.1\r\nhost: shop.example\r\nconnection: Upgrade\r\n"
            b"upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"sec-websocket-version: 13\r\n\r\n"
        )
        tls.send(tls.seal(upgrade))
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += tls.read()
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        noise = random.Random(3).randbytes(60_000)
        tls.send(tls.seal(noise))
        try:
            # Says that nothing more comes, and wants to hear the same.
            tls.tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        tls.send(tls.outgoing.read())
        back = b""
        while len(back) < len(noise):
            back += tls.read()
        assert back == noise, "other bytes came back"
        while True:
            try:
                tls.tls.unwrap()
            except ssl.SSLWantReadError:
                tls.receive()
            else:
                break
        assert tls.sock.recv(1) == b"", "something after the end"


def abort(first, count):
    for seed in range(int(first), int(first) + int(count)):
        draw = random.Random(seed)
        tls = Tls(draw.choice(VERSIONS))
        # A handshake and a request have some 700 bytes.
        left = draw.randrange(800)
        try:
            while left > 0:
                try:
                    tls.tls.do_handshake()
                    tls.tls.write(GET)
                    done = True
                except ssl.SSLWantReadError:
                    done = False
                data = tls.outgoing.read()[:left]
                left -= len(data)
                tls.send(data)
                if done:
                    break
                if left > 0:
                    tls.receive()
        except (ConnectionError, EOFError) as error:
            raise AssertionError(f"seed {seed}: {error!r}") from None
        how = draw.randrange(3)
        if how == 0:
            # A reset.
            tls.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == 1:
            # An end, whose answer is waited for.
            tls.sock.shutdown(socket.SHUT_WR)
            assert is_closed(tls.sock)
        tls.sock.close()


if HOW == "byte_by_byte":
    byte_by_byte()
elif HOW == "dawdle":
    dawdle()
elif HOW == "break":
    break_all()
elif HOW == "tunnel":
    tunnel()
elif HOW == "abort":
    abort(*ARGUMENTS)
else:
    sys.exit(f"unknown: {HOW}")
