//! The rules of RFC 8446 and RFC 5246 for what comes after a handshake, broken one at a time.

use wire::buffer::Buffer;
use wire::tls::Alert;
use wire::tls::record::{
    Cipher, FRAGMENT_LEN_MAX, HEADER_LEN, IDLE_RECORDS_MAX, KEY_RECORDS_MAX, MESSAGE_BYTES_MAX,
    Opened, Protocol, RECORD_LEN_MAX, RecordError, RecordLayer, SealError, Secrets, SecretsError,
    Sizing, Suite, TICKETS_MAX, TlsRole,
};

use super::checks::{ALERT, DATA, HANDSHAKE, RawPeer, check, moved};
use super::kit::{suites, suites_and_roles};

const TLS12: Suite = Suite { protocol: Protocol::Tls12, cipher: Cipher::Aes128Gcm };
const TLS13: Suite = Suite { protocol: Protocol::Tls13, cipher: Cipher::Aes128Gcm };

/// One side, which moves after everything, and what it heard.
struct Side {
    layer: Option<RecordLayer>,
    peer: RawPeer,
    unread: Vec<u8>,
    heard: Vec<Heard>,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Data(Vec<u8>),
    Ticket(Vec<u8>),
    End,
}

use Heard::{Data, End, Ticket};

impl Side {
    fn new(suite: Suite, role: TlsRole) -> Self {
        Self::at(suite, role, 0)
    }

    fn at(suite: Suite, role: TlsRole, sequence: u64) -> Self {
        let (layer, peer) = RawPeer::pair_at(suite, role, Sizing::Full, sequence);
        Self { layer: Some(layer), peer, unread: Vec::new(), heard: Vec::new() }
    }

    fn layer(&mut self) -> &mut RecordLayer {
        self.layer.as_mut().expect("it is there between moves")
    }

    /// What is in `bytes`, or what is wrong with them.
    fn hear(&mut self, bytes: &[u8]) -> Result<Vec<Heard>, RecordError> {
        self.unread.extend_from_slice(bytes);
        loop {
            let mut layer = moved(self.layer.take().expect("it is there"));
            let result = layer.open(&mut self.unread);
            self.layer = Some(layer);
            let (n, opened) = result?;
            let heard = match opened {
                Opened::NeedMore { .. } => None,
                Opened::Data { bytes, .. } => Some(Data(bytes.to_vec())),
                Opened::Ticket(ticket) => Some(Ticket(ticket)),
                Opened::End => Some(End),
            };
            self.unread.drain(..n);
            match heard {
                None => return Ok(std::mem::take(&mut self.heard)),
                Some(End) => {
                    self.heard.push(End);
                    return Ok(std::mem::take(&mut self.heard));
                }
                Some(heard) => self.heard.push(heard),
            }
        }
    }

    fn hear_record(&mut self, kind: u8, content: &[u8]) -> Result<Vec<Heard>, RecordError> {
        let record = self.peer.record(kind, content);
        self.hear(&record)
    }

    /// Records of what waits to be said.
    fn said(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut out = Buffer::new(1_000);
        let mut layer = moved(self.layer.take().expect("it is there"));
        layer.send_control(&mut out);
        assert!(!layer.has_control());
        self.layer = Some(layer);
        self.peer.read(out.filled())
    }

    /// Seals data, and reads it as the peer does.
    fn say(&mut self, data: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, SealError> {
        let room = self.layer().sealed_len(data.len());
        let mut out = Buffer::new(room);
        let sealed = self.layer().seal(&[data], &mut out)?;
        assert_eq!((sealed.taken, sealed.written), (data.len(), room));
        Ok(self.peer.read(out.filled()))
    }
}

/// Asserts that `bytes` fail with `error`, for good, and that the peer gets `alert`.
fn assert_fails(mut side: Side, bytes: &[u8], error: RecordError, alert: Option<u8>) {
    assert_eq!(side.hear(bytes), Err(error));
    assert_eq!(side.layer().failure(), Some(error));
    assert_eq!(side.hear(b""), Err(error), "it stays");
    let expected: Vec<_> = alert.map(|code| (ALERT, vec![2, code])).into_iter().collect();
    assert_eq!(side.said(), expected, "{error}");
    assert_eq!(error.alert().map(Alert::code), alert);
    assert_eq!(side.said(), [], "once");
    assert_eq!(side.say(b"data"), Err(SealError::Closed));
    side.layer().send_close();
    assert!(!side.layer().has_control());
}

#[test]
fn contents_that_break_a_rule_end_the_connection() {
    use RecordError::*;
    use TlsRole::{Client, Server};
    let ticket = [&[4, 0, 0, 40][..], &[0; 40]].concat();
    let oversized = [&[4, 0, 0x40, 1][..], &[0; 9]].concat();
    let update_and_more = [24, 0, 0, 1, 0, 24];
    for (suite, role, kind, content, error, alert) in [
        // Alerts.
        (TLS13, Server, ALERT, &b""[..], RecordEmpty, Some(10)),
        (TLS12, Server, ALERT, b"", RecordEmpty, Some(10)),
        (TLS13, Server, ALERT, b"\x01", AlertInvalid, Some(50)),
        (TLS12, Client, ALERT, b"\x01\0\x01", AlertInvalid, Some(50)),
        (TLS13, Client, ALERT, b"\x01\0\x01\0", AlertInvalid, Some(50)),
        (TLS13, Client, ALERT, b"\0\0", AlertInvalid, Some(50)),
        (TLS12, Client, ALERT, b"\x03\x0a", AlertInvalid, Some(50)),
        (TLS13, Client, ALERT, b"\x02\x28", AlertReceived(40), None),
        (TLS13, Client, ALERT, b"\x01\x28", AlertReceived(40), None),
        (TLS13, Client, ALERT, b"\x01\xff", AlertReceived(255), None),
        (TLS12, Server, ALERT, b"\x02\x5a", AlertReceived(90), None),
        // Messages.
        (TLS13, Server, HANDSHAKE, b"", RecordEmpty, Some(10)),
        (TLS12, Client, HANDSHAKE, b"", RecordEmpty, Some(10)),
        (TLS13, Server, HANDSHAKE, b"\x18\0\0\x01\x02", KeyUpdateInvalid, Some(47)),
        (TLS13, Server, HANDSHAKE, b"\x18\0\0\0", MessageLenInvalid, Some(50)),
        (TLS13, Server, HANDSHAKE, b"\x18\0\0\x02\0\0", MessageLenInvalid, Some(50)),
        (TLS13, Server, HANDSHAKE, &update_and_more, KeyUpdateNotLast, Some(10)),
        (TLS13, Server, HANDSHAKE, b"\x01", MessageUnexpected(1), Some(10)),
        (TLS13, Server, HANDSHAKE, &ticket, MessageUnexpected(4), Some(10)),
        (TLS13, Client, HANDSHAKE, b"\0\0\0\0", MessageUnexpected(0), Some(10)),
        (TLS13, Client, HANDSHAKE, b"\x0d", MessageUnexpected(13), Some(10)),
        (TLS13, Client, HANDSHAKE, b"\x14", MessageUnexpected(20), Some(10)),
        (TLS13, Client, HANDSHAKE, &oversized, MessageTooLong, Some(47)),
        (TLS13, Server, HANDSHAKE, b"\x18\xff\xff\xff", MessageTooLong, Some(47)),
        (TLS12, Client, HANDSHAKE, b"\x18", MessageUnexpected(24), Some(10)),
        (TLS12, Client, HANDSHAKE, b"\x04", MessageUnexpected(4), Some(10)),
        (TLS12, Client, HANDSHAKE, b"\0\0\0\x01\0", MessageLenInvalid, Some(50)),
        (TLS12, Server, HANDSHAKE, b"\0", MessageUnexpected(0), Some(10)),
        (TLS12, Server, HANDSHAKE, b"\x01", RenegotiationRefused, Some(100)),
        // Other types.
        (TLS13, Server, 20, b"\x01", RecordUnexpected(20), Some(10)),
        (TLS12, Server, 20, b"\x01", RecordUnexpected(20), Some(10)),
        (TLS13, Server, 24, b"\x01", RecordUnexpected(24), Some(10)),
        (TLS12, Client, 0xff, b"\x01", RecordUnexpected(255), Some(10)),
    ] {
        let mut side = Side::new(suite, role);
        let record = side.peer.record(kind, content);
        assert_fails(side, &record, error, alert);
    }
}

#[test]
fn headers_that_break_a_rule_end_the_connection_before_the_rest_comes() {
    use RecordError::*;
    let tls12_chacha = Suite { cipher: Cipher::Chacha20Poly1305, ..TLS12 };
    for (suite, header, error, alert) in [
        // ChangeCipherSpec, and an alert in the clear.
        (TLS13, [20, 3, 3, 0, 1], RecordUnexpected(20), 10),
        (TLS13, [21, 3, 3, 0, 2], RecordUnexpected(21), 10),
        (TLS13, [22, 3, 3, 0, 20], RecordUnexpected(22), 10),
        (TLS12, [20, 3, 3, 0, 1], RecordUnexpected(20), 10),
        (TLS12, [24, 3, 3, 0, 20], RecordUnexpected(24), 10),
        (TLS12, [b'G', b'E', b'T', b' ', b'/'], RecordUnexpected(b'G'), 10),
        (TLS13, [23, 3, 1, 0, 20], VersionInvalid, 70),
        (TLS13, [23, 3, 4, 0, 20], VersionInvalid, 70),
        (TLS12, [23, 3, 2, 0, 30], VersionInvalid, 70),
        (TLS12, [23, 2, 3, 0, 30], VersionInvalid, 70),
        (TLS13, [23, 3, 3, 0, 0], BadRecord, 20),
        (TLS12, [23, 3, 3, 0, 0], BadRecord, 20),
        (TLS13, [23, 3, 3, 0x40, 18], RecordTooLong, 22),
        (TLS12, [23, 3, 3, 0x40, 25], RecordTooLong, 22),
        (tls12_chacha, [23, 3, 3, 0x40, 17], RecordTooLong, 22),
        (TLS13, [23, 3, 3, 0xff, 0xff], RecordTooLong, 22),
    ] {
        assert_fails(Side::new(suite, TlsRole::Server), &header, error, Some(alert));
    }
}

#[test]
fn records_that_are_not_authentic_end_the_connection() {
    for (suite, role) in suites_and_roles() {
        let whole = Side::new(suite, role).peer.record(DATA, b"genuine");
        for place in HEADER_LEN..whole.len() {
            let mut side = Side::new(suite, role);
            let mut record = side.peer.record(DATA, b"genuine");
            record[place] ^= 0x10;
            assert_fails(side, &record, RecordError::BadRecord, Some(20));
        }
        // Too short for a tag.
        for len in 1..=24 {
            let record = [&[23, 3, 3, 0, len][..], &vec![0; usize::from(len)]].concat();
            assert_fails(Side::new(suite, role), &record, RecordError::BadRecord, Some(20));
        }
        // Once more, and out of order.
        let mut side = Side::new(suite, role);
        let (first, second) = (side.peer.record(DATA, b"1"), side.peer.record(DATA, b"2"));
        assert_eq!(side.hear(&first), Ok(vec![Data(b"1".to_vec())]));
        assert_fails(side, &first, RecordError::BadRecord, Some(20));
        assert_fails(Side::new(suite, role), &second, RecordError::BadRecord, Some(20));
    }
}

#[test]
fn what_is_opened_before_an_error_is_handed_out() {
    let mut side = Side::new(TLS13, TlsRole::Server);
    let records =
        [side.peer.record(DATA, b"good"), side.peer.record(DATA, b""), vec![23, 3, 3, 0, 0]]
            .concat();
    assert_eq!(side.hear(&records), Err(RecordError::BadRecord));
    assert_eq!(side.heard, [Data(b"good".to_vec())]);
}

#[test]
fn padding_is_taken_off_and_has_its_bounds() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
        let suite = Suite { cipher, ..TLS13 };
        for (content, padding) in
            [(1, 0), (1, 1), (5, 300), (1, FRAGMENT_LEN_MAX - 1), (FRAGMENT_LEN_MAX, 0)]
        {
            // Zeros at the end of the data are data.
            let content = vec![0; content];
            let mut side = Side::new(suite, TlsRole::Server);
            let record = side.peer.padded(DATA, &content, padding);
            assert_eq!(side.hear(&record), Ok(vec![Data(content)]));
        }
        for (content, padding) in [(1, FRAGMENT_LEN_MAX), (FRAGMENT_LEN_MAX, 1)] {
            let mut side = Side::new(suite, TlsRole::Server);
            let record = side.peer.padded(DATA, &vec![1; content], padding);
            assert_fails(side, &record, RecordError::RecordTooLong, Some(22));
        }
        for zeros in [0, 1, 100, FRAGMENT_LEN_MAX + 1] {
            let mut side = Side::new(suite, TlsRole::Server);
            let record = side.peer.send.seal(DATA, &vec![0; zeros]);
            assert_fails(side, &record, RecordError::ContentMissing, Some(10));
        }
    }
}

#[test]
fn full_records_are_the_longest() {
    for (suite, role) in suites_and_roles() {
        let mut side = Side::new(suite, role);
        let full = side.peer.record(DATA, &[7; FRAGMENT_LEN_MAX]);
        assert!(full.len() <= RECORD_LEN_MAX);
        assert_eq!(side.hear(&full), Ok(vec![Data(vec![7; FRAGMENT_LEN_MAX])]));
        let over = side.peer.record(DATA, &[7; FRAGMENT_LEN_MAX + 1]);
        assert_fails(side, &over, RecordError::RecordTooLong, Some(22));
    }
}

#[test]
fn the_caller_learns_how_long_the_record_is() {
    for suite in suites() {
        let (mut layer, mut peer) = RawPeer::pair(suite, TlsRole::Server, Sizing::Full);
        let mut stream = [peer.record(DATA, b"first"), peer.record(DATA, &[1; 500])].concat();
        let first_len = stream.len() - peer.record(DATA, &[1; 500]).len();
        for (len, expected) in [(0, HEADER_LEN), (4, HEADER_LEN), (5, first_len)] {
            let (n, opened) = layer.open(&mut stream[..len]).unwrap();
            assert!(matches!(opened, Opened::NeedMore { record_len } if record_len == expected));
            assert_eq!(n, 0);
        }
        let (n, opened) = layer.open(&mut stream).unwrap();
        assert_eq!(n, first_len);
        let Opened::Data { start, bytes } = opened else { panic!("data") };
        assert_eq!((start, bytes), (first_len - 5 - tail_len(suite), &b"first"[..]));
        let second_len = stream.len() - n;
        let (n, opened) = layer.open(&mut stream[n..n + 40]).unwrap();
        assert!(matches!(opened, Opened::NeedMore { record_len } if record_len == second_len));
        assert_eq!(n, 0);
    }
}

/// Octets behind the data of a record.
fn tail_len(suite: Suite) -> usize {
    if suite.protocol == Protocol::Tls13 { 17 } else { 16 }
}

#[test]
fn an_end_is_an_end() {
    for (suite, role) in suites_and_roles() {
        for level in [1, 2] {
            let mut side = Side::new(suite, role);
            let records = [
                side.peer.record(DATA, b"last"),
                side.peer.record(ALERT, &[level, 0]),
                side.peer.record(DATA, b"ignored"),
            ]
            .concat();
            assert_eq!(side.hear(&records), Ok(vec![Data(b"last".to_vec()), End]));
            assert!(side.layer().is_ended());
            assert_eq!(side.hear(b"ignored too"), Ok(vec![End]));
            assert_eq!(side.say(b"answer"), Ok(vec![(DATA, b"answer".to_vec())]));
            side.layer().send_close();
            assert_eq!(side.said(), [(ALERT, vec![1, 0])]);
            assert_eq!(side.layer().failure(), None);
        }
    }
}

#[test]
fn alerts_that_mean_nothing_are_ignored() {
    for (suite, alert) in [(TLS13, [1, 90]), (TLS13, [2, 90]), (TLS12, [1, 90]), (TLS12, [1, 41])] {
        let mut side = Side::new(suite, TlsRole::Server);
        assert_eq!(side.hear_record(ALERT, &alert), Ok(vec![]));
        assert_eq!(side.hear_record(DATA, b"on"), Ok(vec![Data(b"on".to_vec())]));
        assert_eq!(side.said(), []);
    }
}

#[test]
fn key_updates_are_followed_and_answered_when_asked_for() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305] {
        for role in [TlsRole::Client, TlsRole::Server] {
            let mut side = Side::new(Suite { cipher, ..TLS13 }, role);
            for (request, answers) in [(0, 0), (1, 1), (1, 1), (0, 0)] {
                assert_eq!(side.hear_record(HANDSHAKE, &[24, 0, 0, 1, request]), Ok(vec![]));
                side.peer.send.update();
                let heard = side.hear_record(DATA, b"under the next key");
                assert_eq!(heard, Ok(vec![Data(b"under the next key".to_vec())]));
                // The answer comes in front of the data.
                let said = side.say(b"data").unwrap();
                assert_eq!(said.len(), answers + 1, "{said:?}");
                assert_eq!(said.last(), Some(&(DATA, b"data".to_vec())));
            }
        }
    }
}

#[test]
fn an_answer_is_not_given_behind_the_end() {
    let mut side = Side::new(TLS13, TlsRole::Server);
    side.layer().send_close();
    side.hear_record(HANDSHAKE, &[24, 0, 0, 1, 1]).unwrap();
    side.peer.send.update();
    assert_eq!(side.said(), [(ALERT, vec![1, 0])]);
    side.hear_record(HANDSHAKE, &[24, 0, 0, 1, 1]).unwrap();
    assert_eq!(side.said(), []);
    // One that was owed comes in front of it.
    let mut side = Side::new(TLS13, TlsRole::Server);
    side.hear_record(HANDSHAKE, &[24, 0, 0, 1, 1]).unwrap();
    side.layer().send_close();
    assert_eq!(side.said(), [(HANDSHAKE, vec![24, 0, 0, 1, 0]), (ALERT, vec![1, 0])]);
}

#[test]
fn control_waits_for_room_and_data_waits_for_control() {
    let mut side = Side::new(TLS13, TlsRole::Server);
    side.hear_record(HANDSHAKE, &[24, 0, 0, 1, 1]).unwrap();
    let mut out = Buffer::new(26);
    let sealed = side.layer().seal(&[b"a"], &mut out).unwrap();
    assert_eq!((sealed.taken, sealed.written, out.len()), (0, 0, 0));
    assert!(side.layer().has_control());
    let mut out = Buffer::new(27 + 23);
    let sealed = side.layer().seal(&[b"ab"], &mut out).unwrap();
    assert_eq!((sealed.taken, sealed.written, out.len()), (1, 50, 50));
    assert_eq!(side.peer.read(out.filled())[1], (DATA, b"a".to_vec()));
}

#[test]
fn messages_may_span_records_and_share_one() {
    let message = |len: u8| [&[4, 0, 0, len][..], &vec![len; usize::from(len)]].concat();
    let all = [message(5), message(0), message(100), vec![24, 0, 0, 1, 1]].concat();
    let tickets = || vec![Ticket(vec![5; 5]), Ticket(Vec::new()), Ticket(vec![100; 100])];
    for fragment_len in [6, 7, 10, 50, all.len()] {
        let mut side = Side::new(TLS13, TlsRole::Client);
        let mut stream = Vec::new();
        for fragment in all.chunks(fragment_len) {
            stream.extend(side.peer.record(HANDSHAKE, fragment));
        }
        side.peer.send.update();
        stream.extend(side.peer.record(DATA, b"data"));
        let mut expected = tickets();
        expected.push(Data(b"data".to_vec()));
        assert_eq!(side.hear(&stream), Ok(expected), "{fragment_len}");
        assert_eq!(side.said(), [(HANDSHAKE, vec![24, 0, 0, 1, 0])]);
    }
}

#[test]
fn nothing_comes_between_the_pieces_of_a_message() {
    for (kind, content) in [(DATA, &b"data"[..]), (DATA, b""), (ALERT, &[1, 90])] {
        let mut side = Side::new(TLS13, TlsRole::Client);
        side.hear_record(HANDSHAKE, &[4, 0]).unwrap();
        let record = side.peer.record(kind, content);
        assert_fails(side, &record, RecordError::MessageInterrupted, Some(10));
    }
    // The peer may send a fatal alert anywhere.
    let mut side = Side::new(TLS13, TlsRole::Client);
    side.hear_record(HANDSHAKE, &[4, 0]).unwrap();
    assert_eq!(side.hear_record(ALERT, &[2, 80]), Err(RecordError::AlertReceived(80)));
    let mut side = Side::new(TLS13, TlsRole::Client);
    side.hear_record(HANDSHAKE, &[4, 0]).unwrap();
    assert_eq!(side.hear_record(ALERT, &[1, 0]), Ok(vec![End]));
}

#[test]
fn tickets_have_bounds() {
    let longest = {
        let [_, _, high, low] = u32::try_from(MESSAGE_BYTES_MAX).unwrap().to_be_bytes();
        [&[4, 0, high, low][..], &[9; MESSAGE_BYTES_MAX]].concat()
    };
    let mut side = Side::new(TLS13, TlsRole::Client);
    let (front, back) = longest.split_at(FRAGMENT_LEN_MAX);
    let stream = [side.peer.record(HANDSHAKE, front), side.peer.record(HANDSHAKE, back)].concat();
    assert_eq!(side.hear(&stream), Ok(vec![Ticket(vec![9; MESSAGE_BYTES_MAX])]));
    for n in 1..IDLE_RECORDS_MAX - 1 {
        let expected = if n < TICKETS_MAX { vec![Ticket(vec![1])] } else { vec![] };
        assert_eq!(side.hear_record(HANDSHAKE, &[4, 0, 0, 1, 1]), Ok(expected), "{n}");
    }
    let record = side.peer.record(HANDSHAKE, &[4, 0, 0, 1, 1]);
    assert_fails(side, &record, RecordError::TooManyIdleRecords, Some(10));
}

#[test]
fn floods_of_what_is_no_data_end_the_connection() {
    let flood = |side: &mut Side, kind: u8, content: &[u8]| {
        for n in 0..1_000 {
            let record = side.peer.record(kind, content);
            if kind == HANDSHAKE && content[0] == 24 {
                side.peer.send.update();
            }
            match side.hear(&record) {
                Ok(heard) => assert_eq!(heard, []),
                Err(error) => {
                    assert_eq!(error, RecordError::TooManyIdleRecords);
                    return n;
                }
            }
        }
        panic!("it goes on and on");
    };
    for (suite, kind, content) in [
        (TLS13, DATA, &b""[..]),
        (TLS12, DATA, b""),
        (TLS13, ALERT, &[1, 90]),
        (TLS12, ALERT, &[1, 100]),
        (TLS13, HANDSHAKE, &[24, 0, 0, 1, 0]),
        (TLS13, HANDSHAKE, &[24, 0, 0, 1, 1]),
        (TLS12, HANDSHAKE, &[0, 0, 0, 0]),
    ] {
        let mut side = Side::new(suite, TlsRole::Client);
        assert_eq!(flood(&mut side, kind, content), u32::from(IDLE_RECORDS_MAX));
        assert_eq!(side.said(), [(ALERT, vec![2, 10])], "and no answers");
        // Data makes up for them, but not one octet for all.
        let mut side = Side::new(suite, TlsRole::Client);
        for _ in 0..IDLE_RECORDS_MAX {
            let record = side.peer.record(DATA, b"");
            side.hear(&record).unwrap();
        }
        side.hear_record(DATA, b"x").unwrap();
        assert_eq!(flood(&mut side, kind, content), 1);
        let mut side = Side::new(suite, TlsRole::Client);
        for _ in 0..IDLE_RECORDS_MAX {
            side.hear_record(DATA, b"").unwrap();
        }
        side.hear_record(DATA, &[0; FRAGMENT_LEN_MAX]).unwrap();
        assert_eq!(flood(&mut side, kind, content), u32::from(IDLE_RECORDS_MAX));
    }
    // Many in one record are as many.
    let mut side = Side::new(TLS12, TlsRole::Client);
    let record = side.peer.record(HANDSHAKE, &[0; 4_000]);
    assert_fails(side, &record, RecordError::TooManyIdleRecords, Some(10));
    // A message in crumbs.
    let mut side = Side::new(TLS13, TlsRole::Client);
    side.hear_record(HANDSHAKE, &[4, 0, 1, 0]).unwrap();
    assert_eq!(flood(&mut side, HANDSHAKE, &[7]), u32::from(IDLE_RECORDS_MAX) - 1);
}

#[test]
fn a_server_that_asks_for_renegotiation_is_refused_and_goes_on() {
    let mut side = Side::new(TLS12, TlsRole::Client);
    side.hear_record(HANDSHAKE, &[0, 0]).unwrap();
    side.hear_record(HANDSHAKE, &[0, 0]).unwrap();
    side.hear_record(HANDSHAKE, &[0, 0, 0, 0]).unwrap();
    // Once for both, and in front of the data.
    let said = side.say(b"data").unwrap();
    assert_eq!(said, [(ALERT, vec![1, 100]), (DATA, b"data".to_vec())]);
    assert_eq!(side.hear_record(DATA, b"on"), Ok(vec![Data(b"on".to_vec())]));
}

#[test]
fn keys_are_changed_before_their_limit() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let suite = Suite { cipher, ..TLS13 };
        let mut side = Side::at(suite, TlsRole::Server, KEY_RECORDS_MAX - 2);
        // Two more records, then the change, between two records of one call.
        let said = side.say(&[5; 3 * FRAGMENT_LEN_MAX]).unwrap();
        let kinds: Vec<u8> = said.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [DATA, DATA, HANDSHAKE, DATA]);
        assert!(!side.layer().is_key_near_limit());
        let said = side.say(b"more").unwrap();
        assert_eq!(said, [(DATA, b"more".to_vec())]);

        // When there is no room for the change, nothing is sealed.
        let mut side = Side::at(suite, TlsRole::Server, KEY_RECORDS_MAX);
        let mut out = Buffer::new(26);
        assert_eq!(side.layer().seal(&[b"a"], &mut out).unwrap().taken, 0);
        assert_eq!(side.said(), [(HANDSHAKE, vec![24, 0, 0, 1, 0])]);
        // An answer that is owed is a change too.
        let mut side = Side::at(suite, TlsRole::Server, KEY_RECORDS_MAX);
        side.hear_record(HANDSHAKE, &[24, 0, 0, 1, 1]).unwrap();
        assert_eq!(side.say(b"a").unwrap().len(), 2);
    }
    let chacha = Suite { cipher: Cipher::Chacha20Poly1305, ..TLS13 };
    let mut side = Side::at(chacha, TlsRole::Server, KEY_RECORDS_MAX);
    assert_eq!(side.say(b"a").unwrap().len(), 1);
}

#[test]
fn a_key_near_its_limit_ends_tls12_in_good_time() {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let suite = Suite { cipher, ..TLS12 };
        let early = KEY_RECORDS_MAX - (1 << 20);
        assert!(!Side::at(suite, TlsRole::Server, early - 1).layer().is_key_near_limit());
        assert!(Side::at(suite, TlsRole::Server, early).layer().is_key_near_limit());

        let mut side = Side::at(suite, TlsRole::Server, KEY_RECORDS_MAX - 1);
        let mut out = Buffer::new(100_000);
        let sealed = side.layer().seal(&[&[5; 40_000]], &mut out).unwrap();
        assert_eq!(sealed.taken, FRAGMENT_LEN_MAX, "what was possible");
        assert_eq!(side.layer().seal(&[b"more"], &mut out), Err(SealError::KeyExhausted));
        assert_eq!(side.layer().seal(&[b"more"], &mut out), Err(SealError::Closed));
        let said = side.peer.read(out.filled());
        assert_eq!(said[1..], [(ALERT, vec![1, 0])]);
        assert_eq!(side.hear_record(DATA, b"on"), Ok(vec![Data(b"on".to_vec())]));
    }
    let chacha = Suite { cipher: Cipher::Chacha20Poly1305, ..TLS12 };
    assert!(!Side::at(chacha, TlsRole::Server, KEY_RECORDS_MAX).layer().is_key_near_limit());
    assert_eq!(Side::at(chacha, TlsRole::Server, KEY_RECORDS_MAX).say(b"a").unwrap().len(), 1);
}

#[test]
fn secrets_that_cannot_be_are_refused() {
    use SecretsError::*;
    for suite in suites() {
        let (_, peer) = RawPeer::pair(suite, TlsRole::Server, Sizing::Full);
        let (good, other) = (peer.send.secrets(), peer.receive.secrets());
        let refusal = |receive| {
            let secrets = Secrets { suite, receive, send: good };
            let as_receive = RecordLayer::new(TlsRole::Client, &secrets, Sizing::Full).map(drop);
            let secrets = Secrets { suite, receive: good, send: receive };
            assert_eq!(
                RecordLayer::new(TlsRole::Client, &secrets, Sizing::Full).map(drop),
                as_receive
            );
            as_receive
        };
        assert_eq!(refusal(good), Ok(()));
        let mut changed = good;
        for key in [&[1; 15][..], &[1; 17], &[1; 33], b""] {
            changed.key = key;
            assert_eq!(refusal(changed), Err(KeyLenInvalid));
        }
        changed = good;
        for iv in [&[1; 11][..], &[1; 13], b""] {
            changed.iv = iv;
            assert_eq!(refusal(changed), Err(IvLenInvalid));
        }
        changed = good;
        for secret in [&[1; 31][..], &[1; 33], &[1; 47], &[1; 49]] {
            changed.traffic_secret = secret;
            assert_eq!(refusal(changed), Err(TrafficSecretLenInvalid));
        }
        changed = good;
        changed.sequence = (1 << 63) + 1;
        assert_eq!(refusal(changed), Err(SequenceTooHigh));
        if suite.protocol == Protocol::Tls13 {
            changed = good;
            changed.traffic_secret = other.traffic_secret;
            assert_eq!(refusal(changed), Err(TrafficSecretOther));
            changed = good;
            changed.iv = other.iv;
            assert_eq!(refusal(changed), Err(TrafficSecretOther));
        }
    }
}

#[test]
fn nothing_secret_is_shown() {
    for suite in suites() {
        let (mut layer, mut peer) = RawPeer::pair(suite, TlsRole::Client, Sizing::Full);
        let mut out = Buffer::new(100);
        layer.seal(&[b"data"], &mut out).unwrap();
        if suite.protocol == Protocol::Tls13 {
            // A piece of a ticket.
            let mut record = peer.record(HANDSHAKE, &[&[4, 0, 0, 200][..], &[0xab; 100]].concat());
            layer.open(&mut record).unwrap();
        }
        let secrets = peer.send.secrets();
        let shown = format!("{layer:?} {layer:#?} {secrets:?}");
        for secret in [peer.send.secrets(), peer.receive.secrets()] {
            for octets in [secret.key, secret.iv, secret.traffic_secret] {
                for shape in shapes_of(octets) {
                    assert!(!shown.contains(&shape), "{shape} in {shown}");
                }
            }
        }
        assert!(!shown.contains("171, 171"), "{shown}");
        assert!(shown.contains("sequence: 1"), "{shown}");
    }
}

/// How four octets may look.
fn shapes_of(octets: &[u8]) -> Vec<String> {
    let Some(octets) = octets.first_chunk::<4>() else { return Vec::new() };
    let [a, b, c, d] = octets;
    vec![
        format!("{a}, {b}, {c}, {d}"),
        format!("{a:02x}{b:02x}{c:02x}{d:02x}"),
        format!("{octets:?}"),
    ]
}

#[test]
fn a_save_that_is_cut_off_or_no_save_is_refused() {
    let (layer, _) = RawPeer::pair(TLS13, TlsRole::Client, Sizing::Full);
    let bytes = postcard::to_stdvec(&layer).unwrap();
    for len in 0..bytes.len() {
        assert!(postcard::from_bytes::<RecordLayer>(&bytes[..len]).is_err(), "{len}");
    }
    // The first octets: role, version, cipher, number, and the length of the key.
    let mut other = bytes.clone();
    other[4] = 31;
    assert!(postcard::from_bytes::<RecordLayer>(&other).is_err());
    assert!(bytes.len() < 250, "{}", bytes.len());
}

#[test]
fn a_peer_may_do_anything_at_any_time() {
    // Every short script of the fuzz target's language.
    for how in 0..16 {
        for first in 0..8 {
            for second in 0..8 {
                let script =
                    [how, first | 8, 3, 24, 0, 0, second | 8, 5, 24, 0, 0, 1, 1, first, 1, 9];
                check(&script);
            }
        }
    }
}

/// What ours sends to its peer, with the room that it asks for.
fn said(layer: &mut RecordLayer) -> Vec<u8> {
    let mut out = Buffer::new(layer.sealed_len(0));
    layer.send_control(&mut out);
    out.filled().to_vec()
}

#[test]
fn a_connection_begins_with_its_traffic_secrets_alone() {
    for (cipher, len) in
        [(Cipher::Aes128Gcm, 32), (Cipher::Aes256Gcm, 48), (Cipher::Chacha20Poly1305, 32)]
    {
        let (theirs, ours) = (vec![1; len], vec![2; len]);
        let begin =
            |role, secrets| RecordLayer::of_traffic_secrets(role, cipher, secrets, Sizing::Full);
        let mut server = begin(TlsRole::Server, [&theirs, &ours]).unwrap();
        let mut client = begin(TlsRole::Client, [&ours, &theirs]).unwrap();

        let mut out = Buffer::new(server.ticket_len(b"ticket") + server.sealed_len(4));
        assert!(server.send_ticket(b"ticket", &mut out));
        server.seal(&[b"data"], &mut out).unwrap();
        assert_eq!(out.spare_len(), 0, "it said how much room it takes");
        let mut bytes = out.filled().to_vec();
        let (n, opened) = client.open(&mut bytes).unwrap();
        assert!(matches!(&opened, Opened::Ticket(ticket) if ticket == b"ticket"), "{opened:?}");
        let (_, opened) = client.open(&mut bytes[n..]).unwrap();
        assert!(matches!(opened, Opened::Data { bytes: b"data", .. }), "{opened:?}");

        server.send_failure(Alert::UnexpectedMessage);
        assert!(!server.send_ticket(b"ticket", &mut Buffer::new(100)), "sending is over");
        let error = client.open(&mut said(&mut server)).unwrap_err();
        assert_eq!(error, RecordError::AlertReceived(Alert::UnexpectedMessage.code()));
        let mut rest = [0; 9];
        let unread = server.open(&mut rest);
        assert!(matches!(unread, Ok((9, Opened::End))), "it is not read on: {unread:?}");

        let short = begin(TlsRole::Server, [&theirs[1..], &ours]).unwrap_err();
        assert_eq!(short, SecretsError::TrafficSecretLenInvalid);
    }
}
