//! Where records begin and end, which is all that has to be known to feed them one by one.

use wire::tls::record::FRAGMENT_LEN_MAX;
use wire::tls::record::HEADER_LEN;
use wire::tls::record::RECORD_LEN_MAX;

use super::error::HandshakeError;
use crate::alert::Alert;

/// The record at the front of the input.
#[derive(Debug, PartialEq, Eq)]
enum Framed {
    /// Not enough to say.
    NeedMore,
    /// Bytes that no peer with TLS sends.
    NotTls,
    /// A record, or a header that cannot be one, which rustls then refuses.
    Record {
        /// How long it is.
        len: usize,
    },
    /// A record longer than any of its type may be.
    TooLong,
    /// A record of a type that no handshake has.
    Unexpected,
}

/// Types of records (RFC 8446, section 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// The record at the front of `input`, behind so many bytes of the handshake, if it is there whole.
pub(super) fn next_record(
    input: &[u8],
    bytes_before: usize,
) -> Result<Option<&[u8]>, HandshakeError> {
    match frame(input, bytes_before == 0) {
        Framed::NeedMore => Ok(None),
        Framed::NotTls => Err(HandshakeError::NotTls),
        Framed::TooLong => Err(HandshakeError::RecordTooLong),
        Framed::Unexpected => Err(HandshakeError::MessageUnexpected),
        Framed::Record { len } if bytes_before + len > HANDSHAKE_BYTES_MAX => {
            Err(HandshakeError::TooManyBytes)
        }
        Framed::Record { len } => Ok(input.get(..len)),
    }
}

/// Looks at the front of `input`; `is_first` where nothing came before.
fn frame(input: &[u8], is_first: bool) -> Framed {
    if is_first && !may_begin_tls(input) {
        return Framed::NotTls;
    }
    // Such as a heartbeat, whose record is not waited for (RFC 8446, section 5).
    let is_known = |kind| matches!(kind, CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE | APPLICATION_DATA);
    if input.first().is_some_and(|kind| !is_known(*kind)) {
        return Framed::Unexpected;
    }
    let Some(&[kind, major, _, high, low]) = input.first_chunk() else { return Framed::NeedMore };
    if major != 3 {
        return Framed::Record { len: HEADER_LEN };
    }
    let len = HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    // Of a handshake, only records of application data hold more than a fragment (RFC 8446,
    // section 5.1): those of TLS 1.2 under a key are short.
    let len_max =
        if kind == APPLICATION_DATA { RECORD_LEN_MAX } else { HEADER_LEN + FRAGMENT_LEN_MAX };
    if len > len_max {
        return Framed::TooLong;
    }
    if input.len() < len { Framed::NeedMore } else { Framed::Record { len } }
}

/// Whether this is how a connection begins: with a handshake message, or with an alert, from a
/// server that does not like what it was asked for.
fn may_begin_tls(input: &[u8]) -> bool {
    matches!(input, [] | [HANDSHAKE | ALERT] | [HANDSHAKE | ALERT, 3, ..])
}

/// Bytes of a handshake that a peer may send. The most that is of use are chains of certificates,
/// of a few thousand bytes.
pub const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// A record with an alert, under no key.
pub(crate) fn plain_alert(alert: Alert) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, alert.code()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_when_they_are_there_whole() {
        let record = [22, 3, 1, 0, 2, 1, 2, 99];
        for n in 0..7 {
            assert_eq!(frame(&record[..n], true), Framed::NeedMore, "{n}");
        }
        assert_eq!(frame(&record[..7], true), Framed::Record { len: 7 });
        assert_eq!(frame(&record, false), Framed::Record { len: 7 });
    }

    #[test]
    fn what_does_not_begin_tls_is_seen_at_its_first_byte() {
        for input in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"P", b"\x80\x2e\x01\x03\x01", b"\x16\x02", b"\0"]
        {
            assert_eq!(frame(input, true), Framed::NotTls, "{input:?}");
        }
        // Later on, it is a record of no type that there is.
        assert_eq!(frame(b"G", false), Framed::Unexpected);
        assert_eq!(frame(&[24, 3, 3, 0, 3], false), Framed::Unexpected);
        assert_eq!(frame(&[22, 9, 9, 9, 9], false), Framed::Record { len: HEADER_LEN });
    }

    #[test]
    fn no_record_is_waited_for_that_is_longer_than_any() {
        for (kind, longest) in [
            (CHANGE_CIPHER_SPEC, FRAGMENT_LEN_MAX),
            (ALERT, FRAGMENT_LEN_MAX),
            (HANDSHAKE, FRAGMENT_LEN_MAX),
            (APPLICATION_DATA, RECORD_LEN_MAX - HEADER_LEN),
        ] {
            let longest = u16::try_from(longest).unwrap();
            let [high, low] = longest.to_be_bytes();
            assert_eq!(frame(&[kind, 3, 3, high, low], false), Framed::NeedMore, "{kind}");
            let [high, low] = (longest + 1).to_be_bytes();
            assert_eq!(frame(&[kind, 3, 3, high, low], false), Framed::TooLong, "{kind}");
        }
    }
}
